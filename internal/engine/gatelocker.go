package engine

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

// GateLocker shows the locks of one rule to the gate.
type GateLocker struct {
	unit          *lockUnit // nil for a look at keys
	before, after string    // the key, around the ID
	maxHold       time.Duration
	wait          time.Duration // for a place in flight and for the lock, together
	patience      time.Duration // with one Acquire
	hold          time.Duration // of a call whose outcome is unknown
	inFlight      *inFlight     // the settlements of this process; nil: they are not counted
	rule          string        // whose limits count
}

// NewGateLocker returns one for a look at keys: nothing can be acquired by it.
func NewGateLocker(c config.Lock, maxHold time.Duration, observe bool) GateLocker {
	template, wait := c.Key, max(c.Wait.UpTo, time.Duration(c.Wait.Tries-1)*c.Wait.Every)
	if observe {
		template, wait = template+config.ObservedSuffix, 0
	}
	before, after, _ := strings.Cut(template, "{id}")
	return GateLocker{
		before: before, after: after, maxHold: maxHold, wait: wait,
		patience: wait + wait/10 + redisconn.CommandTimeout, // pauses between tries vary by a tenth
		hold:     c.OnUnknownOutcome.Hold,
	}
}

// Key implements gate.Locker.
func (g GateLocker) Key(id string) string { return g.before + id + g.after }

// Acquire implements gate.Locker. It takes no longer than the wait and one question
// to Redis. Questions go together: behind one that hangs, another would begin when
// that has ended, and the proxy's patience with us be over before it has.
func (g GateLocker) Acquire(ctx context.Context, request gate.LockRequest) (gate.Lease, error) {
	return g.acquireSince(ctx, request, time.Now())
}

// acquireSince is Acquire for a caller who has waited since then. The wait for a place in
// flight and that for the lock are one.
func (g GateLocker) acquireSince(ctx context.Context, request gate.LockRequest, start time.Time) (gate.Lease, error) {
	short, cancel := context.WithDeadline(ctx, start.Add(g.patience))
	defer cancel()
	until := start.Add(g.wait)
	var place *flightPlace
	for within := request.PresentedLease != ""; ; within = false { // a call that may be within another does not wait
		var err error
		if !within {
			if place, err = g.inFlight.await(short, g.rule, until, request.Client); err != nil {
				return nil, err
			}
		}
		held, err := g.acquire(short, request, until)
		if err != nil {
			place.end()
			if short.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("no answer within %v: %w", g.patience, err)
			}
			return nil, err
		}
		if held.begins(place, g, request) {
			return held, nil
		}
		// Others were faster. Nothing was forwarded: the lock is free again, and waited
		// for anew. What cannot be released ends by itself.
		_ = held.Release(context.WithoutCancel(short))
	}
}

// AcquireAsync implements gate.AsyncLocker, for one order.
func (g GateLocker) AcquireAsync(ctx context.Context, request gate.LockRequest, then func(gate.Lease, error)) bool {
	if len(request.IDs) != 1 || request.PresentedLease == "" && g.inFlight.crowded(g.rule, request.Client) {
		return false
	}
	locker, err := g.unit.enter()
	if err != nil {
		return false // Acquire returns the error
	}
	start := time.Now()
	short, cancel := context.WithDeadline(ctx, start.Add(g.patience))
	acquired := func(lease *redislock.Lease, err error) {
		if err == nil {
			cancel()
			held := &heldLease{Lease: lease, unit: g.unit}
			if held.begins(nil, g, request) {
				then(held, nil)
				return
			}
			go func() { // which waits
				_ = held.Release(context.WithoutCancel(ctx))
				then(g.acquireSince(ctx, request, start))
			}()
			return
		}
		if short.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %v: %w", g.patience, err)
		}
		cancel()
		g.unit.leave()
		then(nil, forGate(err))
	}
	if locker.AcquireAsync(short, g.Key(request.IDs[0]), acquired, g.options(request)...) {
		return true
	}
	cancel()
	g.unit.leave()
	return false
}

func (g GateLocker) options(request gate.LockRequest) []redislock.AcquireOption {
	return []redislock.AcquireOption{
		redislock.MaxHold(g.maxHold), redislock.Reenter(request.PresentedLease), redislock.Request(request.Purpose),
	}
}

func (g GateLocker) acquire(ctx context.Context, request gate.LockRequest, until time.Time) (*heldLease, error) {
	locker, err := g.unit.enter()
	if err != nil {
		return nil, err
	}
	held, options := &heldLease{unit: g.unit}, append(g.options(request), redislock.Until(until))
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

// forGate translates the error of a Locker.
func forGate(err error) error {
	if errors.Is(err, redislock.ErrBusy) {
		return fmt.Errorf("%w: %w", gate.ErrBusy, err)
	}
	return err
}

// heldLease is a lease whose unit has to know of its end.
type heldLease struct {
	*redislock.Lease
	unit   *lockUnit
	fences []int64 // of several orders, in the order in which they were asked for
	place  *flightPlace
	hold   time.Duration
	ended  atomic.Bool
}

// begins counts the call as in flight; false: there are too many, or too many of its client.
// A call within another passes, since that one waits for it, unless it locks a further order.
func (l *heldLease) begins(place *flightPlace, g GateLocker, request gate.LockRequest) bool {
	l.place, l.hold = place, g.hold
	if place != nil || g.inFlight == nil {
		return true
	}
	l.place = g.inFlight.begin(g.rule, request.Client, l.Reentered())
	return l.place != nil
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
	defer l.end()
	return l.Lease.Release(ctx)
}

// ReleaseAsync implements gate.AsyncLease.
func (l *heldLease) ReleaseAsync() { l.Lease.ReleaseAsync(l.end) }

// Hold implements gate.Lease. What Redis does not take at once is repeated in the
// background.
func (l *heldLease) Hold(ctx context.Context, reason string) error {
	l.place.keep(l.hold)
	err := l.Lease.Hold(ctx, reason)
	if err != nil && !errors.Is(err, redislock.ErrLost) {
		l.unit.set.holds.add(&pendingHold{lease: l, reason: reason})
		return nil
	}
	l.end()
	return err
}

func (l *heldLease) end() {
	if !l.ended.Swap(true) {
		l.place.end()
		l.unit.leave()
	}
}

// fencesOf returns the fences of a lease in the order of the keys that were asked for.
// A Locker has them in sorted order, which can be another than that of the IDs: 1 comes
// before 10, and "{10}" before "{1}".
func fencesOf(lease *redislock.Lease, keys []string) []int64 {
	sorted, fences := slices.Sorted(slices.Values(keys)), lease.Fences()
	asked := make([]int64, len(keys))
	for i, key := range keys {
		at, _ := slices.BinarySearch(sorted, key)
		asked[i] = fences[at]
	}
	return asked
}
