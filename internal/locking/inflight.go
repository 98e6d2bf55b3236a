package locking

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// inFlight counts the settlements that may occupy the backend: those that were forwarded and
// have not ended, and those that are held. A held lock protects an order only if the backend
// reaches the call before the hold ends. So the number is bounded, and the other calls wait
// here before they have a lock.
//
// A call counts as soon as it has its lock. Callers that wait for a lock do not count: many
// calls of one order must not block other orders. The exception is a caller that had to wait
// for a slot. It counts from then on, since it has its slot before its lock.
//
// The zero value is empty; nil counts nothing. It is safe for concurrent use.
type inFlight struct {
	mu     sync.Mutex
	limits map[string]flightLimits // by rule
	calls  int                     // all that count
	held   int                     // of these
	of     map[string]share        // by known client
	queue  []*flightWaiter         // in order of arrival
}

// share is one client's part of what is counted.
type share struct{ calls, held, waiting int }

// flightLimits are those of a rule.
type flightLimits struct {
	calls     int // in flight, of all rules together
	perClient int // of these, of one client that is alone
}

// allow reports whether a client with some of the taken slots may take one more. If perClient
// is half of all slots, a client may have as many as are free; otherwise a multiple or a
// fraction of that. So each further client finds free slots, and all clients end with equal
// shares. It is the dynamic threshold of A. K. Choudhury and E. L. Hahne,
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

// waitersPerCall bounds how many may wait for each slot. A burst of short calls is
// processed within the wait; each waiter takes some 20 kB of memory.
const waitersPerCall = 10

// waiters returns the limits of waiting calls.
func (l flightLimits) waiters() flightLimits {
	return flightLimits{calls: waitersPerCall * l.calls, perClient: waitersPerCall * l.perClient}
}

// flightWaiter waits for a slot. It leaves the queue once: when it gets one, at the end of its wait, or
// of its caller's context.
type flightWaiter struct {
	rule, client string
	then         func(*flightSlot, error)
	stop         func()
}

// flightSlot is the slot of one call. The methods of nil do nothing.
type flightSlot struct {
	of     *inFlight
	client string
	held   bool
	freed  bool
}

// setLimits sets the limits of rules, and wakes the calls that may begin now. A removed rule
// keeps its limits, since its calls may still wait.
func (f *inFlight) setLimits(rules map[string]flightLimits) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limits == nil {
		f.limits = make(map[string]flightLimits)
	}
	maps.Copy(f.limits, rules)
	f.wake()
}

// isFull reports whether a call may not begin now. Waiting calls do not matter: they get
// a free slot at once.
func (f *inFlight) isFull(rule, client string) bool {
	return !f.limits[rule].allow(f.of[client].calls, f.calls)
}

// await calls then once: when a call may begin, at the given time, or at the end of ctx. It does not
// block: then is called by the caller's goroutine if nothing is to be waited for, and by one of its own
// otherwise. The slot is nil if the call did not have to wait: begin follows when it has its lock. The
// errors wrap [gate.ErrOverloaded], except at the end of ctx.
func (f *inFlight) await(ctx context.Context, rule string, until time.Time, client string, then func(*flightSlot, error)) {
	if f == nil {
		then(nil, nil)
		return
	}
	if waits, err := f.enqueue(ctx, &flightWaiter{rule: rule, client: client, then: then}, until); !waits {
		then(nil, err)
	}
}

// enqueue returns false, without an error, if the call may begin.
func (f *inFlight) enqueue(ctx context.Context, w *flightWaiter, until time.Time) (waits bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mine, limits := f.of[w.client], f.limits[w.rule]
	switch wait := time.Until(until); {
	case !f.isFull(w.rule, w.client):
		return false, nil
	case wait <= 0:
		return false, fmt.Errorf("%w: there are %d, and %d of this client", gate.ErrOverloaded, f.calls, mine.calls)
	case mine.held > 0 && !limits.allow(mine.held, f.held):
		return false, fmt.Errorf("%w: %d of this client have ended without an answer, and are held", gate.ErrOverloaded, mine.held)
	case !limits.waiters().allow(mine.waiting, len(f.queue)):
		return false, fmt.Errorf("%w: there are %d, and %d wait, %d of this client", gate.ErrOverloaded, f.calls, len(f.queue), mine.waiting)
	default:
		timer := time.AfterFunc(wait, func() { f.giveUp(w, fmt.Errorf("%w: the wait has ended", gate.ErrOverloaded)) })
		unwatch := context.AfterFunc(ctx, func() { f.giveUp(w, ctx.Err()) })
		w.stop = func() { timer.Stop(); unwatch() }
	}
	f.queue = append(f.queue, w)
	f.count(w.client, share{waiting: 1})
	return true, nil
}

// giveUp ends the wait of a waiter, if it is in the queue.
func (f *inFlight) giveUp(w *flightWaiter, err error) {
	f.mu.Lock()
	i := slices.Index(f.queue, w)
	if i >= 0 {
		f.dequeue(i)
	}
	f.mu.Unlock()
	if i >= 0 {
		w.then(nil, err)
	}
}

// dequeue removes a waiter from the queue.
func (f *inFlight) dequeue(i int) *flightWaiter {
	w := f.queue[i]
	f.queue = slices.Delete(f.queue, i, i+1)
	f.count(w.client, share{waiting: -1})
	w.stop()
	return w
}

// begin counts a call that has its lock; nil: there are too many.
func (f *inFlight) begin(rule, client string, nested bool) *flightSlot {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !nested && f.isFull(rule, client) {
		return nil
	}
	return f.allot(client)
}

func (f *inFlight) allot(client string) *flightSlot {
	f.calls++
	f.count(client, share{calls: 1})
	return &flightSlot{of: f, client: client}
}

// count adds to the share of a client. An unknown client has none.
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

// end frees the slot, unless the call is held.
func (p *flightSlot) end() {
	if p == nil {
		return
	}
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.held {
		p.free()
	}
}

// holdFor frees the slot after the time.
func (p *flightSlot) holdFor(d time.Duration) {
	if p == nil {
		return
	}
	f := p.of
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.held || p.freed {
		return
	}
	p.held = true
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

func (p *flightSlot) free() {
	if p.freed {
		return
	}
	p.freed = true
	p.of.calls--
	p.of.count(p.client, share{calls: -1})
	p.of.wake()
}

// wake gives slots to the waiting calls that may begin now.
func (f *inFlight) wake() {
	for i := f.next(); i >= 0; i = f.next() {
		w := f.dequeue(i)
		slot := f.allot(w.client)
		go w.then(slot, nil)
	}
}

// next returns the index of the first waiter that may begin, among the clients with the fewest
// calls in flight; -1: none may. Each rule may have its own limits.
func (f *inFlight) next() int {
	next := -1
	for i, w := range f.queue {
		if !f.isFull(w.rule, w.client) && (next < 0 || f.of[w.client].calls < f.of[f.queue[next].client].calls) {
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
