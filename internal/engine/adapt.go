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
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// gateFilter shows a filter to the gate, and what it answers to its measures.
type gateFilter struct {
	*filter.Filter
	measures *measures
}

// MayContain implements gate.Filter.
func (f gateFilter) MayContain(ctx context.Context, id string) gate.Answer {
	return f.answer(id, f.Filter.MayContain(ctx, id))
}

// Glance implements gate.Filter.
func (f gateFilter) Glance(id string) (gate.Answer, bool) {
	a, ok := f.Filter.Glance(id)
	if !ok {
		return gate.Unknown, false
	}
	return f.answer(id, a), true
}

// Later implements gate.Filter.
func (f gateFilter) Later(id string, answer func(gate.Answer)) {
	f.Filter.Later(id, func(a filter.Answer) { answer(f.answer(id, a)) })
}

func (f gateFilter) answer(id string, a filter.Answer) gate.Answer {
	switch a {
	case filter.Absent:
		f.measures.absent(id)
		return gate.Absent
	case filter.Maybe:
		return gate.Maybe
	default:
		return gate.Unknown
	}
}

// appender shows a change log to its filter.
type appender struct{ *changelog.Log }

// Missed implements filter.Appender.
func (a appender) Missed(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, changelog.Doubt{Kind: changelog.Lost, Reason: reason, Orders: true, Since: since})
}

// Abandoned implements filter.Appender.
func (a appender) Abandoned(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, changelog.Doubt{Kind: changelog.Running, Reason: reason, Orders: true, Since: since})
}

func (a appender) doubt(ctx context.Context, d changelog.Doubt) (filter.Entry, error) {
	at, err := a.Doubt(ctx, d)
	return placeIn(at), err
}

// bounded is a barrier that trusts what was true a short time ago.
type bounded struct {
	log *changelog.Log
	age time.Duration
}

// Wait implements filter.Barrier.
func (b bounded) Wait(ctx context.Context) error { return b.log.Within(ctx, b.age) }

func (b bounded) held() bool { return b.log.Fresh(b.age) }

// cureOf tells what clears a doubt where no source tells of each order at once. One of a
// kind that a later release has needs the most.
func cureOf(k changelog.Kind) filter.Cure {
	if cure, ok := cures[k]; ok {
		return cure
	}
	return filter.Operator
}

var cures = map[changelog.Kind]filter.Cure{
	changelog.Term:    filter.Settling,
	changelog.Crash:   filter.Settling,
	changelog.Start:   filter.Reading,
	changelog.Lost:    filter.Operator,
	changelog.Running: filter.Operator,
	changelog.Gap:     filter.Operator,
}

// GateLocker shows the locks of one rule to the gate.
type GateLocker struct {
	unit          *lockUnit // nil for a look at keys
	before, after string    // the key, around the ID
	maxHold       time.Duration
	patience      time.Duration // with one Acquire
}

// questionTime is what a question to a Redis that hangs takes, a new connection
// included.
const questionTime = redisDialTimeout + (1+redisRetries)*RedisTimeout

// NewGateLocker returns one for a look at keys: nothing can be acquired by it.
func NewGateLocker(c config.Lock, maxHold time.Duration, observe bool) GateLocker {
	template, wait := c.Key, max(c.Wait.UpTo, time.Duration(c.Wait.Tries)*c.Wait.Every)
	if observe {
		template, wait = template+config.ObservedSuffix, 0
	}
	before, after, _ := strings.Cut(template, "{id}")
	return GateLocker{before: before, after: after, maxHold: maxHold, patience: wait + questionTime}
}

// Key implements gate.Locker.
func (g GateLocker) Key(id string) string { return g.before + id + g.after }

// Acquire implements gate.Locker. It takes no longer than the wait and one question
// to Redis. Questions go together: behind one that hangs, another would begin when
// that has ended, and the proxy's patience with us be over before it has.
func (g GateLocker) Acquire(ctx context.Context, ask gate.Ask) (gate.Lease, error) {
	short, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	lease, err := g.acquire(short, ask)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v: %w", g.patience, err)
	}
	return lease, err
}

// AcquireAsync implements gate.AsyncLocker, for one order.
func (g GateLocker) AcquireAsync(ctx context.Context, ask gate.Ask, then func(gate.Lease, error)) bool {
	if len(ask.IDs) != 1 {
		return false
	}
	locker, err := g.unit.enter()
	if err != nil {
		return false // Acquire returns the error
	}
	short, cancel := context.WithTimeout(ctx, g.patience)
	acquired := func(lease *redislock.Lease, err error) {
		if err == nil {
			cancel()
			then(&heldLease{Lease: lease, unit: g.unit}, nil)
			return
		}
		if short.Err() != nil && ctx.Err() == nil {
			err = fmt.Errorf("no answer within %v: %w", g.patience, err)
		}
		cancel()
		g.unit.leave()
		then(nil, forGate(err))
	}
	if locker.AcquireAsync(short, g.Key(ask.IDs[0]), acquired, g.options(ask)...) {
		return true
	}
	cancel()
	g.unit.leave()
	return false
}

func (g GateLocker) options(ask gate.Ask) []redislock.AcquireOption {
	return []redislock.AcquireOption{
		redislock.MaxHold(g.maxHold), redislock.Reenter(ask.Present), redislock.Request(ask.Request),
	}
}

func (g GateLocker) acquire(ctx context.Context, ask gate.Ask) (gate.Lease, error) {
	locker, err := g.unit.enter()
	if err != nil {
		return nil, err
	}
	held := &heldLease{unit: g.unit}
	if len(ask.IDs) == 1 {
		held.Lease, err = locker.Acquire(ctx, g.Key(ask.IDs[0]), g.options(ask)...)
	} else {
		keys := make([]string, len(ask.IDs))
		for i, id := range ask.IDs {
			keys[i] = g.Key(id)
		}
		if held.Lease, err = locker.AcquireAll(ctx, keys, g.options(ask)...); err == nil {
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
	ended  atomic.Bool
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

// lockObserver counts what a Locker reports.
type lockObserver struct{ *admin.Lock }

// Acquired implements redislock.Observer.
func (o lockObserver) Acquired(r redislock.Result, waited time.Duration) {
	o.Lock.Acquired(string(r), waited)
}
