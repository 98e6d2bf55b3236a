package main

import (
	"net/http"
)

// The rows.
const (
	nameEnvoy      = "Envoy, no gate"
	nameDirect     = "Envoy, direct response"
	nameNoop       = "Envoy, no-op sidecar"
	nameNoopAll    = "Envoy, no-op, all messages"
	nameNoopModule = "Envoy, no-op module"
	nameAuthz      = "ordergate, sidecar"
	nameAuthzNone  = "ordergate, sidecar, none"
	nameAuthzTwice = "ordergate, both filters"
	nameModule     = "ordergate, module"
	nameModuleNone = "ordergate, module, none"
	nameNginx      = "nginx, no gate"
	nameLua        = "nginx, Lua"

	nameAuthzOnce    = "ordergate, sidecar, once"
	nameAuthzReplay  = "ordergate, sidecar, replay"
	nameModuleOnce   = "ordergate, module, once"
	nameModuleReplay = "ordergate, module, replay"
)

// The answers that are due.
var (
	passed   = answer{http.StatusOK, ""}
	refused  = answer{http.StatusNotFound, ""}
	absent   = answer{http.StatusNotFound, "absent"}
	replayed = answer{http.StatusOK, "replayed"}
)

// bases are those of ordergate's rows.
var bases = []string{nameEnvoy, nameNoop, nameLua}

// inside are the bases of a module that refuses.
var inside = []string{nameDirect, nameNoopModule, nameLua}

// sections returns what is measured.
func sections(s *servers) []section {
	return []section{refuse(s), pass(s), settle(s), once(s)}
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
			{name: nameEnvoy, on: &s.envoy, want: passed},
			{name: nameDirect, bases: []string{nameEnvoy}, on: &s.direct, want: refused},
			{name: nameNoop, bases: []string{nameEnvoy}, on: &s.noopRefuses, want: refused},
			{name: nameNoopModule, bases: []string{nameDirect}, on: &s.noopModule, want: absent},
			{name: nameAuthz, bases: []string{nameNoop, nameLua}, on: &s.authz, want: absent},
			{name: nameAuthzNone, bases: []string{nameNoop, nameLua}, on: &s.authzNone, want: absent},
			{name: nameModule, bases: inside, on: &s.module, want: absent},
			{name: nameModuleNone, bases: inside, on: &s.moduleNone, want: absent},
			{name: nameNginx, on: &s.nginx, want: passed},
			{name: nameLua, bases: []string{nameNginx}, on: &s.lua, want: refused},
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
			{name: nameEnvoy, on: &s.envoy, want: passed},
			{name: nameNoop, bases: []string{nameEnvoy}, on: &s.noopPasses, want: passed},
			{name: nameAuthz, bases: bases, on: &s.authz, want: passed},
			{name: nameModule, bases: bases, on: &s.module, want: passed},
			{name: nameNginx, on: &s.nginx, want: passed},
			{name: nameLua, bases: []string{nameNginx}, on: &s.lua, want: passed},
		},
	}
}

const settleNote = `POST /orders/{id}/settle of distinct orders, each with a lock of its own. The sidecars
have ext_proc on the way, and one row ext_authz before it; the no-op takes no lock. With all messages
it asks Envoy for the request's body and for the end of the answer, as ordergate does. nginx's lock is SET
NX PX with a script that gives it back: no fence, no renewal, and it is given back
after every outcome of the call.`

// settle compares brackets.
func settle(s *servers) section {
	bases := []string{nameEnvoy, nameNoopAll, nameLua}
	return section{
		name: "settle", title: "Settling distinct orders", note: settleNote,
		load: load{
			method: http.MethodPost, first: firstSettled, suffix: "/settle", body: `{"amount":"101"}`,
		},
		distinct: true, locks: true,
		contenders: []contender{
			{name: nameEnvoy, on: &s.envoy, want: passed},
			{name: nameNoop, bases: []string{nameEnvoy}, on: &s.noopPasses, want: passed},
			{name: nameNoopAll, bases: []string{nameEnvoy, nameNoop}, on: &s.noopAll, want: passed},
			{name: nameAuthz, bases: bases, on: &s.authz, want: passed},
			{name: nameAuthzTwice, bases: bases, on: &s.authzTwice, want: passed},
			{name: nameModule, bases: bases, on: &s.module, want: passed},
			{name: nameNginx, on: &s.nginx, want: passed},
			{name: nameLua, bases: []string{nameNginx}, on: &s.lua, want: passed},
		},
	}
}

const onceNote = `POST of distinct orders, as before, under three rules: settle alone, settle.once, and
settle.once for 100 orders that are settled already: the answer is given again, and the
backend, which answers at once, is not reached.`

// once compares what a stored answer costs, and what it saves.
func once(s *servers) section {
	const onceSuffix = "/settle-once"
	job := settle(s).load
	return section{
		name: "once", title: "Answers that are given again", note: onceNote,
		load: job, distinct: true, locks: true,
		ratios: []ratio{
			{rate, plainBase, "requests/s : settle alone"}, {allCPU, plainBase, "CPU : settle alone"},
		},
		contenders: []contender{
			{name: nameAuthz, on: &s.authz, want: passed},
			{name: nameAuthzOnce, bases: []string{nameAuthz}, on: &s.authz, want: passed, suffix: onceSuffix},
			{name: nameAuthzReplay, bases: []string{nameAuthz}, on: &s.authz, want: replayed, suffix: onceSuffix},
			{name: nameModule, on: &s.module, want: passed},
			{name: nameModuleOnce, bases: []string{nameModule}, on: &s.module, want: passed, suffix: onceSuffix},
			{name: nameModuleReplay, bases: []string{nameModule}, on: &s.module, want: replayed, suffix: onceSuffix},
		},
	}
}
