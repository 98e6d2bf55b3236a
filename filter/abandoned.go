package filter

import (
	"context"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/wait"
)

// abandonedEvery is the least time between two doubts about abandoned calls. A client can
// abandon many calls, and the change log keeps each doubt until it is cleared. No client waits
// for the answer of an abandoned call, so the delay does no harm.
const abandonedEvery = 500 * time.Millisecond

// abandonedBatch is a set of abandoned calls that share a doubt.
type abandonedBatch struct {
	began time.Time // start of the first call; zero: unknown
	done  chan struct{}
	err   error // valid once done is closed
}

// abandonedCalls collects calls until the next doubt is due. The zero value is ready.
type abandonedCalls struct {
	mu   sync.Mutex
	next *abandonedBatch // nil: no call waits
	last time.Time       // time of the last doubt
}

// join adds a call to the present batch. The first caller of a batch gets a pause, and records
// the doubt after it.
func (c *abandonedCalls) join(began time.Time) (calls *abandonedBatch, pause time.Duration, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &abandonedBatch{began: began, done: make(chan struct{})}
		return c.next, max(0, time.Until(c.last.Add(abandonedEvery))), true
	}
	if began.Before(c.next.began) { // the zero time is before all others
		c.next.began = began
	}
	return c.next, 0, false
}

// closeBatch ends the collection: its doubt is recorded now.
func (c *abandonedCalls) closeBatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.last = nil, time.Now()
}

// Abandoned records a call without an answer: it may have created an order, or may create it
// within [Options.CommitDelay]. Otherwise it is MarkIncomplete. Only a reload that begins after
// that time clears the doubt. Calls within half a second share a doubt, with the reason of the
// first call. The doubt is recorded at the end of that time, or of the first call's context.
func (f *Filter) Abandoned(ctx context.Context, reason string, began time.Time) error {
	calls, pause, first := f.abandoned.join(began)
	if !first {
		select {
		case <-calls.done:
			return calls.err
		case <-ctx.Done():
			return ctx.Err() // the first caller records it
		}
	}
	_ = wait.For(ctx, pause) // or less, if ctx ends
	f.abandoned.closeBatch()
	calls.err = f.markIncomplete(ctx, pendingWrite{reason: reason, since: calls.began, mayBeCreated: true}, f.opts.CommitDelay)
	close(calls.done)
	return calls.err
}
