package main

import (
	"net/http"
)

// The rows.
const (
	nameEnvoy      = "Envoy, no gate"
	nameDirect     = "Envoy, direct response"
	nameNoop       = "Envoy, no-op sidecar"
	nameNoopModule = "Envoy, no-op module"
	nameAuthz      = "ordergate, sidecar"
	nameAuthzNone  = "ordergate, sidecar, none"
	nameModule     = "ordergate, module"
	nameModuleNone = "ordergate, module, none"
	nameNginx      = "nginx, no gate"
	nameLua        = "nginx, Lua"
)

// The answers that are due.
var (
	passed  = answer{http.StatusOK, ""}
	refused = answer{http.StatusNotFound, ""}
	absent  = answer{http.StatusNotFound, "absent"}
)

// bases are those of ordergate's rows.
var bases = []string{nameEnvoy, nameNoop, nameLua}

// inside are the bases of a module that refuses.
var inside = []string{nameDirect, nameNoopModule, nameLua}

// sections returns what is measured.
func sections(s *servers) []section {
	return []section{refuse(s), pass(s), settle(s)}
}

const refuseNote = `GET /orders/{id} of orders that do not exist, each another one. Without a gate they
reach the backend, which answers 200. The rows with none have ` + "`freshness:\nnone`" + `, the other two of ordergate's the default, a window of 500 ms. The no-op refuses
everything. The direct response is a route of Envoy's with a 404 and no filter but the
router: what no filter can be faster than. For what is inside Envoy that is "plain", and
the module that refuses everything is the no-op.`

// refuse compares what an absent order costs.
func refuse(s *servers) section {
	return section{
		name: "refuse", title: "Refusing an absent order", note: refuseNote,
		load: load{method: http.MethodGet, first: firstAbsent}, distinct: true,
		contenders: []contender{
			{nameEnvoy, nil, &s.envoy, passed},
			{nameDirect, []string{nameEnvoy}, &s.direct, refused},
			{nameNoop, []string{nameEnvoy}, &s.noopRefuses, refused},
			{nameNoopModule, []string{nameDirect}, &s.noopModule, absent},
			{nameAuthz, []string{nameNoop, nameLua}, &s.authz, absent},
			{nameAuthzNone, []string{nameNoop, nameLua}, &s.authzNone, absent},
			{nameModule, inside, &s.module, absent},
			{nameModuleNone, inside, &s.moduleNone, absent},
			{nameNginx, nil, &s.nginx, passed},
			{nameLua, []string{nameNginx}, &s.lua, refused},
		},
	}
}

const passNote = `GET /orders/{id} of orders that exist, 100,000 in turns.`

// pass compares what a gate adds to a request that is right.
func pass(s *servers) section {
	return section{
		name: "pass", title: "Passing an order that exists", note: passNote,
		load: load{method: http.MethodGet, first: 1, count: existing},
		contenders: []contender{
			{nameEnvoy, nil, &s.envoy, passed},
			{nameNoop, []string{nameEnvoy}, &s.noopPasses, passed},
			{nameAuthz, bases, &s.authz, passed},
			{nameModule, bases, &s.module, passed},
			{nameNginx, nil, &s.nginx, passed},
			{nameLua, []string{nameNginx}, &s.lua, passed},
		},
	}
}

const settleNote = `POST /orders/{id}/settle of distinct orders, each with a lock of its own. The sidecars
have ext_authz and ext_proc on the way; the no-op takes no lock. nginx's lock is SET
NX PX with a script that gives it back: no fence, no renewal, and it is given back
after every outcome of the call.`

// settle compares brackets.
func settle(s *servers) section {
	return section{
		name: "settle", title: "Settling distinct orders", note: settleNote,
		load: load{
			method: http.MethodPost, first: firstSettled, suffix: "/settle", body: `{"amount":"101"}`,
		},
		distinct: true, locks: true,
		contenders: []contender{
			{nameEnvoy, nil, &s.envoy, passed},
			{nameNoop, []string{nameEnvoy}, &s.noopPasses, passed},
			{nameAuthz, bases, &s.authz, passed},
			{nameModule, bases, &s.module, passed},
			{nameNginx, nil, &s.nginx, passed},
			{nameLua, []string{nameNginx}, &s.lua, passed},
		},
	}
}
