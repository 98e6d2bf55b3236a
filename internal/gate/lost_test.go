package gate_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

// TestLeaseLost loses the lease of a call before and during its answer. The time that the
// call has run is no time that a decision took.
func TestLeaseLost(t *testing.T) {
	known := &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, AttemptHeader: -1}
	for name, tt := range map[string]struct {
		observe  bool
		answered bool
		maximum  bool
		refuse   bool
	}{
		"before the answer": {refuse: true},
		"during the answer": {answered: true},
		"at its maximum":    {answered: true, maximum: true, refuse: true},
		"observed":          {observe: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, tt.observe)
				c := settleCall(b)
				if gatetest.Settle(t.Context(), c).Do != gate.PassRequest {
					t.Fatal("it is not forwarded")
				}
				if tt.answered {
					gatetest.Answer(c, known)
				}
				if !tt.maximum {
					b.lock.Lose()
				}
				time.Sleep(time.Hour) // of the bubble
				if got := c.On(gate.Event{Kind: gate.LeaseLost}).Do == gate.Refuse; got != tt.refuse {
					t.Errorf("refused: %t, want %t", got, tt.refuse)
				}
				if lost := slices.Contains(b.record.Lines(), "2 settle lost"); lost != tt.refuse {
					t.Errorf("counted as lost: %t, want %t", lost, tt.refuse)
				}
				if b.record.Took() != 0 {
					t.Errorf("decisions took %v", b.record.Took())
				}
				if c.On(gate.Event{Kind: gate.LeaseLost}).Do == gate.Refuse {
					t.Error("it is refused twice")
				}
				gatetest.End(c)
			})
		})
	}
}

// TestGrantedTooLate has the lease of a call end after it was granted, and before the call is
// forwarded: another call may have settled the order by then.
func TestGrantedTooLate(t *testing.T) {
	b := newBench(t, false)
	c := settleCall(b)
	g := gatetest.Acquire(t.Context(), c)
	if g.Err != nil {
		t.Fatal(g.Err)
	}
	b.lock.Lose()
	if step := gatetest.Granted(c, g); step.Do == gate.PassRequest || step.Do != gate.Refuse || c.Decision.Verdict != gate.VerdictUnavailable {
		t.Errorf("%+v, %v", step, c.Decision.Verdict)
	}
	gatetest.End(c)
	if lines := b.lock.Journal.Lines(); !slices.Contains(lines, "release") {
		t.Errorf("the lock: %q", lines)
	}
}
