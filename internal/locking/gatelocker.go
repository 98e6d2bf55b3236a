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
	"github.com/ordergate/ordergate/internal/redisconn"
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

// NewGateLocker returns one that computes keys, and acquires nothing.
func NewGateLocker(c config.Lock, maxHold time.Duration, observe bool) GateLocker {
	template, wait := c.Key, max(c.Wait.UpTo, time.Duration(c.Wait.Tries-1)*c.Wait.Every)
	if observe {
		template, wait = template+config.ObservedSuffix, 0
	}
	before, after, _ := strings.Cut(template, "{id}")
	return GateLocker{
		before: before, after: after, maxHold: maxHold, wait: wait,
		timeout: wait + wait/10 + redisconn.CommandTimeout, // pauses between tries vary by a tenth
		hold:    c.OnUnknownOutcome.Hold,
	}
}

// Timeout returns the longest time that Acquire takes: the wait, and one command to Redis.
func (g GateLocker) Timeout() time.Duration { return g.timeout }

// Key implements gate.Locker.
func (g GateLocker) Key(id string) string {
	if g.composed != nil {
		return g.composed.key(id)
	}
	return g.before + id + g.after
}

// Acquire implements gate.Locker. It takes at most the wait and one command to
// Redis. That includes a command that starts behind one that hangs: the proxy's timeout would
// expire before both have ended.
func (g GateLocker) Acquire(ctx context.Context, request gate.LockRequest) (gate.Lease, error) {
	lease, err := g.acquireSince(ctx, request, time.Now())
	if err != nil && request.Marks {
		return &unlocked{g.undoing(request)}, err
	}
	return lease, err
}

// acquireSince is Acquire for a caller that has waited since start. The wait for a slot in
// flight and the wait for the lock share one limit.
func (g GateLocker) acquireSince(ctx context.Context, request gate.LockRequest, start time.Time) (gate.Lease, error) {
	short, cancel := context.WithDeadline(ctx, start.Add(g.timeout))
	defer cancel()
	until := start.Add(g.wait)
	var slot *flightSlot
	for within := request.PresentedLease != ""; ; within = false { // a call that may be nested does not wait
		var err error
		if !within {
			if slot, err = g.inFlight.await(short, g.rule, until, request.Client); err != nil {
				return nil, err
			}
		}
		held, err := g.acquireLocks(short, request, start, until)
		if err != nil {
			slot.end()
			if short.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("no answer within %v: %w", g.timeout, err)
			}
			return nil, err
		}
		if held.begins(slot, g, request) {
			return held, nil
		}
		// Others have taken the slots. The call was not forwarded, so it releases the lock and
		// waits again. A lock that cannot be released expires.
		_ = held.Release(context.WithoutCancel(short))
	}
}

// AcquireAsync implements gate.AsyncLocker, for one order.
func (g GateLocker) AcquireAsync(ctx context.Context, request gate.LockRequest, then func(gate.Lease, error)) bool {
	if len(request.IDs) != 1 || request.PresentedLease == "" && g.inFlight.isFull(g.rule, request.Client) {
		return false
	}
	locker, err := g.unit.enter()
	if err != nil {
		return false // Acquire returns the error
	}
	start := time.Now()
	short, cancel := context.WithDeadline(ctx, start.Add(g.timeout))
	acquired := func(lease *redislock.Lease, err error) {
		if err == nil {
			cancel()
			held := &heldLease{Lease: lease, unit: g.unit, undoes: g.undoing(request)}
			if held.begins(nil, g, request) {
				then(held, nil)
				return
			}
			go func() { // it waits
				_ = held.Release(context.WithoutCancel(ctx))
				then(g.acquireSince(ctx, request, start))
			}()
			return
		}
		if short.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %v: %w", g.timeout, err)
		}
		cancel()
		g.unit.leave()
		then(nil, forGate(err))
	}
	if locker.AcquireAsync(short, g.Key(request.IDs[0]), acquired, g.options(request, start)...) {
		return true
	}
	cancel()
	g.unit.leave()
	return false
}

func (g GateLocker) options(request gate.LockRequest, start time.Time) []redislock.AcquireOption {
	stored := redislock.Stored(request.Stored)
	if request.Meanwhile {
		stored = redislock.StoredSince(request.Stored, start.Add(-request.For))
	}
	return []redislock.AcquireOption{
		redislock.MaxHold(g.maxHold), redislock.Reenter(request.PresentedLease), redislock.Request(request.Purpose), stored,
	}
}

func (g GateLocker) acquireLocks(ctx context.Context, request gate.LockRequest, start, until time.Time) (*heldLease, error) {
	locker, err := g.unit.enter()
	if err != nil {
		return nil, err
	}
	held, options := &heldLease{unit: g.unit, undoes: g.undoing(request)}, append(g.options(request, start), redislock.Until(until))
	if len(request.IDs) == 1 {
		held.Lease, err = locker.Acquire(ctx, g.Key(request.IDs[0]), options...)
	} else {
		keys := make([]string, len(request.IDs))
		for i, id := range request.IDs {
			keys[i] = g.Key(id)
		}
		if held.Lease, err = locker.AcquireAll(ctx, keys, options...); err == nil {
			held.fences = fencesOf(held.Lease, keys)
		}
	}
	if err != nil {
		g.unit.leave()
		return nil, forGate(err)
	}
	return held, nil
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
func (l *heldLease) Release(ctx context.Context) error {
	l.undoes.end(ctx)
	return l.released(l.Lease.Release(ctx))
}

// ReleaseAsync implements gate.AsyncLease.
func (l *heldLease) ReleaseAsync(then func(error)) {
	if l.undoes.acts() {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), redisconn.CommandTimeout)
			defer cancel()
			l.undoes.end(ctx)
		}()
	}
	l.Lease.ReleaseAsync(func(err error) { then(l.released(err)) })
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

// StoreAnswer implements gate.StoringLease.
func (l *heldLease) StoreAnswer(name, text, brief string, keep time.Duration) {
	l.stores = true
	l.Lease.StoreAnswer(name, text, brief, keep)
}

// SuspendAnswers implements gate.StoringLease.
func (l *heldLease) SuspendAnswers(ctx context.Context, keep time.Duration, names ...string) error {
	l.stores = true
	l.undoes.begin(ctx, keep, names)
	return l.Lease.SuspendAnswers(ctx, keep, names...)
}

// KeepSuspended implements gate.StoringLease.
func (l *heldLease) KeepSuspended() {
	l.undoes.ends(redislock.UndoBegins)
	l.Lease.KeepSuspended()
}

// ForgetAnswers implements gate.StoringLease.
func (l *heldLease) ForgetAnswers(keep time.Duration, names ...string) {
	l.stores = true
	l.undoes.ends(redislock.UndoDone)
	l.Lease.ForgetAnswers(keep, names...)
}

// Hold implements gate.Lease. If the first attempt fails, the background repeats it.
func (l *heldLease) Hold(ctx context.Context, reason string) error {
	l.slot.holdFor(l.hold)
	l.undoes.ends(redislock.UndoBegins)
	l.undoes.end(ctx)
	err := l.Lease.Hold(ctx, reason)
	if err != nil && !errors.Is(err, redislock.ErrLost) {
		l.unit.set.lateEnds.add(&lateEnd{lease: l, reason: reason})
		return nil
	}
	l.end()
	return err
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
