// Package engine is an ordergate without its faces: what a configuration is built
// into, and what works in the background.
//
// Start with [New], then [Engine.Start]. [Engine.Follow] tells whatever shows it requests
// which gate decides, now and after each reload ([Engine.ReloadFrom]);
// [Engine.AdminHandler] is for operators.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/redisconn"
)

// Engine is everything behind what shows it requests. Close it after that has stopped.
type Engine struct {
	log     *slog.Logger
	config  *config.Config // of the start: of what cannot change while it runs
	metrics *metrics.Metrics
	inForce inForce // of what can

	redis    redis.UniversalClient    // nil when nothing needs it
	memory   *redisconn.MemoryWatch   // nil without redis
	eviction *redisconn.EvictionWatch // of redis; nil without it
	closers  []func()                 // let go of Redis, and of the servers of quorums
	filters  map[string]*filterUnit
	lockers  *locking.Lockers
	bodies   lately // one was not shown
	// outcomes is that one could not be read.
	outcomes lately
	// warnings are of locks, which an outage of Redis brings with each request.
	warnings recurring.Warnings
	process  string // names this process to whoever looks at a lock
	place    string // names where it runs to the other ordergates

	watches    []*locking.Unit // of the locks of the start
	wg         sync.WaitGroup
	background func(func(context.Context)) // runs it until Close; set by Start
	cancel     context.CancelFunc
	ending     chan struct{} // closed by close
}

// filterUnit is a filter with what feeds it.
type filterUnit struct {
	filter    *filter.Filter
	log       *changelog.Log // nil without a change log
	sources   []filter.Source
	stamp     func(now time.Time) string // tells the state of the sources from any other, "" if it cannot
	shared    *redisset.Set              // nil: it is all in memory
	measures  *measures
	snapshots *snapshots   // nil: a restart reads the sources
	growth    *growthState // nil: it does not grow, or alone
	followers []*follower  // of its tables
	reconcile *reconciler  // nil: the tables are not compared with it
	fleet     *fleet       // nil: it is loaded by each for itself
	// logSnapshot is in Redis, for a log that is trimmed up to it; nil: there is none.
	logSnapshot *logSnapshot
	places      *places       // of what the set in Redis has; nil: memory has the tables
	margin      time.Duration // see marginOf
	late        time.Duration // see lateOrders
	again       atomic.Int64  // when the tables are read once more, in ns since 1970; 0: they are not
}

// New makes an engine of a valid configuration. It waits neither for Redis nor for a
// source. The version is what it says of itself in its metrics. The error names what
// of the configuration cannot be used here.
func New(ctx context.Context, c *config.Config, version string, log *slog.Logger) (*Engine, error) {
	m := &Engine{
		log: log, config: c, metrics: metrics.New(version, time.Now()),
		filters: make(map[string]*filterUnit), process: processName(),
		ending: make(chan struct{}),
	}
	if c.Redis != nil {
		m.place = placeOf(c)
		client, closeClient, err := redisconn.Connect(ctx, c.Redis, 2*len(c.Filters)) // the change log of each waits for entries, and for readers
		if err != nil {
			return nil, err
		}
		m.redis, m.closers = client, append(m.closers, closeClient)
		m.memory = redisconn.WatchMemory(client, log)
		if c.Redis.Mode != config.RedisEmbedded { // which has no memory of its own
			m.eviction = redisconn.NewEvictionWatch(func() []redis.UniversalClient { return []redis.UniversalClient{client} }, m.stored, log)
		}
	}
	m.lockers = locking.New(locking.Options{
		Redis: m.redis, RedisConfig: c.Redis, Process: m.process, Metrics: m.metrics, Warnings: &m.warnings, Logger: log,
	})
	m.metrics.FlightGauges(m.lockers.InFlight)
	if err := m.buildFilters(ctx); err != nil {
		m.Close()
		return nil, err
	}
	next, err := m.prepare(ctx, c)
	if err != nil {
		m.Close()
		return nil, err
	}
	m.watches = m.lockers.Activate(next.locks)
	m.inForce.config = c
	m.inForce.gate.Store(next.gate)
	return m, nil
}

// stored returns what the Redis of everything but quorums stores by the active rules.
func (m *Engine) stored() redisconn.Stored {
	return redisconn.Stored{Locks: m.lockers.UsesRedis(), ChangeLogs: len(m.filters) > 0}
}

func metricRules(c *config.Config) []metrics.Rule {
	rules := make([]metrics.Rule, len(c.Rules))
	for i, r := range c.Rules {
		rules[i] = metrics.Rule{Name: r.Name, Mode: r.Mode}
		if r.Settle != nil {
			rules[i].Lock = locking.Use{Lock: r.Settle.Lock, Observe: r.Mode == config.ModeObserve}.String()
		}
	}
	return rules
}

func (m *Engine) buildFilters(ctx context.Context) error {
	for name, c := range m.config.Filters {
		unit, err := m.buildFilter(ctx, name, c)
		if err != nil {
			return fmt.Errorf("filter %s: %w", name, err)
		}
		m.filters[name] = unit
		unit.measures = m.measure(name, c, unit)
		gauges := metrics.Filter{
			IDs: unit.filter.Count, Capacity: unit.filter.Capacity, FillRatio: unit.filter.FillRatio,
			State: func() string { s, _ := unit.filter.State(); return s },
		}
		if unit.log != nil {
			gauges.Log = func() metrics.Log { return logMetrics(unit) }
		}
		if r := unit.reconcile; r != nil {
			gauges.Reconciled = func() (checked, missing uint64) { return r.checked.Load(), r.missing.Load() }
		}
		m.metrics.FilterGauges(name, gauges)
		for _, f := range unit.followers {
			m.metrics.SourceGauges(name, f.name, f.state.lag)
		}
	}
	return nil
}

func (m *Engine) buildFilter(ctx context.Context, name string, c config.Filter) (*filterUnit, error) {
	unit := &filterUnit{}
	opts := filter.Options{
		Capacity: c.Capacity, FalsePositiveRate: c.FalsePositiveRate,
		Layout: bloom.Layout(c.Layout), Exact: c.Kind == config.FilterExact,
		Logger: m.log,
	}
	if len(c.Sources) == 0 && c.InRedis() == "" && m.looksUp(name) {
		m.log.Warn("the filter has no sources: every order is refused that ordergate has not learned", "filter", name)
	}
	unit.late = lateOrders(m.config, name)
	opts.CommitDelay = unit.late
	formats, err := FormatsOf(m.config, name)
	if err != nil {
		return nil, err
	}
	opts.CanonicalForms = func(id string) (first string, others []string) { return order.CanonicalForms(formats, id) }
	if opts.Key, err = m.keyOf(ctx, name, c); err != nil {
		return nil, err
	}
	unit.logSnapshot = m.newLogSnapshot(name, c, unit, opts.Key)
	if m.redis != nil {
		// The log is followed even where a negative does not wait for it: what it
		// brings is never wrong.
		apply := func(id string) { unit.filter.Add(id) }
		logOpts := changelog.Options{
			CanonicalForms: opts.CanonicalForms.All, OnDoubt: unit.doubt, OnCleared: unit.cleared, PersistGaps: !liveOf(m.config, c),
			Member: m.place, Require: followedMembers(m.config, name),
			Ephemeral: m.config.Redis.Mode == config.RedisEmbedded, MinEntries: c.ChangeLog.Keep, Lease: c.ChangeLog.Lease, Expel: c.ChangeLog.Expel, Window: c.Freshness.Window, Logger: m.log,
		}
		if unit.logSnapshot != nil {
			logOpts.LoadSnapshot = unit.logSnapshot.bridge
		}
		if unit.log, err = changelog.New(m.redis, name, apply, logOpts); err != nil {
			return nil, err
		}
		opts.Appender, opts.AppendTimeout, opts.LastRead, opts.StaleAfter = appender{unit.log}, appendTimeout, unit.log.LastRead, c.StaleAfter
		if c.Freshness.Mode == config.FreshnessWindow {
			opts.Window = func() filter.Window { return unit.log.Window() }
			opts.WindowErr = unit.log.Err
		}
	}
	opts.WithinGrace, opts.CreatedBefore = young(m.config, name, formats, time.Now), madeOf(formats)
	if unit.sources, err = sourcesOf(m.config, name, formats, m.log); err != nil {
		return nil, err
	}
	m.rereads(name, unit.live())
	unit.margin = marginOf(m.config, name)
	opts.Live, opts.ClockMargin, opts.Covered = len(unit.live()) > 0, unit.margin, unit.covered
	for _, t := range unit.live() {
		t.dropped = unit.dropped
	}
	unit.stamp = func(now time.Time) string { return stampOf(unit.sources, rulesOf(m.config, name), now) }
	opts.Segments = segments(c.Segments, formats)
	if c.InRedis() != "" {
		unit.shared, err = m.shared(name, c, unit, opts)
		if err != nil {
			return nil, err
		}
		besideShared(&opts, c, unit.shared)
	} else {
		opts.Growth = m.growth(name, c.Expand, unit)
	}
	if unit.filter, err = filter.New(name, opts); err != nil {
		return nil, err
	}
	unit.snapshots = m.newSnapshots(name, c, unit)
	unit.fleet = m.newFleet(name, unit)
	unit.followers = m.followers(name, unit, formats)
	if unit.reconcile, err = m.newReconciler(name, unit); err != nil {
		return nil, err
	}
	if opts.Growth != nil && opts.Growth.LeaderLock != nil {
		unit.growth = newGrowthState(m, name, unit.filter)
	}
	return unit, nil
}

func (m *Engine) policies(ctx context.Context, c *config.Config, locks *locking.Version) ([]gate.Policy, error) {
	filters := make(map[string]gate.Filter, len(m.filters))
	for name, unit := range m.filters {
		filters[name] = gateFilter{unit.filter, unit.measures, areFollowed(c, name)}
	}
	policies := make([]gate.Policy, 0, len(c.Rules))
	locker := func(name string, r config.Rule) (gate.Locker, error) { return locks.Locker(ctx, name, r) }
	for _, r := range c.Rules {
		p, err := Policy(r, filters, locker)
		if err != nil {
			return nil, err
		}
		if p.Lookup != nil {
			p.Lookup.OnNotFound = m.filters[r.Lookup.Filter].measures.missing
		}
		policies = append(policies, p)
	}
	return policies, nil
}

// appendTimeout bounds how long Redis may take to acknowledge a new order.
const appendTimeout = 600 * time.Millisecond

// LearnTimeout is how long the answer to a create may have to be kept back: until its order is
// known everywhere, or nothing is certain any more. With some slack: an answer that is passed
// on before that breaks the guarantee of docs/freshness.md.
func (m *Engine) LearnTimeout() (longest time.Duration) {
	const slack = 200 * time.Millisecond
	for _, c := range m.config.Filters {
		window := c.Freshness.Window
		once := changelog.LongestWait(appendTimeout, c.ChangeLog.Lease, window)
		longest = max(longest, once+changelog.Again(appendTimeout, window)+slack) // an ID, and then a doubt
	}
	return longest
}

// looksUp reports whether a rule refuses by a filter.
func (m *Engine) looksUp(filter string) bool {
	return slices.ContainsFunc(m.config.Rules, func(r config.Rule) bool {
		return r.Lookup != nil && r.Lookup.Filter == filter && r.Mode != config.ModeObserve
	})
}

// Gate returns what decides now. It is immutable and safe for concurrent use.
func (m *Engine) Gate() *gate.Gate { return m.inForce.gate.Load() }

// Start runs the filters in the background, and looks after the locks, until Close.
func (m *Engine) Start(ctx context.Context) {
	ctx, m.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.background = func(do func(context.Context)) { m.wg.Go(func() { do(ctx) }) }
	for name, unit := range m.filters {
		m.wg.Go(func() { _ = unit.filter.Run(ctx) })
		m.wg.Go(func() { unit.measures.run(ctx) })
		m.wg.Go(func() { unit.growth.run(ctx) })
		m.wg.Go(func() { unit.reconcile.run(ctx) })
		for _, f := range unit.followers {
			m.wg.Go(func() { f.run(ctx) })
		}
		if unit.shared != nil {
			m.wg.Go(func() { _ = unit.shared.Run(ctx) })
		}
		m.wg.Go(func() {
			sources := unit.sources
			if m.config.Filters[name].Kind != config.FilterLayered && unit.shared != nil {
				sources = nil // they are read into Redis only
			}
			unit.feed(ctx, sources, m.log.With("filter", name))
		})
	}
	m.background(m.memory.Run)
	m.background(m.watchAudit)
	m.background(m.eviction.Run)
	for _, unit := range m.watches {
		m.background(unit.Watch)
	}
}

// AwaitHolds blocks until Redis has taken the hold of every lock whose call ended with an
// unknown outcome, or its lease has ended, or ctx ends. Call it between the last call and
// Close, which gives the rest up.
func (m *Engine) AwaitHolds(ctx context.Context) { m.lockers.AwaitHolds(ctx) }

// Close stops what Start began, and lets go of Redis. Leases that are held are renewed
// no more, and end by themselves.
func (m *Engine) Close() {
	if m.cancel != nil {
		m.cancel()
		close(m.ending)
	}
	m.wg.Wait()
	m.lockers.Close()
	m.warnings.Close()
	for _, unit := range m.filters {
		if unit.shared != nil {
			unit.shared.Close()
		}
	}
	for _, closeClient := range m.closers {
		closeClient()
	}
}
