package gate_test

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestAttachment has requests pass ext_authz, and some reach ext_proc behind it.
func TestAttachment(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	g, err := gate.New([]gate.Policy{
		{Rule: order.Rule{Name: "create", Methods: []string{"GET", "POST"}, Path: "/new.php"}, Create: &gate.Create{}},
		{Rule: order.Rule{Name: "observed", Methods: []string{"POST"}, Path: "/old.php"}, Create: &gate.Create{}, Observe: true},
		{Rule: order.Rule{Name: "list", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"call": {"x"}, "route": {"a/b", "c/d"}}}, Create: &gate.Create{}},
	}, gatetest.Silent{}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	target := "/new.php"
	request := func(method string) *order.Request { return &order.Request{Method: method, Target: target} }
	pass := func(rule int, method string, requests int, gone bool) {
		t.Helper()
		for range requests {
			d := gate.Decision{Rule: rule, Observed: rule == 1}
			if g.Seals(&d) != (rule != 1) {
				t.Fatalf("rule %d: sealed %t", rule, g.Seals(&d))
			}
			g.Passed(&d, request(method), gone)
		}
	}
	after := func(what string, wait time.Duration, want string, unattached bool) {
		t.Helper()
		now = now.Add(wait)
		got := ""
		g.Unattached(func(rule string, few bool) {
			got += rule
			if few {
				got += ", few"
			}
		})
		if got != want || g.IsUnattached() != unattached {
			t.Errorf("%s: reported %q, want %q; unattached %t", what, got, want, g.IsUnattached())
		}
	}
	after("at first", 0, "", false)
	pass(0, "POST", 1, false)
	after("at once", time.Second, "", false)
	after("one has not arrived", 2*time.Second, "create, few", false)
	after("the same", time.Second, "", false)
	pass(0, "POST", 1, true)
	after("a client has left", time.Hour, "", false)
	pass(0, "POST", 100, false)
	after("at once", time.Second, "", false)
	after("none has arrived", 2*time.Second, "create", true)
	pass(0, "GET", 3, false)
	after("reads have another route", 3*time.Second, "create, few", true)
	g.Arrived(0, request("POST"), false)
	pass(0, "POST", 1, false)
	after("one that has not passed ext_authz, or behind it", time.Second, "create", true)
	after("nobody comes any more", 5*time.Minute, "", false)
	pass(0, "POST", 1, false)
	after("again", 0, "create", true)
	g.Arrived(0, request("POST"), true)
	after("one has arrived", 0, "", false)

	pass(0, "POST", 20, false)
	after("few after it", 10*time.Second, "", false)
	pass(0, "POST", 1, false)
	after("none for a while", 0, "create", false)
	g.Arrived(0, request("POST"), true)
	pass(0, "POST", 100, false)
	after("a flood", 10*time.Second, "", false)

	pass(1, "POST", 4, false)
	after("observed", 3*time.Second, "observed", true)
	g.Arrived(1, request("POST"), false)
	after("it is not sealed", 0, "", false)

	// Envoy may have a route for one page of a list alone.
	for _, page := range []string{"a/b", "c/d"} {
		target = "/index.php?call=x&lang=c/d&route=" + page
		pass(2, "POST", 4, false)
	}
	g.Arrived(2, request("POST"), true)
	after("one page has arrived", 3*time.Second, "list", true)
	target = "/index.php?route=a/b&call=x"
	g.Arrived(2, request("POST"), true)
	after("the other has, too", 0, "", false)

	target = "/index.php?route=a/b&call=x"
	for range 100 {
		g.Passed(&gate.Decision{Rule: 2, Observed: true}, request("GET"), false)
	}
	after("none outside of the rule's share arrives sealed", 3*time.Second, "", false)

	plain := func(g *gate.Gate, what string, wait time.Duration, want string) {
		t.Helper()
		now = now.Add(wait)
		got := ""
		g.Unlocked(func(rule string) { got += rule })
		if got != want || g.IsUnattached() {
			t.Errorf("%s: reported %q, want %q; unattached %t", what, got, want, g.IsUnattached())
		}
	}
	alone, err := gate.New([]gate.Policy{
		{Rule: order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/new.php"}, Create: &gate.Create{}},
		{Rule: order.Rule{Name: "pay", Methods: []string{"POST"}, Path: "/pay.php"}, Settle: &gate.Settle{}},
	}, gatetest.Silent{}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	for rule := -1; rule < 2; rule++ {
		alone.PassedHTTP(&gate.Decision{Rule: rule})
	}
	plain(alone, "ext_proc may still get it", 2*time.Second, "")
	plain(alone, "a settlement without ext_proc", time.Second, "pay")
	plain(alone, "the same", time.Second, "")
	alone.PassedHTTP(&gate.Decision{Rule: 1})
	plain(alone, "another", 0, "pay")
	alone.Arrived(-1, request("GET"), false)
	alone.PassedHTTP(&gate.Decision{Rule: 1})
	plain(alone, "an Envoy with ext_proc", 3*time.Second, "")

	if g.Seals(&gate.Decision{Rule: -1}) {
		t.Error("a request without a rule is sealed")
	}
}
