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
		crossed      bool // the lock is granted, and the call learns of it after the fault
		lock, filter string
	}{
		"while the lock is waited for": {"/orders/42/settle", true, "acquire 42, release", ""},
		"at the backend":               {"/orders/42/settle", false, "acquire 42, hold", ""},
		"in the answer to a new order": {"/orders", false, "", "abandoned"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, false)
			c := b.gate.Open(order.Request{Method: "POST", Target: tt.path, BodyState: order.BodyComplete})
			grant := make(chan gate.Event, 1)
			if step := c.On(gate.Event{Kind: gate.Opened}); step.Work == gate.Acquire {
				c.Start(t.Context(), step.Work, func(e gate.Event) { grant <- e })
				if granted := <-grant; tt.crossed {
					grant <- granted
				} else {
					c.On(granted)
				}
			}
			func() {
				defer func() { _ = recover() }()
				c.On(gate.Event{Kind: gate.ResponseHeaders}) // without what it has to have
				t.Error("there is no fault")
			}()
			if tt.crossed {
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
