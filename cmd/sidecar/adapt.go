package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// gateFilter shows a filter to the gate.
type gateFilter struct{ *filter.Filter }

// MayContain implements gate.Filter.
func (f gateFilter) MayContain(ctx context.Context, id string) gate.Answer {
	switch f.Filter.MayContain(ctx, id) {
	case filter.Absent:
		return gate.Absent
	case filter.Maybe:
		return gate.Maybe
	default:
		return gate.Unknown
	}
}

// Missed implements gate.Filter.
func (f gateFilter) Missed(reason string) { f.Taint(reason) }

// gateLocker shows the locks of one rule to the gate.
type gateLocker struct {
	locker        *redislock.Locker
	before, after string // the key, around the ID
	maxHold       time.Duration
}

// observedSuffix keeps the locks that an observing rule takes, to see how often
// they would be busy, apart from those that anybody relies on.
const observedSuffix = ":observe"

func newGateLocker(locker *redislock.Locker, template string, maxHold time.Duration, observe bool) gateLocker {
	if observe {
		template += observedSuffix
	}
	before, after, _ := strings.Cut(template, "{id}")
	return gateLocker{locker: locker, before: before, after: after, maxHold: maxHold}
}

// Key implements gate.Locker.
func (g gateLocker) Key(id string) string { return g.before + id + g.after }

// Acquire implements gate.Locker.
func (g gateLocker) Acquire(ctx context.Context, id string) (gate.Lease, error) {
	lease, err := g.locker.Acquire(ctx, g.Key(id), redislock.MaxHold(g.maxHold))
	switch {
	case err == nil:
		return gateLease{lease}, nil
	case errors.Is(err, redislock.ErrBusy):
		return nil, fmt.Errorf("%w: %w", gate.ErrBusy, err)
	}
	return nil, err
}

// gateLease shows a lease to the gate.
type gateLease struct{ *redislock.Lease }

// Hold implements gate.Lease.
func (l gateLease) Hold(ctx context.Context) error { return l.Lease.Hold(ctx, "outcome unknown") }

// lockObserver counts what a Locker reports.
type lockObserver struct{ *admin.Lock }

// Acquired implements redislock.Observer.
func (o lockObserver) Acquired(r redislock.Result, waited time.Duration) {
	o.Lock.Acquired(string(r), waited)
}
