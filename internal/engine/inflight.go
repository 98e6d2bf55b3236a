package engine

import (
	"context"
	"fmt"
	"maps"
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
	mu     sync.Mutex
	limits map[string]flightLimits // by rule
	calls  int                     // all that count
	held   int                     // of these
	of     map[string]share        // by client, where that is known
	queue  []*flightWaiter         // the first first
}

// share is one client's part of what is counted.
type share struct{ calls, held, waiting int }

// flightLimits are those of a rule.
type flightLimits struct {
	calls     int // in flight, of all rules together
	perClient int // of these, of one client that is alone
}

// allow reports whether a client that has some of what is taken may take one more. A client
// may have as many as are free, where perClient is half of all, and a multiple or a part of
// that elsewhere. So each further client finds some of what the others left, and in the end
// they have equal parts. It is the dynamic threshold of A. K. Choudhury and E. L. Hahne,
// Dynamic Queue Length Thresholds for Shared-Memory Packet Switches (1998).
func (l flightLimits) allow(mine, taken int) bool {
	switch {
	case taken >= l.calls:
		return false
	case l.perClient >= l.calls: // one client may have all
		return true
	}
	return mine*(l.calls-l.perClient) < l.perClient*(l.calls-taken)
}

// waitersPerCall bounds how many may wait for each call that may be in flight. A burst of
// short calls is worked off within the wait; each waiter is some 20 kB of memory.
const waitersPerCall = 10

// waiters returns the limits of those who wait.
func (l flightLimits) waiters() flightLimits {
	return flightLimits{calls: waitersPerCall * l.calls, perClient: waitersPerCall * l.perClient}
}

// flightWaiter waits for a place.
type flightWaiter struct {
	rule, client string
	place        chan *flightPlace // has room for one
}

// flightPlace is that of one call. The methods of nil do nothing.
type flightPlace struct {
	of     *inFlight
	client string
	kept   bool // it is held
	over   bool
}

// limit puts the limits of rules in force, and wakes those who may begin now. Calls may still
// wait under a rule that is gone, which keeps its limits.
func (f *inFlight) limit(rules map[string]flightLimits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limits == nil {
		f.limits = make(map[string]flightLimits)
	}
	maps.Copy(f.limits, rules)
	f.wake()
}

// crowded reports whether a caller has to wait, or to be refused.
func (f *inFlight) crowded(rule, client string) bool {
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full(rule, client)
}

// full reports whether a call may not begin now. Those that wait do not matter: a place that
// one of them may have is given to it at once.
func (f *inFlight) full(rule, client string) bool {
	return !f.limits[rule].allow(f.of[client].calls, f.calls)
}

// await waits until a call may begin, or until the given time. The place is nil if it did
// not have to wait: begin follows when it has its lock. The errors wrap
// [gate.ErrOverloaded], but for the end of ctx.
func (f *inFlight) await(ctx context.Context, rule string, until time.Time, client string) (*flightPlace, error) {
	if f == nil {
		return nil, nil
	}
	w, err := f.enqueue(rule, time.Until(until), client)
	if w == nil {
		return nil, err
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case place := <-w.place:
		return place, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("%w: the wait has ended", gate.ErrOverloaded)
	}
	f.dequeue(w).end()
	return nil, err
}

// enqueue returns nil, without an error, if the call may begin.
func (f *inFlight) enqueue(rule string, wait time.Duration, client string) (*flightWaiter, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mine, limits := f.of[client], f.limits[rule]
	switch {
	case !f.full(rule, client):
		return nil, nil
	case wait <= 0:
		return nil, fmt.Errorf("%w: there are %d, and %d of this client", gate.ErrOverloaded, f.calls, mine.calls)
	case mine.held > 0 && !limits.allow(mine.held, f.held):
		return nil, fmt.Errorf("%w: %d of this client have ended without an answer, and are held", gate.ErrOverloaded, mine.held)
	case !limits.waiters().allow(mine.waiting, len(f.queue)):
		return nil, fmt.Errorf("%w: there are %d, and %d wait, %d of this client", gate.ErrOverloaded, f.calls, len(f.queue), mine.waiting)
	}
	w := &flightWaiter{rule: rule, client: client, place: make(chan *flightPlace, 1)}
	f.queue = append(f.queue, w)
	f.count(client, share{waiting: 1})
	return w, nil
}

// dequeue takes a waiter out of the queue. The place is one that it was given meanwhile.
func (f *inFlight) dequeue(w *flightWaiter) *flightPlace {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.queue, w); i >= 0 {
		f.queue = slices.Delete(f.queue, i, i+1)
		f.count(w.client, share{waiting: -1})
		return nil
	}
	return <-w.place
}

// begin counts a call that has its lock; nil: there are too many.
func (f *inFlight) begin(rule, client string, nested bool) *flightPlace {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !nested && f.full(rule, client) {
		return nil
	}
	return f.take(client)
}

func (f *inFlight) take(client string) *flightPlace {
	f.calls++
	f.count(client, share{calls: 1})
	return &flightPlace{of: f, client: client}
}

// count adds to the share of a client. One that is not known has none.
func (f *inFlight) count(client string, change share) {
	if client == "" {
		return
	}
	mine := f.of[client]
	mine.calls += change.calls
	mine.held += change.held
	mine.waiting += change.waiting
	if mine == (share{}) {
		delete(f.of, client)
		return
	}
	if f.of == nil {
		f.of = make(map[string]share)
	}
	f.of[client] = mine
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
	f.count(p.client, share{held: 1})
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.held--
		f.count(p.client, share{held: -1})
		p.free()
	})
}

func (p *flightPlace) free() {
	if p.over {
		return
	}
	p.over = true
	p.of.calls--
	p.of.count(p.client, share{calls: -1})
	p.of.wake()
}

// wake gives places to those who may begin now.
func (f *inFlight) wake() {
	for i := f.next(); i >= 0; i = f.next() {
		w := f.queue[i]
		f.queue = slices.Delete(f.queue, i, i+1)
		f.count(w.client, share{waiting: -1})
		w.place <- f.take(w.client)
	}
}

// next returns the index of the first waiter, among those whose clients have the fewest calls
// in flight, that may begin; -1 if none may. Rules may have limits of their own.
func (f *inFlight) next() int {
	next := -1
	for i, w := range f.queue {
		if !f.full(w.rule, w.client) && (next < 0 || f.of[w.client].calls < f.of[f.queue[next].client].calls) {
			next = i
		}
	}
	return next
}

// counts returns how many calls are in flight, held ones among them, how many of these are
// held, and how many callers wait.
func (f *inFlight) counts() (calls, held, waiting int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.held, len(f.queue)
}
