package filter

import (
	"context"
	"sync"
	"time"
)

// abandonedEvery is the least time between two doubts about abandoned calls: a client can
// abandon many, and where nothing clears their doubts the change log keeps each. Nobody has
// the answer of such a call, so nobody minds that the doubt comes a moment later.
const abandonedEvery = 500 * time.Millisecond

// abandoned are calls that nobody waits for any more, and that share a doubt.
type abandonedBatch struct {
	began time.Time // the first of them; zero: that is not known
	done  chan struct{}
	err   error // once told is closed
}

// abandonedCalls gathers calls until their doubt may be told of. The zero value is ready.
type abandonedCalls struct {
	mu   sync.Mutex
	next *abandonedBatch // nil: nobody waits
	last time.Time       // when a doubt was told of
}

// join returns the calls that share a doubt with one that began then, and whether it is
// the first of them, who has to tell of the doubt after a pause.
func (c *abandonedCalls) join(began time.Time) (calls *abandonedBatch, pause time.Duration, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		c.next = &abandonedBatch{began: began, done: make(chan struct{})}
		return c.next, max(0, time.Until(c.last.Add(abandonedEvery))), true
	}
	if began.Before(c.next.began) { // the zero time is before all
		c.next.began = began
	}
	return c.next, 0, false
}

// begin ends the gathering: the doubt is told of now.
func (c *abandonedCalls) closeBatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next, c.last = nil, time.Now()
}

// Abandoned says that nobody waits for a call any more that may have created an order, or
// may create it within [Options.Late]. It is Missed otherwise: the doubt is cleared by a
// reading of the sources that begins when that time is over. Calls that are abandoned
// within half a second share a doubt, whose reason is that of the first; it is told of at
// the end of that time, or of the first one's context.
func (f *Filter) Abandoned(ctx context.Context, reason string, began time.Time) error {
	calls, pause, first := f.abandoned.join(began)
	if !first {
		select {
		case <-calls.done:
			return calls.err
		case <-ctx.Done():
			return ctx.Err() // the first one tells of it
		}
	}
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	f.abandoned.closeBatch()
	calls.err = f.markIncomplete(ctx, pendingWrite{reason: reason, since: calls.began, mayBeCreated: true}, f.opts.CommitDelay)
	close(calls.done)
	return calls.err
}
