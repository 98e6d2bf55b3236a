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
	pass := func(what string, rule int, method string, requests int, want bool) {
		t.Helper()
		for range requests {
			seal, attached := g.Passed(&gate.Decision{Rule: rule, Observed: rule == 1}, request(method), false)
			if attached != want || seal != (rule != 1) {
				t.Fatalf("%s: attached %t, sealed %t", what, attached, seal)
			}
		}
	}
	pass("at first", 0, "POST", 100, true)
	now = now.Add(3 * time.Second)
	if g.IsUnattached() {
		t.Error("unattached at first")
	}
	gone := func() {
		t.Helper()
		if seal, attached := g.Passed(&gate.Decision{Rule: 0}, request("POST"), true); !seal || !attached {
			t.Errorf("a client has left: attached %t, sealed %t", attached, seal)
		}
	}
	gone()
	pass("after a client has left", 0, "POST", 100, true)
	now = now.Add(3 * time.Second)
	pass("none has arrived", 0, "POST", 1, false)
	if !g.IsUnattached() {
		t.Error("not unattached")
	}
	pass("reads have another route", 0, "GET", 3, true)
	g.Arrived(0, request("POST"), false)
	pass("one that has not passed ext_authz, or behind it", 0, "POST", 1, false)
	g.Arrived(0, request("POST"), true)
	if g.IsUnattached() {
		t.Error("unattached after one has arrived")
	}
	pass("one has arrived", 0, "POST", 20, true)
	now = now.Add(10 * time.Second)
	pass("none for a while", 0, "POST", 1, false)
	g.Arrived(0, request("POST"), true)
	pass("again", 0, "POST", 1, true)

	pass("observed", 1, "POST", 4, true)
	now = now.Add(3 * time.Second)
	pass("none has arrived", 1, "POST", 1, false)
	g.Arrived(1, request("POST"), false)
	pass("it is not sealed", 1, "POST", 1, true)

	// Envoy may have a route for one page of a list alone.
	for _, page := range []string{"a/b", "c/d"} {
		target = "/index.php?call=x&lang=c/d&route=" + page
		pass("each page", 2, "POST", 3, true)
	}
	g.Arrived(2, request("POST"), true)
	now = now.Add(3 * time.Second)
	pass("this page has arrived", 2, "POST", 4, true)
	target = "/index.php?route=a/b&call=x"
	pass("this one has not", 2, "POST", 1, false)

	if seal, _ := g.Passed(&gate.Decision{Rule: -1}, request("POST"), false); seal {
		t.Error("a request without a rule is sealed")
	}
}
