package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/timeouts"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// GateLocker is the adapter of a rule's lock to the gate.
type GateLocker struct {
	unit          *Unit        // nil: only Key works
	before, after string       // the key, around the ID
	composed      *composedKey // the key of IDs with parts; nil: there are none
	maxHold       time.Duration
	wait          time.Duration // for a slot in flight and for the lock, together
	timeout       time.Duration // of one Acquire
	hold          time.Duration // of a call whose outcome is unknown
	inFlight      *inFlight     // the settlements of this process; nil: this lock does not count them
	rule          string        // whose limits count
}

// KeyLocker returns the GateLocker of a rule's lock. It computes keys, and acquires nothing.
func KeyLocker(c *config.Config, name string, r *config.Rule, observe bool) GateLocker {
	locker := newGateLocker(c.LockOf(r, name), r.MaxHold(), observe)
	if name == r.OrderLock() {
		locker = locker.withParts(r.PartNames())
	}
	return locker
}

func newGateLocker(c config.Lock, maxHold time.Duration, observe bool) GateLocker {
	g := GateLocker{maxHold: maxHold, hold: c.OnUnknownOutcome.Hold}
	g.wait, g.timeout = timeouts.Acquire(c, observe)
	template := c.Key
	if observe {
		template += config.ObservedSuffix
	}
	g.before, g.after, _ = strings.Cut(template, "{id}")
	return g
}

// Key implements gate.Locker.
func (g GateLocker) Key(id string) string {
	if g.composed != nil {
		return g.composed.key(id)
	}
	return g.before + id + g.after
}

// keys returns the keys of the orders' locks, in the order of the IDs.
func (g GateLocker) keys(ids []string) []string {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = g.Key(id)
	}
	return keys
}

// Acquire implements gate.Locker. It takes at most the wait and one command to
// Redis. That includes a command that starts behind one that hangs: the proxy's timeout would
// expire before both have ended. The wait for a slot in flight and the wait for the lock share one
// limit.
func (g GateLocker) Acquire(ctx context.Context, request gate.LockRequest, then func(gate.Lease, error)) {
	start := time.Now()
	short, cancel := context.WithDeadline(ctx, start.Add(g.timeout))
	a := &acquisition{GateLocker: g, ctx: short, request: request, start: start, until: start.Add(g.wait)}
	a.then = func(lease gate.Lease, err error) {
		if err != nil && short.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %v: %w", g.timeout, err)
		}
		cancel()
		if err != nil && request.Marks {
			lease = &unlocked{g.undoing(request)}
		}
		then(lease, err)
	}
	if request.PresentedLease != "" { // a call that may be nested does not wait
		a.lock(nil, nil)
		return
	}
	a.await()
}

// acquisition is one Acquire.
type acquisition struct {
	GateLocker
	ctx          context.Context // for as long as this exists
	request      gate.LockRequest
	start, until time.Time
	then         func(gate.Lease, error)
}

// await waits for a slot in flight, and then for the lock.
func (a *acquisition) await() {
	a.inFlight.await(a.ctx, a.rule, a.until, a.request.Client, a.lock)
}

// lock takes the lock of a call that has its slot, or needs none yet.
func (a *acquisition) lock(slot *flightSlot, err error) {
	if err != nil {
		go a.then(nil, err) // what follows an error may block
		return
	}
	locker, err := a.unit.enter()
	if err != nil {
		slot.end()
		go a.then(nil, err)
		return
	}
	keys := a.keys(a.request.IDs)
	locker.AcquireAsync(a.ctx, keys, func(lease *redislock.Lease, err error) {
		if err != nil {
			a.unit.leave()
			slot.end()
			a.then(nil, forGate(err))
			return
		}
		held := &heldLease{Lease: lease, unit: a.unit, undoes: a.undoing(a.request)}
		if len(keys) > 1 {
			held.fences = fencesOf(lease, keys)
		}
		if held.begins(slot, a.GateLocker, a.request) {
			a.then(held, nil)
			return
		}
		// Others have taken the slots. The call was not forwarded, so it releases the lock and
		// waits again. A lock that cannot be released expires.
		held.Release(func(error) { a.await() })
	}, append(a.options(a.request, a.start), redislock.Until(a.until))...)
}

func (g GateLocker) options(request gate.LockRequest, start time.Time) []redislock.AcquireOption {
	stored := redislock.Stored(request.Stored)
	if request.Meanwhile {
		stored = redislock.StoredSince(request.Stored, start.Add(-request.For))
	}
	options := []redislock.AcquireOption{
		redislock.MaxHold(g.maxHold), redislock.Reenter(request.PresentedLease), redislock.Request(request.Purpose), stored,
	}
	if request.Undoes {
		options = append(options, redislock.Undoes())
	}
	if request.Keyed {
		options = append(options, redislock.Settles())
	}
	return options
}

// forGate translates an error of a Locker.
func forGate(err error) error {
	if stored, ok := errors.AsType[*redislock.StoredAnswer](err); ok {
		return &gate.StoredAnswer{Text: stored.Text, Withheld: stored.Withheld, All: stored.All}
	}
	if errors.Is(err, redislock.ErrBusy) {
		return fmt.Errorf("%w: %w", gate.ErrBusy, err)
	}
	return err
}

// heldLease is a lease that ends its use of the unit and its slot.
type heldLease struct {
	*redislock.Lease
	unit   *Unit
	fences []int64 // of several orders, in the order of the requested IDs
	slot   *flightSlot
	hold   time.Duration
	stores bool     // its release changes stored answers
	undoes *undoing // nil: the call is enforced
	ended  atomic.Bool
}

// begins counts the call as in flight; false: there are too many, or too many of its client. A
// nested call always begins, since the outer call waits for it, unless it locks another order.
func (l *heldLease) begins(slot *flightSlot, g GateLocker, request gate.LockRequest) bool {
	l.slot, l.hold = slot, g.hold
	if slot != nil || g.inFlight == nil {
		return true
	}
	l.slot = g.inFlight.begin(g.rule, request.Client, l.Reentered())
	return l.slot != nil
}

// Fences implements gate.Lease.
func (l *heldLease) Fences() []int64 {
	if l.fences != nil {
		return l.fences
	}
	return l.Lease.Fences()
}

// Release implements gate.Lease.
func (l *heldLease) Release(then func(error)) {
	if l.undoes != nil {
		l.unit.set.lateEnds.run(func(ctx context.Context) {
			l.undoes.end(ctx)
			then(l.released(l.Lease.Release(ctx)))
		})
		return
	}
	ctx, done := l.unit.set.lateEnds.begin()
	l.Lease.ReleaseAsync(ctx, func(err error) {
		defer done()
		then(l.released(err))
	})
}

// released acts on the end of a release. If it stores an answer and failed, the background
// repeats it.
func (l *heldLease) released(err error) error {
	switch {
	case !l.stores:
	case errors.Is(err, redislock.ErrLost): // it was counted, and the answer is stored all the same
		err = nil
	case err != nil:
		l.unit.set.lateEnds.add(&lateEnd{lease: l, until: time.Now().Add(storeWithin)})
		return err
	}
	l.end()
	return err
}

// StoreAnswer implements gate.Lease.
func (l *heldLease) StoreAnswer(name, text, brief string, keep time.Duration) {
	l.stores = true
	l.Lease.StoreAnswer(name, text, brief, keep)
}

// SuspendAnswers implements gate.Lease.
func (l *heldLease) SuspendAnswers(ctx context.Context, keep time.Duration, names ...string) error {
	l.stores = true
	l.undoes.begin(ctx, keep, names)
	return l.Lease.SuspendAnswers(ctx, keep, names...)
}

// KeepSuspended implements gate.Lease.
func (l *heldLease) KeepSuspended() {
	l.undoes.ends(redislock.UndoLeft)
	l.Lease.KeepSuspended()
}

// ForgetAnswers implements gate.Lease.
func (l *heldLease) ForgetAnswers(keep time.Duration, names ...string) {
	l.stores = true
	l.undoes.ends(redislock.UndoDone)
	l.Lease.ForgetAnswers(keep, names...)
}

// Hold implements gate.Lease. If the first attempt fails, the background repeats it.
func (l *heldLease) Hold(reason string) {
	l.slot.holdFor(l.hold)
	l.undoes.ends(redislock.UndoLeft)
	ends := &l.unit.set.lateEnds
	ends.run(func(ctx context.Context) {
		l.undoes.end(ctx)
		err := l.Lease.Hold(ctx, reason)
		if err != nil && !errors.Is(err, redislock.ErrLost) {
			ends.add(&lateEnd{lease: l, reason: reason})
			return
		}
		l.end()
	})
}

func (l *heldLease) end() {
	if !l.ended.Swap(true) {
		l.slot.end()
		l.unit.leave()
	}
}

// fencesOf returns the fences of a lease in the order of the requested keys. A Locker sorts
// them, and the order of the keys can differ from that of the IDs: 1 comes before 10, and
// "{10}" before "{1}".
func fencesOf(lease *redislock.Lease, keys []string) []int64 {
	sorted, fences := slices.Sorted(slices.Values(keys)), lease.Fences()
	requested := make([]int64, len(keys))
	for i, key := range keys {
		at, _ := slices.BinarySearch(sorted, key)
		requested[i] = fences[at]
	}
	return requested
}
