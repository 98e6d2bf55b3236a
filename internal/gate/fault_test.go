package gate_test

import (
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestFault has a fault of ordergate occur within a call. A lock that the backend may need is held, one
// that is granted later is released, and an order that may exist leaves a mark.
func TestFault(t *testing.T) {
	for name, tt := range map[string]struct {
		path         string
		at           string // "grant": the fault is there. "crossed": the lock is granted, and the call learns of it after the fault
		lock, filter string
	}{
		"while the lock is waited for": {"/orders/42/settle", "crossed", "acquire 42, release", ""},
		"when the lock is granted":     {"/orders/42/settle", "grant", "acquire 42, hold", ""},
		"at the backend":               {"/orders/42/settle", "", "acquire 42, hold", ""},
		"in the answer to a new order": {"/orders", "", "", "abandoned"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false)
			c := b.gate.Open(order.Request{Method: "POST", Target: tt.path, BodyState: order.BodyComplete})
			fault := func(e gate.Event) {
				defer func() { _ = recover() }()
				c.On(e)
				t.Error("there is no fault")
			}
			grant := make(chan gate.Event, 1)
			if step := c.On(gate.Event{Kind: gate.Opened}); step.Work == gate.Acquire {
				c.Start(t.Context(), step.Work, func(e gate.Event) { grant <- e })
				switch granted := <-grant; tt.at {
				case "grant":
					granted.Grant.Lease = faultyLease{granted.Grant.Lease}
					fault(granted)
				case "crossed":
					grant <- granted
				default:
					c.On(granted)
				}
			}
			if tt.at != "grant" {
				fault(gate.Event{Kind: gate.ResponseHeaders}) // without what it has to have
			}
			if tt.at == "crossed" {
				c.On(<-grant)
			}
			known := &gate.Response{Status: 201, Details: "via_upstream", Attempts: 1, AttemptHeader: -1, Ended: true}
			if step := gatetest.Answer(c, known); step.Do != gate.PassResponse || step.Work != gate.NoWork {
				t.Errorf("the answer does not go on: %+v", step)
			}
			_ = learned(t, c, gatetest.End(c))
			if got := b.lock.Journal.Short(); got != tt.lock {
				t.Errorf("the lock: %q, want %q", got, tt.lock)
			}
			if got := b.filter.Journal.Short(); got != tt.filter {
				t.Errorf("the filter: %q, want %q", got, tt.filter)
			}
		})
	}
}

// faultyLease is a lease with a fault.
type faultyLease struct{ gate.Lease }

func (faultyLease) Ended() bool { panic("a fault") }

// TestFaultInStore has a fault occur while an answer is stored: the answer goes on, and the lock is held.
func TestFaultInStore(t *testing.T) {
	lock := &gatetest.Lock{Journal: &gatetest.Journal{}}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}}},
		Settle: &gate.Settle{Lock: lock, Once: &gate.Once{Name: "n", MaxBody: 100, Stores: func(int) bool { return true }}},
	}}, gatetest.Silent{})
	c := settleCall(&bench{gate: g})
	gatetest.Settle(t.Context(), c)
	lock.Journal.Fault = func(event string) {
		if event == "store n" {
			panic("a fault")
		}
	}
	step := gatetest.Answer(c, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, AttemptHeader: -1, Ended: true, Header: order.HeaderList{}})
	if step = gatetest.Work(t.Context(), c, step); step.Do != gate.PassResponse {
		t.Errorf("the answer does not go on: %+v", step)
	}
	if got := lock.Journal.Short(); got != "acquire 42, hold" {
		t.Errorf("the lock: %q", got)
	}
}
