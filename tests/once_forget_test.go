package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// withOnceAndTenants adds to the rules with stored answers one for orders of tenants.
func withOnceAndTenants(t testing.TB) func(string) string {
	return both(both(withToken(t), onceRules), func(yaml string) string {
		return edit(t, "locks:\n", "locks:\n  tenants: {key: \"tenant:lock:{tenant}/{id}\"}\n")(yaml) + `
  - name: tenant
    match: {methods: [POST], path: "/tenants/{id}"}
    id: {path: id, format: uuid}
    parts: {tenant: {header: x-tenant, format: pattern, pattern: "[a-z]+"}}
    settle: {lock: tenants, once: {keep: 1h}}
  - name: observed
    match: {methods: [POST], path: "/observed/{id}"}
    id: {path: id}
    settle: {lock: settlement, once: {keep: 1h}}
    mode: observe
`
	})
}

// forgotten is the answer to DELETE /v1/once/RULE/ORDER-ID.
type forgotten struct {
	Rule, ID, Lock, Name, Key string
	Forgotten                 bool
}

// forget deletes a stored answer at the admin address.
func (s *stack) forget(target string) (is forgotten) {
	s.t.Helper()
	status, text := s.admin("DELETE", "/v1/once/"+target, "", "Authorization", "Bearer "+adminToken)
	if status != 200 {
		s.t.Fatalf("DELETE %s: %d %s", target, status, text)
	}
	must(s.t, json.Unmarshal([]byte(text), &is))
	return is
}

// TestForgottenByRequest deletes stored answers at the admin address.
func TestForgottenByRequest(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	s := newStack(t, settings{backend: p.addr(), orders: 200, gate: withOnceAndTenants(t)})
	file := commandFile(t, s)
	const tenants = "6f1c2b3a-9a01-4c2d-8e3f-0123456789ab"
	for _, path := range []string{"/v1/once/commission-settle/4", "/v1/once/none/4"} {
		for _, header := range [][]string{nil, {"Authorization", "Bearer " + adminToken + "x"}} {
			if status, text := s.admin("DELETE", path, "", header...); status != 401 {
				t.Errorf("DELETE %s with %q: %d %s", path, header, status, text)
			}
		}
	}
	for path, want := range map[string]int{
		"none/4": 404, "order-lookup/4": 404, "undo/4": 404, "payment/4": 404, "observed/4": 404,
		"commission-settle/": 400, "commission-settle/04": 400, "commission-settle/4%2F5": 400, "commission-settle/a": 400, "commission-settle/*": 400,
		"tenant/" + tenants: 400, "tenant/ACME/" + tenants: 400,
	} {
		if status, text := s.admin("DELETE", "/v1/once/"+path, "", "Authorization", "Bearer "+adminToken); status != want {
			t.Errorf("DELETE %s: %d %s, want %d", path, status, text, want)
		}
	}

	is := forgotten{Rule: "commission-settle", ID: "4", Lock: "settlement", Name: "commission", Key: "{order:lock:4}:ordergate_once:commission"}
	if diff := cmp.Diff(is, s.forget("commission-settle/4")); diff != "" {
		t.Errorf("nothing is stored (-want +got):\n%s", diff)
	}
	s.must("POST", "/orders/4/settle", "").want(t, 200, "")
	s.must("POST", "/orders/4/settle", "").want(t, 200, "replayed")
	is.Forgotten = true
	if diff := cmp.Diff(is, s.forget("commission-settle/4?who=refunds&reason=refund+17")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.must("POST", "/orders/4/settle", "").want(t, 200, "")
	p.wantPaid(t, "/orders/4/settle", 2)

	s.must("POST", "/tenants/"+tenants, "", "x-tenant", "acme").want(t, 200, "")
	s.must("POST", "/tenants/"+tenants, "", "x-tenant", "bolt").want(t, 200, "")
	if got := s.forget("tenant/acme/6F1C2B3A-9A01-4c2d-8e3f-0123456789ab"); !got.Forgotten || got.ID != "acme/"+tenants || got.Key != "{tenant:lock:acme/"+tenants+"}:ordergate_once:tenant" {
		t.Errorf("got %+v", got)
	}
	s.must("POST", "/tenants/"+tenants, "", "x-tenant", "acme").want(t, 200, "")
	s.must("POST", "/tenants/"+tenants, "", "x-tenant", "bolt").want(t, 200, "replayed")

	s.operator(file, "once", "forget", "4", "--reason", "refund 18")
	s.wantLogged(`"a stored answer was forgotten by hand"`, "who=refunds@127.0.0.1", "lock=settlement", "key={order:lock:4}:ordergate_once:commission", `reason="refund 17"`)
	s.wantLogged(`"a stored answer was forgotten by hand"`, "@", `reason="refund 18"`)
	if shown := s.operator(file, "locks", "audit"); !matches(shown,
		`...Z  ...@...  forgot  {order:lock:4}:ordergate_once:commission (settlement)  ...refund 18
...Z  token@127.0.0.1  ...forgot  {tenant:lock:acme/`+tenants+`}:ordergate_once:tenant (tenants)  ...
...Z  refunds@127.0.0.1  forgot  {order:lock:4}:ordergate_once:commission (settlement)  ...refund 17`) {
		t.Errorf("the audit:\n%s", shown)
	}

	s.server.Kill()
	if status, text := s.admin("DELETE", "/v1/once/commission-settle/4", "", "Authorization", "Bearer "+adminToken); status != 503 {
		t.Errorf("without Redis: %d %s", status, text)
	}
}

// TestForgottenWithoutToken has an admin address without a token.
func TestForgottenWithoutToken(t *testing.T) {
	t.Parallel()
	s, _ := newOnceStack(t)
	if status, text := s.admin("DELETE", "/v1/once/commission-settle/4", ""); status != 403 {
		t.Errorf("%d %s", status, text)
	}
}

// TestUndoRuns looks at an order while a call undoes its settlement: no call gets the answer, and
// none settles again, before the outcome of that call is known.
func TestUndoRuns(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	begin := func(order, query string) (leave func(), ended <-chan answer) {
		s.must("POST", "/orders/"+order+"/settle", "").want(t, 200, "")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan answer, 1)
		go func() {
			a, _ := s.send(ctx, "POST", "/orders/"+order+"/undo?hang"+query, "") // or it has left
			done <- a
		}()
		bedtest.Eventually(t, "the backend undoes", func() bool { return p.paid("/orders/"+order+"/undo") == 1 })
		s.must("POST", "/orders/"+order+"/settle", "").want(t, 409, "busy")
		return cancel, done
	}
	leave, _ := begin("1", "")
	_, undone := begin("2", "")
	_, failed := begin("3", "&status=422")
	_, corrected := begin("4", "")

	t.Run("within a call", func(t *testing.T) { // that undoes and settles anew
		p.mu.Lock()
		held := p.headers["x-ordergate-lease"]
		p.mu.Unlock()
		done := make(chan answer, 1)
		go func() {
			a, _ := s.send(t.Context(), "POST", "/orders/4/settle?for=3s", "", leaseHeader, held)
			done <- a
		}()
		bedtest.Eventually(t, "the backend settles", func() bool { return p.paid("/orders/4/settle") == 2 })
		s.must("POST", "/orders/4/settle", "", leaseHeader, held).want(t, 409, "busy") // delivered twice
		s.must("POST", "/orders/4/undo", "", leaseHeader, held).want(t, 409, "busy")   // nothing would show which came first
		(<-done).want(t, 200, "")
		s.must("POST", "/orders/4/settle", "", leaseHeader, held).want(t, 200, "replayed")
		for _, verdict := range []string{"", "replayed"} {
			s.must("POST", "/orders/4/both", "", leaseHeader, held, "Idempotency-Key", "k").want(t, 200, verdict)
		}
	})
	leave()
	t.Run("unknown outcome", func(t *testing.T) {
		bedtest.Eventually(t, "the lock is held", func() bool {
			return strings.Contains(fmt.Sprint(s.redis.HVals(t.Context(), "{order:lock:1}:ordergate_holders").Val()), `"held":true`)
		})
		s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
		must(t, s.redis.Del(t.Context(), "order:lock:1").Err()) // the hold ends
		s.must("POST", "/orders/1/settle", "").want(t, 409, "duplicate")
		s.must("POST", "/orders/1/undo?status=409", "").want(t, 409, "") // it was undone before
		bedtest.Eventually(t, "the second undo has ended", func() bool { return s.redis.Exists(t.Context(), "order:lock:1").Val() == 0 })
		s.must("POST", "/orders/1/settle", "").want(t, 409, "duplicate")
		if shown := s.operator(commandFile(t, s), "once", "show", "1"); !strings.Contains(shown, "status 200; suspended: ") {
			t.Errorf("shown is %s", shown)
		}
		s.operator(commandFile(t, s), "once", "forget", "1")
		s.must("POST", "/orders/1/settle", "").want(t, 200, "")
		p.wantPaid(t, "/orders/1/settle", 2)
	})
	close(p.release)
	(<-undone).want(t, 200, "")
	(<-failed).want(t, 422, "")
	(<-corrected).want(t, 200, "")
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	p.wantPaid(t, "/orders/2/settle", 2)
	bedtest.Eventually(t, "the answer is given back", func() bool { return s.must("POST", "/orders/3/settle", "").verdict == "replayed" })
	p.wantPaid(t, "/orders/3/settle", 1)
	s.must("POST", "/orders/4/settle", "").want(t, 200, "replayed")
	s.must("POST", "/orders/4/both", "", "Idempotency-Key", "k").want(t, 200, "replayed")
	p.wantPaid(t, "/orders/4/settle", 2)
	s.must("POST", "/orders/4/undo", "").want(t, 200, "")
	s.must("POST", "/orders/4/both", "", "Idempotency-Key", "k").want(t, 409, "duplicate")
}

// TestBatchUndone undoes the settlement of one order of a batch. The batch has no answer then.
func TestBatchUndone(t *testing.T) {
	t.Parallel()
	s, p := newOnceStack(t)
	for i, undone := range []string{"11", "22"} {
		body := []string{`{"ids":[11,12]}`, `{"ids":[21,22]}`}[i]
		s.must("POST", "/batch", body, "Content-Type", jsonBody).want(t, 200, "")
		s.must("POST", "/batch", body, "Content-Type", jsonBody).want(t, 200, "replayed")
		s.must("POST", "/orders/"+undone+"/undo", "").want(t, 200, "")
		s.must("POST", "/batch", body, "Content-Type", jsonBody).want(t, 409, "duplicate")
		s.must("POST", "/orders/"+undone+"/settle", "").want(t, 200, "")
		s.must("POST", "/batch", body, "Content-Type", jsonBody).want(t, 409, "duplicate")
	}
	p.wantPaid(t, "/batch", 2)

	// Within the undo of a batch, it is settled anew, with a key.
	const body = `{"ids":[31,32]}`
	done := make(chan answer, 1)
	go func() {
		a, _ := s.send(t.Context(), "POST", "/batch/undo?hang", body, "Content-Type", jsonBody)
		done <- a
	}()
	bedtest.Eventually(t, "the backend undoes", func() bool { return p.paid("/batch/undo") == 1 })
	p.mu.Lock()
	held := p.headers[leaseHeader]
	p.mu.Unlock()
	anew := func(header ...string) answer {
		return s.must("POST", "/batch", body, append(header, "Content-Type", jsonBody, "Idempotency-Key", "k")...)
	}
	anew(leaseHeader, held).want(t, 200, "")
	anew(leaseHeader, held).want(t, 200, "replayed")
	close(p.release)
	(<-done).want(t, 200, "")
	anew().want(t, 200, "replayed")
	p.wantPaid(t, "/batch", 3)
	s.must("POST", "/orders/32/undo", "").want(t, 200, "")
	anew().want(t, 409, "duplicate")
}
