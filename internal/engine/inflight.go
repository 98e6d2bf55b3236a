package engine

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// inFlight counts the settlements that the backend may have to work on: those that were
// forwarded and have not ended, and those that are held. A held lock protects an order only
// if the backend comes to the call before the hold ends, so the number is bounded: the rest
// waits here, before it has a lock.
//
// A call counts from the moment at which it has its lock. Callers who wait for a lock do
// not: a crowd at one order must not keep out the other orders. A caller who had to wait
// for a place is the exception. It counts from then on, so that a place which was given to
// it is not lost when it does not get its lock.
//
// The zero value is empty; nil counts nothing. It is safe for concurrent use.
type inFlight struct {
	mu    sync.Mutex
	calls int             // all that count
	held  int             // of these
	of    map[string]int  // held calls, by client
	queue []*flightWaiter // the first first
}

// flightLimits are those of a rule.
type flightLimits struct {
	calls     int // in flight, of all rules together
	perClient int // held, of one client
}

// waitersPerCall bounds how many may wait for each call that may be in flight. A burst of
// short calls is worked off within the wait; each waiter is some 20 kB of memory.
const waitersPerCall = 10

// flightWaiter waits for a place.
type flightWaiter struct {
	limits flightLimits
	client string
	place  chan *flightPlace // has room for one
}

// flightPlace is that of one call. The methods of nil do nothing.
type flightPlace struct {
	of     *inFlight
	client string
	kept   bool // it is held
	over   bool
}

// crowded reports whether a caller has to wait, or to be refused.
func (f *inFlight) crowded(limits flightLimits, client string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.queue) > 0 || f.calls >= limits.calls || f.overdrawn(limits, client)
}

// overdrawn reports whether a client has its share of held calls. Which client a call is
// from is not always known.
func (f *inFlight) overdrawn(limits flightLimits, client string) bool {
	return client != "" && f.of[client] >= limits.perClient
}

// await waits until a call may begin, for as long as the wait allows. The place is nil if it
// did not have to wait: begin follows when it has its lock. The errors wrap
// [gate.ErrOverloaded], but for the end of ctx.
func (f *inFlight) await(ctx context.Context, limits flightLimits, wait time.Duration, client string) (*flightPlace, error) {
	if f == nil {
		return nil, nil
	}
	w, err := f.enqueue(limits, client)
	if w == nil {
		return nil, err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case place := <-w.place:
		return place, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("%w: there are %d, and none has ended for %v", gate.ErrOverloaded, limits.calls, wait)
	}
	f.dequeue(w).end()
	return nil, err
}

// enqueue returns nil, without an error, if nobody has to wait.
func (f *inFlight) enqueue(limits flightLimits, client string) (*flightWaiter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.overdrawn(limits, client):
		return nil, fmt.Errorf("%w: %d of this client have ended without an answer, and are held", gate.ErrOverloaded, f.of[client])
	case len(f.queue) == 0 && f.calls < limits.calls:
		return nil, nil
	case len(f.queue) >= waitersPerCall*limits.calls:
		return nil, fmt.Errorf("%w: there are %d, and %d wait", gate.ErrOverloaded, f.calls, len(f.queue))
	}
	w := &flightWaiter{limits: limits, client: client, place: make(chan *flightPlace, 1)}
	f.queue = append(f.queue, w)
	return w, nil
}

// dequeue takes a waiter out of the queue. The place is one that it was given meanwhile.
func (f *inFlight) dequeue(w *flightWaiter) *flightPlace {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.queue, w); i >= 0 {
		f.queue = slices.Delete(f.queue, i, i+1)
		return nil
	}
	return <-w.place
}

// begin counts a call that has its lock; nil: there are too many.
func (f *inFlight) begin(limits flightLimits, client string, nested bool) *flightPlace {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !nested && (f.calls >= limits.calls || f.overdrawn(limits, client)) {
		return nil
	}
	return f.take(client)
}

func (f *inFlight) take(client string) *flightPlace {
	f.calls++
	return &flightPlace{of: f, client: client}
}

// end gives the place to the next one, unless it is kept.
func (p *flightPlace) end() {
	if p == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.kept {
		p.free()
	}
}

// keep gives the place to the next one when the time is over.
func (p *flightPlace) keep(d time.Duration) {
	if p == nil {
		return
	}
	f := p.of
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.kept || p.over {
		return
	}
	p.kept = true
	f.held++
	if f.of == nil {
		f.of = make(map[string]int)
	}
	f.of[p.client]++
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held--
		if f.of[p.client]--; f.of[p.client] == 0 {
			delete(f.of, p.client)
		}
		p.free()
	})
}

// free wakes those who may begin now. Rules may have limits of their own.
func (p *flightPlace) free() {
	if p.over {
		return
	}
	p.over = true
	f := p.of
	f.calls--
	f.queue = slices.DeleteFunc(f.queue, func(w *flightWaiter) bool {
		begins := f.calls < w.limits.calls
		if begins {
			w.place <- f.take(w.client)
		}
		return begins
	})
}

// counts returns how many calls are in flight, held ones among them, how many of these are
// held, and how many callers wait.
func (f *inFlight) counts() (calls, held, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.held, len(f.queue)
}
