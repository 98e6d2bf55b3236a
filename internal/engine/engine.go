// Package engine assembles an ordergate without its adapters from a configuration, and reloads
// the configuration while it runs.
//
// Start with [New], then [Engine.Start]. [Engine.WatchGate] passes the gate to an adapter, now
// and after each reload ([Engine.ReloadFrom]). [Engine.AdminServer] is for operators. The
// packages loader, locking and admin do the work.
package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/bundle"
	"github.com/ordergate/ordergate/internal/decisionlog"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/lockreport"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/page"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/tracing"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Engine holds every component except the adapters. Close it after they have stopped.
type Engine struct {
	log     *slog.Logger
	config  *config.Config // of the start; for the settings that need a restart
	metrics *metrics.Metrics
	active  active // the settings that a reload can change

	redis         redis.UniversalClient    // nil when nothing needs it
	memory        *redisconn.MemoryWatch   // nil without redis
	eviction      *redisconn.EvictionWatch // of redis; nil without it
	closers       []func()                 // disconnect from Redis
	filters       map[string]*filterUnit
	lockers       *locking.Lockers
	confirmers    *confirmers
	checker       *redislock.Checker // of conditions; nil without redis
	requirements  *requirements
	refusals      gate.RecentRefusals
	decisions     *decisionlog.Log // nil: there is none
	tracer        *tracing.Tracer  // the same
	bodiesMissing recentEvent      // Envoy sent no body
	seal          *sharedSeal
	// attributesMissing: Envoy sent an answer without the attributes of its outcome.
	attributesMissing recentEvent
	// endsMissing: Envoy does not show how answers to settlements end.
	endsMissing recentEvent
	// warnings limits the log lines that an outage of Redis would cause with each request.
	warnings   recurring.Warnings
	recentLog  *bundle.Log
	version    string
	process    string // names this process to an operator who inspects a lock
	instanceID string // identifies the instance in change logs

	watches    []*locking.Unit // the locks of the start
	wg         sync.WaitGroup
	background func(func(context.Context)) // runs a task, and cancels its context at Close
	cancel     context.CancelFunc
	ending     chan struct{} // closed by Close
	closing    sync.Once
}

// New builds an engine from a valid configuration. It does not wait for Redis or a source. The
// metrics show the version as a label. The error names the part of the configuration that
// cannot be used here.
func New(ctx context.Context, c *config.Config, version string, log *slog.Logger) (*Engine, error) {
	m := &Engine{
		log: log, config: c, metrics: metrics.New(version, time.Now()),
		filters: make(map[string]*filterUnit), process: processName(), version: version,
		ending: make(chan struct{}), recentLog: &bundle.Log{},
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.background = func(do func(context.Context)) { m.wg.Go(func() { do(running) }) }
	m.cancel = cancel
	if c.Redis != nil {
		m.instanceID = instanceIDOf(c)
		client, closeClient, err := redisconn.Connect(ctx, c.Redis, 2*len(c.Filters)) // each change log has two blocking reads: for entries, and for readers
		if err != nil {
			cancel()
			return nil, err
		}
		m.redis, m.closers = client, append(m.closers, closeClient)
		m.checker = redislock.NewChecker(client)
		m.memory = redisconn.WatchMemory(client, log)
		if c.Redis.Mode != config.RedisEmbedded { // an embedded Redis has no memory limit of its own
			m.eviction = redisconn.NewEvictionWatch(func() []redis.UniversalClient { return []redis.UniversalClient{client} }, m.stored, log)
		}
	}
	m.seal = newSharedSeal(m.redis, log)
	m.lockers = locking.New(locking.Options{
		Redis: m.redis, RedisConfig: c.Redis, Process: m.process, Metrics: m.metrics, Warnings: &m.warnings, Logger: log,
	})
	m.metrics.InFlightGauges(m.lockers.InFlight)
	m.confirmers = newConfirmers(m.metrics, log)
	m.requirements = newRequirements()
	if err := m.openFilters(ctx); err != nil {
		m.Close()
		return nil, err
	}
	if err := m.openDecisionLog(); err != nil {
		m.Close()
		return nil, err
	}
	m.openTraces(ctx)
	next, err := m.prepare(ctx, c)
	if err != nil {
		m.Close()
		return nil, err
	}
	m.watches = m.lockers.Activate(next.locks)
	m.active.config = c
	m.active.gate.Store(next.gate)
	return m, nil
}

// stored returns what the active rules store in the common Redis. Quorums have their own servers.
func (m *Engine) stored() redisconn.Stored {
	return redisconn.Stored{Locks: m.lockers.UsesRedis(), ChangeLogs: len(m.filters) > 0}
}

func metricRules(c *config.Config) []metrics.Rule {
	rules := make([]metrics.Rule, len(c.Rules))
	for i, r := range c.Rules {
		byOrder, _ := r.ByOrder()
		byKey, _ := r.ByKey()
		rules[i] = metrics.Rule{Name: r.Name, Settles: r.Settle != nil, Creates: r.Create != nil, Stores: byOrder != nil || byKey != nil}
		lock := r.OrderLock()
		if lock != "" && r.Mode.Enforces() {
			rules[i].Lock = locking.Use{Lock: lock}.String()
		}
		if lock != "" && r.Mode.Observes() {
			rules[i].ObservedLock = locking.Use{Lock: lock, Observe: true}.String()
		}
	}
	return rules
}

// openDecisionLog opens the log of decisions, if the configuration has one.
func (m *Engine) openDecisionLog() (err error) {
	c := m.config.Log.Decisions
	if c == nil {
		return nil
	}
	opts := decisionlog.Options{To: c.To, Rules: c.Rules, Verdicts: c.Verdicts, Sample: c.Sample, IDs: c.IDs, Secret: string(c.Secret)}
	if m.decisions, err = decisionlog.Open(opts, m.log); err != nil {
		return err
	}
	for k := range decisionlog.Kind(decisionlog.Kinds) {
		m.metrics.DroppedDecisions(k.String(), func() uint64 { return m.decisions.Dropped(k) })
	}
	return nil
}

// openTraces begins to send traces, if the environment asks for them. A variable that is for other programs,
// too, does not keep this one from its start.
func (m *Engine) openTraces(ctx context.Context) {
	if !tracing.Enabled() {
		return
	}
	t, err := tracing.New(ctx, tracing.Options{Version: m.version, Instance: m.process, Order: m.decisions.Order, Logger: m.log})
	if err != nil {
		m.log.Warn("no traces are sent", "error", err, runbook.SpansDropped.Do("correct the variable that error names, and restart"))
		return
	}
	m.tracer = t
	m.metrics.Traces(t.Dropped)
}

// filterUnit is a filter with its loader, its measures and its verifier.
type filterUnit struct {
	*loader.Loader
	measures *measures
	verify   *verifier
}

func (m *Engine) openFilters(ctx context.Context) error {
	opts := &loader.Options{
		Config: m.config, Redis: m.redis, InstanceID: m.instanceID, Process: m.process,
		Metrics: m.metrics, Warnings: &m.warnings, Logger: m.log,
	}
	for name, c := range m.config.Filters {
		l, err := loader.New(ctx, opts, name)
		if err != nil {
			return fmt.Errorf("filter %s: %w", name, err)
		}
		unit := &filterUnit{Loader: l, measures: m.measure(name, c, l.Filter())}
		m.filters[name] = unit
		if unit.verify, err = m.newVerifier(name, l); err != nil {
			return fmt.Errorf("filter %s: verify: %w", name, err)
		}
	}
	return nil
}

// KeepLog sets the lines of the log that a report has. Call it before AdminServer.
func (m *Engine) KeepLog(l *bundle.Log) { m.recentLog = l }

// AdminServer returns the server for operators. The process is not ready while draining returns
// true.
func (m *Engine) AdminServer(draining func() bool) *http.Server {
	s := m.admin(draining)
	of := page.New(page.Options{
		Version: m.version, Config: m.activeConfig, Rules: m.metrics.Rules, Refusals: &m.refusals,
		Locks: func() *lockreport.Client { return lockreport.New(m.activeConfig(), m.redis) }, Filter: s.FilterReport, Logger: m.log,
		Conditions: func(ctx context.Context) []health.Condition { return m.conditions(ctx, draining()) },
		Loader:     func(filter string) *loader.Loader { return m.filters[filter].Loader },
	})
	if m.config.Listen.Admin != "" {
		m.background(of.Run)
	}
	s.Page = of.Handler()
	server := s.HTTP()
	server.RegisterOnShutdown(of.End)
	return server
}

func (m *Engine) admin(draining func() bool) *admin.Server {
	filters := make(map[string]admin.Filter, len(m.filters))
	for name, unit := range m.filters {
		filters[name] = admin.Filter{Loader: unit.Loader, MeasuredRate: unit.measures.meter.Rate}
	}
	var info func(context.Context) (map[string]string, error)
	if m.redis != nil {
		info = func(ctx context.Context) (map[string]string, error) { return redisconn.Info(ctx, m.redis) }
	}
	return &admin.Server{
		Version: m.version, Active: m.activeConfig, Effective: m.effective, FileChanges: m.fileChanges, Log: m.recentLog, RedisInfo: info,
		Config: m.config, Filters: filters, Metrics: m.metrics, Logger: m.log, Run: m.background,
		Conditions: func() []health.Condition { return m.conditions(context.Background(), draining()) }, Forget: m.forgetStored, Mark: m.mark,
	}
}

// Gate returns the active gate. It is immutable and safe for concurrent use.
func (m *Engine) Gate() *gate.Gate { return m.active.gate.Load() }

// Start runs the filters and checks the locks in the background, until Close.
func (m *Engine) Start() {
	for _, unit := range m.filters {
		m.background(unit.Run)
		m.background(unit.measures.run)
		m.background(unit.verify.run)
	}
	if m.redis != nil {
		m.background(m.awaitRedis)
	}
	m.background(m.memory.Run)
	m.background(m.watchAudit)
	m.background(m.watchAttachment)
	m.background(m.eviction.Run)
	for _, unit := range m.watches {
		m.background(unit.Watch)
	}
	m.confirmers.use(m.Gate().Policies())
	m.requirements.use(m.Gate().Policies(), false)
	m.background(m.requirements.run)
}

// AwaitLateEnds blocks until Redis has taken every hold of a lock whose outcome is unknown and
// every answer to be stored, or their leases have ended, or ctx ends. Call it between the last
// call and Close, which drops the remaining ones.
func (m *Engine) AwaitLateEnds(ctx context.Context) { m.lockers.AwaitLateEnds(ctx) }

// Close stops the background work, waits for it, and disconnects from Redis. The engine stops
// renewing its leases, and they expire. A second call does nothing.
func (m *Engine) Close() {
	m.closing.Do(func() {
		m.cancel()
		close(m.ending)
		m.wg.Wait()
		m.lockers.Close()
		m.confirmers.close()
		if m.checker != nil {
			m.checker.Close()
		}
		m.wg.Go(m.tracer.Close)
		m.decisions.Close()
		m.wg.Wait()
		m.warnings.Close()
		for _, unit := range m.filters {
			unit.verify.close()
			unit.Close()
		}
		for _, closeClient := range m.closers {
			closeClient()
		}
	})
}
