package gate_test

import (
	"slices"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestScreening has forms that may make a request one of a lookup: the
// adapters that read bodies need them, and Screen does without.
func TestScreening(t *testing.T) {
	b := newBench(t, false)
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", OtherMethods: true,
			IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}},
		},
		Lookup: &gate.Lookup{Filter: b.filter, OnNotFound: func(string) {}},
	}}, b.record)
	for _, tt := range []struct {
		target, body string
		refused      bool
	}{
		{"/orders/2", "note=x&_method=PUT", false},
		{"/orders/2", "note=x&_method=GET", true},
		{"/orders/1", "_method=GET", true},
		{"/index.php", "action=login", false},
		{"/index.php", "do=show&id=2", true},
		{"/?do=show&id=2", "a=b", true},
	} {
		req := order.Request{Method: "POST", Target: tt.target, Header: order.HeaderList{{"content-type", "application/x-www-form-urlencoded"}}}
		inQuery := tt.target == "/?do=show&id=2" // which is enough
		if d := g.Screen(t.Context(), req); d.Refused != inQuery || !inQuery && d != (gate.Decision{Rule: -1}) {
			t.Errorf("%s %s: without its body: %+v", tt.target, tt.body, d)
		}
		if result, call := g.TryScreen(req), g.Open(req); result.NeedsBody == inQuery || call.NeedsBody == inQuery || call.NeedsAnswer {
			t.Errorf("%s %s: %+v, %+v", tt.target, tt.body, result, call)
		}
		req.Body, req.BodyState = []byte(tt.body), order.BodyComplete
		d, result, call := g.Screen(t.Context(), req), g.TryScreen(req), g.Open(req)
		if d.Refused != tt.refused || result.Decision != d || call.Decision.Refused != tt.refused || call.NeedsAnswer || call.NeedsBody {
			t.Errorf("%s %s: %+v, %+v, %+v", tt.target, tt.body, d, result, call)
		}
		if !tt.refused && (d.Rule >= 0 || call.Decision.Rule >= 0) {
			t.Errorf("%s %s is under a rule: %+v, %+v", tt.target, tt.body, d, call.Decision)
		}
	}
	if slices.Contains(b.record.Lines(), "0 lookup unknown") {
		t.Errorf("what is under no rule is counted as a lookup: %q", b.record.Lines())
	}
}

// TestObservedScreening passes what would be refused, and learns nothing from its answer.
func TestObservedScreening(t *testing.T) {
	b := newBench(t, true)
	req := order.Request{Method: "POST", Target: "/index.php?do=settle&id=2"}
	if d := b.gate.Screen(t.Context(), req); d.Refused || d.Verdict != gate.VerdictAmbiguous {
		t.Errorf("screened: %+v", d)
	}
	if call := b.gate.Open(req); call.Decision.Refused || call.NeedsAnswer || call.NeedsLock {
		t.Errorf("opened: %+v", call)
	}
}
