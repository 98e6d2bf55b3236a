package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestMixedRules has ext_authz go by some rules and ext_proc by others, as a request can find
// them while a reload replaces the one by the other. Two ordergates are asked for that.
// A request has a lock where the rules of ext_proc settle. A malformed one that either of the
// two guards is refused.
func TestMixedRules(t *testing.T) {
	needsSidecar(t, "inside Envoy, a request goes by one set of rules")
	t.Parallel()
	const guarded = "  - name: guarded\n    match: {methods: [POST], path: \"/orders/{id}/settle\"}\n    id: {path: id, format: digits}\n"
	actions := map[string]string{
		"none":    "",
		"looks":   guarded + "    lookup: {filter: orders}\n",
		"settles": guarded + "    settle: {lock: settlement}\n",
		"both":    guarded + "    lookup: {filter: orders}\n    settle: {lock: settlement}\n",
		"other":   bedtest.Replace(guarded, "/settle\"", "/pay\"") + "    settle: {lock: settlement}\n",
	}
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	gates := make(map[string]*testbed.Gate)
	text := s.GateExample(s.server.Addr(), idFile(t, 10))
	head, _, found := strings.Cut(text, "\nrules:\n")
	if !found {
		t.Fatal("the example has no rules")
	}
	for name, rules := range actions {
		lookup := "  - {name: elsewhere, match: {methods: [GET], path: \"/elsewhere/{id}\"}, id: {path: id}, lookup: {filter: orders}}\n"
		member := fmt.Sprintf("redis:\n  member: %s\n", name)
		gates[name] = s.Gate(s.Build("./cmd/sidecar", false), bedtest.Replace(head, "redis:\n", member)+"\nrules:\n"+lookup+rules)
	}
	for authz := range actions {
		for proc := range actions {
			t.Run(authz+" "+proc, func(t *testing.T) {
				config := throughBoth(t)(check(t)(s.EnvoyExample(s.GateAddr(gates[authz], "authz"), s.GateAddr(gates[proc], "proc"), b.addr())))
				mixed := *s
				mixed.t, mixed.url = t, "http://"+s.ListenerAddr(s.Envoy(config), "orders")
				guards := func(name string) bool { return name == "looks" || name == "settles" || name == "both" }
				looks, settles := authz == "looks" || authz == "both", proc == "settles" || proc == "both"
				for path, exists := range map[string]bool{"/orders/7/settle": true, "/orders/77/settle": false} {
					before := len(b.seen())
					a := mixed.must("POST", path, "", "x-ordergate-lease", "forged", "x-ordergate-key", "forged")
					if !exists && looks {
						a.want(t, 404, "absent")
						continue
					}
					a.want(t, 200, "")
					if len(b.seen()) != before+1 {
						t.Fatalf("%s: %d requests reached the backend", path, len(b.seen())-before)
					}
					want := ""
					if settles {
						want = "order:lock:" + strings.Split(path, "/")[2]
					}
					if key, lease := b.last("key"), b.last("lease"); key != want || lease == "forged" || (lease != "") != settles {
						t.Errorf("%s came with the key %q and the lease %q, want %q", path, key, lease, want)
					}
				}
				if a := mixed.must("POST", "/orders/07/settle", ""); (guards(authz) || guards(proc)) != (a.status == 400) {
					t.Errorf("an order of another spelling: %d %s", a.status, a.verdict)
				}
			})
		}
	}
}
