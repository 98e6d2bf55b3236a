package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

func TestSettle(t *testing.T) {
	known := &gate.Response{Details: "via_upstream", Attempts: 1}
	timeout := &gate.Response{Details: "response_timeout", Attempts: 1}
	tests := []struct {
		name    string
		events  func(context.Context, *gate.Call)
		did     []string
		counted []string
	}{
		{"answered", func(ctx context.Context, c *gate.Call) {
			gatetest.Settle(ctx, c)
			gatetest.Answer(c, known)
			gatetest.Finish(c)
			gatetest.End(c)
		}, []string{"acquire 42", "release"}, []string{"2 settle acquired", "2 closed known"}},
		{"answered in part", func(ctx context.Context, c *gate.Call) {
			gatetest.Settle(ctx, c)
			gatetest.Answer(c, known)
			gatetest.End(c)
		}, []string{"acquire 42", "hold: outcome unknown: " + gate.AnswerCutOff}, []string{"2 settle acquired", "2 closed unknown"}},
		{"answered twice", func(ctx context.Context, c *gate.Call) {
			gatetest.Settle(ctx, c)
			gatetest.Answer(c, known)
			gatetest.Answer(c, timeout)
			gatetest.Finish(c)
			gatetest.End(c)
		}, []string{"acquire 42", "hold: outcome unknown: " + gate.AnswerCutOff}, []string{"2 settle acquired", "2 closed unknown"}},
		{"timed out", func(ctx context.Context, c *gate.Call) {
			gatetest.Settle(ctx, c)
			gatetest.Answer(c, timeout)
			gatetest.End(c)
		}, []string{"acquire 42", "hold: outcome unknown: response_timeout"}, []string{"2 settle acquired", "2 closed unknown"}},
		{"client leaves while it runs", func(ctx context.Context, c *gate.Call) {
			gatetest.Settle(ctx, c)
			gatetest.End(c)
		}, []string{"acquire 42", "hold: outcome unknown: the client or Envoy ended the call before an answer"},
			[]string{"2 settle acquired", "2 closed unknown"}},
		{"client leaves while it waits", func(ctx context.Context, c *gate.Call) {
			g := gatetest.Acquire(ctx, c)
			gatetest.End(c)
			gatetest.Granted(c, g)
		}, []string{"acquire 42", "release"}, []string{"2 closed not_forwarded"}},
		{"ended because its lease ends", func(ctx context.Context, c *gate.Call) {
			gatetest.Settle(ctx, c)
			c.On(gate.Event{Kind: gate.LeaseLost})
			gatetest.End(c)
		}, []string{"acquire 42", "hold: outcome unknown: the call was ended because its lease ended first"},
			[]string{"2 settle acquired", "2 settle lost", "2 closed unknown"}},
		{"could not be passed on", func(ctx context.Context, c *gate.Call) {
			gatetest.Settle(ctx, c)
			c.On(gate.Event{Kind: gate.Unsent})
			gatetest.End(c)
		}, []string{"acquire 42", "release"}, []string{"2 settle acquired", "2 closed not_forwarded"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, false)
			c := settleCall(b)
			tt.events(t.Context(), c)
			if diff := cmp.Diff(tt.did, b.lock.Journal.Lines()); diff != "" {
				t.Error("did (-want +got):\n" + diff)
			}
			if diff := cmp.Diff(tt.counted, b.record.Lines()); diff != "" {
				t.Error("counted (-want +got):\n" + diff)
			}
		})
	}
}

func TestSettleDenied(t *testing.T) {
	tests := []struct {
		name    string
		err     error
		observe bool
		verdict gate.Verdict
		want    gate.Move
	}{
		{"busy", fmt.Errorf("lock: %w", gate.ErrBusy), false, gate.VerdictBusy, gate.Refuse},
		{"redis lost", errors.New("connection refused"), false, gate.VerdictUnavailable, gate.Refuse},
		{"busy, observed", gate.ErrBusy, true, gate.VerdictBusy, gate.PassRequest},
		{"left, and the call does not know yet", context.Canceled, false, gate.VerdictNone, gate.Nothing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.observe)
			b.lock.Err = tt.err
			c := settleCall(b)
			if step := gatetest.Settle(t.Context(), c); step.Do != tt.want {
				t.Errorf("step %+v", step)
			}
			if c.Decision.Verdict != tt.verdict {
				t.Errorf("verdict %s, want %s", c.Decision.Verdict, tt.verdict)
			}
			gatetest.End(c)
			if diff := cmp.Diff([]string{"acquire 42"}, b.lock.Journal.Lines()); diff != "" {
				t.Error("did (-want +got):\n" + diff)
			}
		})
	}
}

// TestObservedSettleShowsNoLease checks that observing takes a lock, to count,
// but leaves the request as it came.
func TestObservedSettleShowsNoLease(t *testing.T) {
	b := newBench(t, true)
	c := settleCall(b)
	if step := gatetest.Settle(t.Context(), c); step.Do != gate.PassRequest || step.Set != nil {
		t.Errorf("step %+v", step)
	}
}
