package envoymodule

import (
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

// TestFaultsAnywhere has faults occur within a conversation, several in succession too: Envoy lives, nothing
// stalls, no settlement passes without its lock, and no lease is left.
func TestFaultsAnywhere(t *testing.T) {
	b := newBench(t, Options{AnswerDelay: 50 * time.Millisecond})
	rapid.Check(t, func(rt *rapid.T) {
		c := gatetest.Conversations(rt)
		first := rapid.Int32Range(1, 12).Draw(rt, "first")
		last := first + rapid.Int32Range(0, 3).Draw(rt, "more")
		s := c.NewStage(t)
		var n atomic.Int32
		s.FaultAt(func(string) {
			if i := n.Add(1); first <= i && i <= last {
				panic("a fault")
			}
		})
		b.adapter.Use(s.Gate)
		e, stalls := b.converseInFaults(&c, s)
		b.end(e)
		if stalls == "" && !b.within(long, func() bool { return s.Lock.Open() == 0 }) {
			stalls = "the lease"
		}
		if stalls != "" {
			rt.Fatalf("%s stays: %+v %+v\n%s", stalls, c, c.Answer, s.Report(int(e.answer)))
		}
	})
}

// long is how long something may take before it counts as stalled.
const long = 5 * time.Second

// converseInFaults plays Envoy, until the stream ends. It returns what stalls.
func (b *bench) converseInFaults(c *gatetest.Conversation, s *gatetest.Stage) (e *envoy, stalls string) {
	e, do := b.arrive(c)
	if do == Wait && c.Grant == "" {
		return e, ""
	}
	if c.IsLocked() {
		s.Decide(c)
	}
	if !b.within(long, func() bool { return do == PassRequest || e.continued == 1 || e.answer != 0 }) {
		return e, "the request"
	}
	if e.answer != 0 || c.Answer == nil {
		return e, ""
	}
	if c.IsLocked() && s.Lock.Journal.Short() == "" {
		return e, "a settlement without a lock"
	}
	lose := func() {}
	if c.Lost != "" {
		lose = s.Lock.Lose
	}
	if do = b.respond(e, c, lose); c.Answer.End != "" && (do == Wait || do == Read) &&
		!b.within(long, func() bool { return e.response > 0 || e.answer != 0 || e.stream == nil }) {
		return e, "the answer"
	}
	return e, ""
}
