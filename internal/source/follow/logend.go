package follow

import (
	"context"
	"time"
)

// Mark is where the log of changes ended, P, when the database was asked. What was
// committed before Asked lies before End.
type LogEnd[P any] struct {
	Requested time.Time
	End       P
}

// maxMarks bounds what a follower that lags far behind remembers.
const maxLogEnds = 64

// Marks are the ends of the log that the follower has yet to reach. Its zero value
// is empty. It is for one goroutine.
//
// That nothing came for a while tells nothing: the connection may be dead, and so
// may be the database. Only an end that was asked for, and then reached, does.
type LogEnds[P any] struct{ pending []LogEnd[P] }

// Add remembers an end. A follower that is so far behind that many are waiting
// forgets the new one: to replace those that wait would have it never reach any.
func (m *LogEnds[P]) Add(mark LogEnd[P]) {
	if len(m.pending) < maxLogEnds {
		m.pending = append(m.pending, mark)
	}
}

// First returns the end that is the next to be reached.
func (m *LogEnds[P]) First() (mark LogEnd[P], ok bool) {
	if len(m.pending) == 0 {
		return mark, false
	}
	return m.pending[0], true
}

// Reached drops the ends that were reached and returns when the last of them was
// asked for. Ends must have been added in their order.
func (m *LogEnds[P]) PopReached(reached func(end P) bool) (requested time.Time, ok bool) {
	n := 0
	for n < len(m.pending) && reached(m.pending[n].End) {
		requested, ok = m.pending[n].Requested, true
		n++
	}
	m.pending = m.pending[:copy(m.pending, m.pending[n:])]
	return requested, ok
}

// Ask calls ask at once and then every so often, until ctx ends, and sends what it
// answers. An answer that is not taken within the time is replaced by the next. What
// goes wrong is told to failed, and tried again; an answer that takes longer than
// patience is wrong too.
func PollLogEnd[P any](ctx context.Context, every, timeout time.Duration, query func(context.Context) (P, error), to chan<- LogEnd[P], failed func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		// Before the question is sent: the answer holds for what was committed by now.
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
			select {
			case send <- LogEnd[P]{Requested: requested, End: end}:
				send = nil
			case <-tick.C:
				wait = false
			case <-ctx.Done():
				return
			}
		}
	}
}
