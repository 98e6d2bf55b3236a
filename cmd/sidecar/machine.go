package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// machine is everything behind the listeners: what a configuration is built
// into. Close it after the listeners have stopped.
type machine struct {
	log     *slog.Logger
	config  *config.Config
	metrics *admin.Metrics
	gate    *gate.Gate

	redis      redis.UniversalClient // nil when nothing needs it
	closeRedis func()
	filters    map[string]*filterUnit
	lockers    map[lockUse]*redislock.Locker

	wg     sync.WaitGroup
	cancel context.CancelFunc
}

// filterUnit is a filter with what feeds it.
type filterUnit struct {
	filter  *filter.Filter
	log     *changelog.Log // nil without a change log
	sources []filter.Source
}

// lockUse names a Locker: an observing rule uses one that does not wait.
type lockUse struct {
	lock    string
	observe bool
}

// build makes the machine and starts what works in the background. Nothing of it
// waits for Redis or for a source.
func build(ctx context.Context, c *config.Config, log *slog.Logger) (*machine, error) {
	m := &machine{
		log: log, config: c, metrics: admin.NewMetrics(versionText(), metricRules(c)),
		closeRedis: func() {}, filters: make(map[string]*filterUnit), lockers: make(map[lockUse]*redislock.Locker),
	}
	if c.Redis != nil {
		var err error
		if m.redis, m.closeRedis, err = connect(ctx, c.Redis); err != nil {
			return nil, err
		}
	}
	if err := m.buildFilters(); err != nil {
		m.closeRedis()
		return nil, err
	}
	policies, err := m.policies()
	if err == nil {
		m.gate, err = gate.New(policies, m.metrics, time.Now)
	}
	if err != nil {
		m.close()
		return nil, err
	}
	m.start(ctx)
	return m, nil
}

func metricRules(c *config.Config) []admin.Rule {
	rules := make([]admin.Rule, len(c.Rules))
	for i, r := range c.Rules {
		rules[i] = admin.Rule{Name: r.Name, Mode: r.Mode}
		if r.Settle != nil {
			rules[i].Lock = r.Settle.Lock
		}
	}
	return rules
}

func (m *machine) buildFilters() error {
	for name, c := range m.config.Filters {
		unit, err := m.buildFilter(name, c)
		if err != nil {
			return fmt.Errorf("filter %s: %w", name, err)
		}
		m.filters[name] = unit
		gauges := admin.Filter{
			IDs: unit.filter.Count, FillRatio: unit.filter.FillRatio,
			State: func() string { s, _ := unit.filter.State(); return s },
		}
		if unit.log != nil {
			gauges.LogLag = func() uint64 { s := unit.log.State(); return s.Tail - min(s.Tail, s.Position) }
		}
		m.metrics.FilterGauges(name, gauges)
	}
	return nil
}

func (m *machine) buildFilter(name string, c config.Filter) (*filterUnit, error) {
	unit := &filterUnit{}
	opts := filter.Options{
		Capacity: c.Capacity, FalsePositiveRate: c.FalsePositiveRate,
		Logger: m.log,
	}
	var err error
	if m.redis != nil {
		// The log is followed even where a negative does not wait for it: what it
		// brings is never wrong.
		apply := func(id string) { unit.filter.Add(id) }
		unit.log, err = changelog.New(m.redis, name, apply, changelog.Options{Logger: m.log})
		if err != nil {
			return nil, err
		}
		opts.Appender = unit.log
		if c.Freshness == config.FreshnessBarrier {
			opts.Barrier = unit.log
		}
	}
	if unit.filter, err = filter.New(name, opts); err != nil {
		return nil, err
	}
	unit.sources, err = sourcesOf(m.config, name, m.log)
	if err != nil {
		return nil, err
	}
	return unit, nil
}

func (m *machine) policies() ([]gate.Policy, error) {
	filters := make(map[string]gate.Filter, len(m.filters))
	for name, unit := range m.filters {
		filters[name] = gateFilter{unit.filter}
	}
	policies := make([]gate.Policy, 0, len(m.config.Rules))
	for _, r := range m.config.Rules {
		var lock gate.Locker
		if s := r.Settle; s != nil {
			observe := r.Mode == config.ModeObserve
			locker, err := m.locker(lockUse{s.Lock, observe})
			if err != nil {
				return nil, err
			}
			lock = newGateLocker(locker, m.config.Locks[s.Lock].Key, s.MaxHold, observe)
		}
		p, err := policy(r, filters, lock)
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// locker returns the Locker for a use, and makes it at the first.
func (m *machine) locker(use lockUse) (*redislock.Locker, error) {
	if l, ok := m.lockers[use]; ok {
		return l, nil
	}
	c := m.config.Locks[use.lock]
	name, wait := use.lock, redislock.Wait{Tries: c.Wait.Tries, Every: c.Wait.Every, UpTo: c.Wait.UpTo}
	if use.observe {
		name, wait = name+observedSuffix, redislock.Wait{Tries: 1}
	}
	l, err := redislock.New(m.redis, redislock.Options{
		Lease: c.Lease, Hold: c.OnUnknownOutcome.Hold, Wait: wait, MaxWaitersPerKey: c.MaxWaitersPerKey,
		Observer: lockObserver{m.metrics.Lock(name)}, Logger: m.log.With("lock", name),
	})
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", use.lock, err)
	}
	m.metrics.LockGauges(name, l.Held, l.Waiting)
	m.lockers[use] = l
	return l, nil
}

// filterBytes returns how much memory the filters take.
func (m *machine) filterBytes() (sum uint64) {
	for _, unit := range m.filters {
		sum += unit.filter.SizeBytes()
	}
	return sum
}

// start runs the filters in the background.
func (m *machine) start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for name, unit := range m.filters {
		if unit.log != nil {
			m.wg.Go(func() { _ = unit.log.Run(ctx) })
		}
		m.wg.Go(func() { _ = unit.filter.Run(ctx) })
		m.wg.Go(func() {
			if err := unit.filter.Load(ctx, unit.sources...); err != nil && ctx.Err() == nil {
				m.log.Error("filter not loaded: nothing counts as absent", "filter", name, "error", err)
			}
		})
	}
}

// close stops what start began and lets go of Redis.
func (m *machine) close() {
	if m.cancel != nil {
		m.cancel()
	}
	m.wg.Wait()
	for _, l := range m.lockers {
		l.Close()
	}
	m.closeRedis()
}
