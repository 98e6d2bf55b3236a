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
	}, gatetest.Silent{}, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	pass := func(what string, rule int, method string, requests int, want gate.Attached) {
		t.Helper()
		for range requests {
			seal, attached := g.Passed(&gate.Decision{Rule: rule, Observed: rule == 1}, method)
			if attached != want || seal != (rule == 0) {
				t.Fatalf("%s: attached %d, sealed %t", what, attached, seal)
			}
		}
	}
	pass("at first", 0, "POST", 100, gate.AttachedAsFarAsKnown)
	now = now.Add(3 * time.Second)
	pass("none has arrived", 0, "POST", 1, gate.AttachedNever)
	pass("reads have another route", 0, "GET", 3, gate.AttachedAsFarAsKnown)
	g.Arrived(0, "POST", false)
	pass("one that has not passed ext_authz, or behind it", 0, "POST", 1, gate.AttachedNever)
	g.Arrived(0, "POST", true)
	pass("one has arrived", 0, "POST", 20, gate.AttachedAsFarAsKnown)
	now = now.Add(10 * time.Second)
	pass("none for a while", 0, "POST", 1, gate.AttachedBefore)
	g.Arrived(0, "POST", true)
	pass("again", 0, "POST", 1, gate.AttachedAsFarAsKnown)

	pass("observed", 1, "POST", 4, gate.AttachedAsFarAsKnown)
	now = now.Add(3 * time.Second)
	pass("none has arrived", 1, "POST", 1, gate.AttachedNever)
	g.Arrived(1, "POST", false)
	pass("it is not sealed", 1, "POST", 1, gate.AttachedAsFarAsKnown)

	if seal, _ := g.Passed(&gate.Decision{Rule: -1}, "POST"); seal {
		t.Error("a request without a rule is sealed")
	}
}
