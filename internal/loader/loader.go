// Package loader makes the filters ready, and keeps them up to date: it reads their sources,
// follows tables and the change log, clears doubts, and writes snapshots.
//
// [New] builds a filter with everything that feeds it, and [Loader.Run] does the work.
// Package filter answers lookups.
package loader

import (
	"context"
	"errors"
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
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/timeouts"
)

// Options are what the loaders of all filters have in common.
type Options struct {
	Config     *config.Config
	Redis      redis.UniversalClient // nil without the section redis
	InstanceID string                // identifies the instance in change logs
	Process    string                // names the process to an operator who inspects a lock
	Metrics    *metrics.Metrics
	Warnings   *recurring.Warnings // an outage of Redis causes one with each use of a lock
	Logger     *slog.Logger
}

// Loader is a filter with everything that feeds it.
type Loader struct {
	config      config.Filter
	logger      *slog.Logger
	filter      *filter.Filter
	log         *changelog.Log // nil without a change log
	sources     []filter.Source
	fingerprint func(now time.Time) string // of the state of the sources; "": unknown
	set         *redisset.Set              // nil: the filter is in memory
	snapshots   *snapshots                 // nil: a restart reads the sources
	growth      *growthState               // nil: the filter does not grow, or does so without Redis
	followers   []*follower                // of its tables
	feeds       []*feed
	asker       *asker         // of its followers
	reconcile   *reconciler    // nil: the tables are not compared with the filter
	cache       *snapshotCache // nil: each instance reads the sources itself
	// logSnapshot is in Redis, and the log is trimmed up to it; nil: there is none.
	logSnapshot *logSnapshot
	checkpoints *checkpointStore // of the set in Redis; nil: the tables are in memory
	margin      time.Duration    // see marginOf
	commitDelay time.Duration    // see commitDelayOf
	rereadAt    atomic.Int64     // when the tables are read once more, in ns since 1970; 0: never
}

// New builds the loader of a configured filter, and registers its metrics. It waits neither
// for the change log nor for a source. The parts call the loader back only after
// [Loader.Run] has begun. Close the loader.
func New(ctx context.Context, o *Options, name string) (_ *Loader, err error) {
	c := o.Config.Filters[name]
	if len(c.Sources) == 0 && c.InRedis() == "" && o.isLookedUp(name) {
		o.Logger.Warn("the filter has no sources: ordergate refuses every order that it has not learned", "filter", name,
			runbook.NoLiveSource.Do("nothing if every order was created through ordergate; otherwise name its sources"))
	}
	formats, err := rules.FormatsOf(o.Config, name)
	if err != nil {
		return nil, err
	}
	check := rules.Check(formats)
	l := &Loader{
		config: c, logger: o.Logger.With("filter", name),
		margin: marginOf(o.Config, name), commitDelay: commitDelayOf(o.Config, name),
	}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	opts := filter.Options{
		Capacity: c.Capacity, FalsePositiveRate: c.FalsePositiveRate,
		Layout: bloom.Layout(c.Layout), Exact: c.Kind == config.FilterExact,
		Check:          check,
		CanonicalForms: func(id string) (first string, others []string) { return order.CanonicalForms(formats, id) },
		WithinGrace:    withinGraceOf(o.Config, name, formats, time.Now), CreatedBefore: createdBeforeOf(formats),
		Segments:    segmentsOf(c.Segments, formats),
		CommitDelay: l.commitDelay, ClockMargin: l.margin, Covered: l.covered,
		Logger: o.Logger,
	}
	if opts.Key, err = o.keyOf(ctx, name, c); err != nil {
		return nil, err
	}
	l.logSnapshot = o.newLogSnapshot(name, c, l, opts.Key)
	if o.Redis != nil {
		if err := l.openLog(o, name, &opts); err != nil {
			return nil, err
		}
	}
	if l.sources, err = sourcesOf(o.Config, name, formats, o.Logger); err != nil {
		return nil, err
	}
	ids := rules.IDsOf(o.Config, name)
	l.fingerprint = func(now time.Time) string { return fingerprintOf(l.sources, c.Parts, ids, now) }
	tables := l.tables()
	o.watchChains(name, tables)
	for _, t := range tables {
		t.dropped = l.dropped
	}
	opts.Live = len(tables) > 0
	if c.InRedis() == "" {
		opts.Growth = o.growth(name, c.Expand, l)
	} else {
		if l.set, err = o.newSet(name, c, l, opts); err != nil {
			return nil, err
		}
		besideSet(&opts, c, l.set)
	}
	if l.filter, err = filter.New(name, opts); err != nil {
		return nil, err
	}
	l.snapshots = o.newSnapshots(name, c, l)
	l.cache = o.newSnapshotCache(name, l)
	l.followers = o.followers(name, l, formats)
	l.asker = &asker{client: o.Redis, filter: name}
	if l.feeds, err = o.feeds(name, l, formats); err != nil {
		return nil, err
	}
	for _, f := range l.followers {
		l.asker.tables = append(l.asker.tables, f.table)
	}
	if l.reconcile, err = o.newReconciler(name, l); err != nil {
		return nil, err
	}
	if opts.Growth != nil && opts.Growth.LeaderLock != nil {
		l.growth = newGrowthState(o, name, l.filter)
	}
	l.registerMetrics(o.Metrics, name)
	return l, nil
}

// openLog opens the change log of a filter. The loader follows it even if an Absent does not
// depend on it: its orders always exist.
func (l *Loader) openLog(o *Options, name string, opts *filter.Options) (err error) {
	c := l.config
	logOpts := changelog.Options{
		Check: opts.Check, OnDoubt: l.doubt, OnCleared: l.cleared, PersistGaps: !hasTable(o.Config, c),
		Parts: c.Parts, Member: o.InstanceID, Require: followedMembers(o.Config, name),
		Ephemeral:  o.Config.Redis.Mode == config.RedisEmbedded,
		MinEntries: c.ChangeLog.Keep, Lease: c.ChangeLog.Lease, Expel: c.ChangeLog.Expel, Window: c.Freshness.Window, Logger: o.Logger,
	}
	if l.logSnapshot != nil {
		logOpts.LoadSnapshot = l.logSnapshot.bridge
	}
	if l.log, err = changelog.New(o.Redis, name, func(id string) { l.filter.Add(id) }, logOpts); err != nil {
		return err
	}
	opts.Appender, opts.AppendTimeout, opts.LastRead, opts.StaleAfter = appender{l.log}, timeouts.Append, l.log.LastRead, c.StaleAfter
	if c.Freshness.Mode == config.FreshnessWindow {
		opts.Window = func() filter.Window { return l.log.Window() }
		opts.WindowErr = l.log.Err
	}
	return nil
}

func (l *Loader) registerMetrics(m *metrics.Metrics, name string) {
	gauges := metrics.Filter{
		IDs: l.filter.Count, Capacity: l.filter.Capacity, FillRatio: l.filter.FillRatio,
		State: func() string { s, _ := l.filter.State(); return s },
	}
	if l.log != nil {
		gauges.Log = func() metrics.Log { return logMetrics(l) }
	}
	if r := l.reconcile; r != nil {
		gauges.Reconciled = func() (checked, missing uint64) { return r.checked.Load(), r.missing.Load() }
	}
	m.FilterGauges(name, gauges)
	for _, f := range l.followers {
		m.SourceGauges(name, f.name, f.state.lag)
	}
	for _, f := range l.feeds {
		m.SourceGauges(name, f.name, f.state.lag)
	}
}

// isLookedUp reports whether a rule refuses requests by a filter.
func (o *Options) isLookedUp(filter string) bool {
	return slices.ContainsFunc(o.Config.Rules, func(r config.Rule) bool {
		return r.Lookup != nil && r.Lookup.Filter == filter && r.Mode.Enforces()
	})
}

// Filter returns the filter that the loader feeds.
func (l *Loader) Filter() *filter.Filter { return l.filter }

// Log returns the filter's change log; nil: it has none.
func (l *Loader) Log() *changelog.Log { return l.log }

// Set returns the filter's set in Redis; nil: it has none.
func (l *Loader) Set() *redisset.Set { return l.set }

// Conditions returns the readiness of the filter and its followed tables. What the
// configuration names has to have worked once since the start: a source that could be read, a
// table that could be followed. Later outages only have a reason.
func (l *Loader) Conditions(ctx context.Context, name string) []health.Condition {
	state, reason := l.filter.State()
	if state == filter.StateUnknown {
		// It stays ready: the process refuses nothing while the filter is unknown.
		reason = "unknown, lookups of orders that do not exist go on to the backend: " + reason
	}
	c := health.Condition{Name: "filter " + name, Ready: l.filter.EverLoaded(), Reason: reason}
	if l.log != nil {
		switch err := l.log.Err(); {
		case errors.Is(err, changelog.ErrBlind):
			c.Ready, c.Reason = false, err.Error()
		case err != nil && state == filter.StateLoading:
			c.Reason = err.Error() + "; " + reason
		}
	}
	list := []health.Condition{c}
	for _, f := range l.followers {
		list = append(list, f.condition(ctx))
	}
	for _, f := range l.feeds {
		list = append(list, f.condition())
	}
	if l.filter.AtMax() {
		list = append(list, health.Condition{
			Name: "filter " + name + " growth", Ready: true,
			Reason: "the filter is too full, and has the greatest capacity that expand.max allows: more absent orders pass; raise expand.max",
		})
	}
	return list
}

// Run loads the filter and keeps it up to date, until ctx ends. Then it writes a last
// snapshot, and returns.
func (l *Loader) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = l.filter.Run(ctx) })
	wg.Go(func() { l.growth.run(ctx) })
	wg.Go(func() { l.reconcile.run(ctx) })
	for _, f := range l.followers {
		wg.Go(func() { f.run(ctx) })
	}
	for _, f := range l.feeds {
		wg.Go(func() { f.run(ctx) })
	}
	sources := l.sources
	if l.set != nil {
		wg.Go(func() { _ = l.set.Run(ctx) })
		if l.config.Kind != config.FilterLayered {
			sources = nil // they are read into Redis only
		}
	}
	l.load(ctx, sources)
}

// Close releases what New has opened. Run has returned, or was never called.
func (l *Loader) Close() {
	if l.set != nil {
		l.set.Close()
	}
}
