package follow

import (
	"context"
	"time"
)

// LogEnd is the end of the log when the database was queried. A transaction committed before
// Requested lies before End.
type LogEnd[P any] struct {
	Requested time.Time
	End       P
}

// maxLogEnds bounds the ends that a lagging follower remembers.
const maxLogEnds = 64

// LogEnds are the ends of the log that the follower has yet to reach. Its zero value is empty. It
// is for one goroutine.
//
// A silent connection proves nothing: it may be dead, and so may the database. Only an end that was
// queried, and then reached, proves that no change was missed.
type LogEnds[P any] struct{ pending []LogEnd[P] }

// Add adds an end. If there are too many, it drops the new one: a lagging follower would never
// reach an end that is always replaced.
func (m *LogEnds[P]) Add(end LogEnd[P]) {
	if len(m.pending) < maxLogEnds {
		m.pending = append(m.pending, end)
	}
}

// First returns the next end to reach.
func (m *LogEnds[P]) First() (end LogEnd[P], ok bool) {
	if len(m.pending) == 0 {
		return end, false
	}
	return m.pending[0], true
}

// PopReached removes the ends that were reached, and returns when the last of them was requested.
// Add them in order.
func (m *LogEnds[P]) PopReached(reached func(end P) bool) (requested time.Time, ok bool) {
	n := 0
	for n < len(m.pending) && reached(m.pending[n].End) {
		requested, ok = m.pending[n].Requested, true
		n++
	}
	m.pending = m.pending[:copy(m.pending, m.pending[n:])]
	return requested, ok
}

// PollLogEnd calls query at once, then at an interval and after each value of now, until ctx ends,
// and sends the results. A result that is not received within the interval is replaced by the next.
// It passes errors to failed and continues. A query that takes longer than timeout is an error.
func PollLogEnd[P any](ctx context.Context, every, timeout time.Duration, now <-chan struct{}, query func(context.Context) (P, error), to chan<- LogEnd[P], failed func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		// Before the query: the result covers transactions committed by now.
		requested := time.Now()
		limited, cancel := context.WithTimeout(ctx, timeout)
		end, err := query(limited)
		cancel()
		send := to
		if err != nil {
			if ctx.Err() == nil {
				failed(err)
			}
			send = nil
		}
		for wait := true; wait; {
			again := now
			if send != nil {
				again = nil // or a slow receiver would get no result
			}
			select {
			case send <- LogEnd[P]{Requested: requested, End: end}:
				send = nil
			case <-again:
				wait = false
			case <-tick.C:
				wait = false
			case <-ctx.Done():
				return
			}
		}
	}
}
