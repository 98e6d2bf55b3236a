package follow

import (
	"context"
	"time"
)

// Mark is where the log of changes ended, P, when the database was asked. What was
// committed before Asked lies before End.
type Mark[P any] struct {
	Asked time.Time
	End   P
}

// maxMarks bounds what a follower that lags far behind remembers.
const maxMarks = 64

// Marks are the ends of the log that the follower has yet to reach. Its zero value
// is empty. It is for one goroutine.
//
// That nothing came for a while tells nothing: the connection may be dead, and so
// may be the database. Only an end that was asked for, and then reached, does.
type Marks[P any] struct{ waiting []Mark[P] }

// Add remembers an end. A follower that is so far behind that many are waiting
// forgets the new one: to replace those that wait would have it never reach any.
func (m *Marks[P]) Add(mark Mark[P]) {
	if len(m.waiting) < maxMarks {
		m.waiting = append(m.waiting, mark)
	}
}

// First returns the end that is the next to be reached.
func (m *Marks[P]) First() (mark Mark[P], ok bool) {
	if len(m.waiting) == 0 {
		return mark, false
	}
	return m.waiting[0], true
}

// Reached drops the ends that were reached and returns when the last of them was
// asked for. Ends must have been added in their order.
func (m *Marks[P]) Reached(reached func(end P) bool) (asked time.Time, ok bool) {
	n := 0
	for n < len(m.waiting) && reached(m.waiting[n].End) {
		asked, ok = m.waiting[n].Asked, true
		n++
	}
	m.waiting = m.waiting[:copy(m.waiting, m.waiting[n:])]
	return asked, ok
}

// Ask calls ask at once and then every so often, until ctx ends, and sends what it
// answers. An answer that is not taken within the time is replaced by the next. What
// goes wrong is told to failed, and tried again; an answer that takes longer than
// patience is wrong too.
func Ask[P any](ctx context.Context, every, patience time.Duration, ask func(context.Context) (P, error), to chan<- Mark[P], failed func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		// Before the question is sent: the answer holds for what was committed by now.
		asked := time.Now()
		limited, cancel := context.WithTimeout(ctx, patience)
		end, err := ask(limited)
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
			case send <- Mark[P]{Asked: asked, End: end}:
				send = nil
			case <-tick.C:
				wait = false
			case <-ctx.Done():
				return
			}
		}
	}
}
