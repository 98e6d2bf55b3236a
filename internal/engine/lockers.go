package engine

import (
	"context"
	"fmt"
	"math"
	"os"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// lockUse names a Locker: an observing rule uses one that does not wait.
type lockUse struct {
	lock    string
	observe bool
}

// String returns the name in metrics, logs and readiness.
func (u lockUse) String() string {
	if u.observe {
		return u.lock + config.ObservedSuffix
	}
	return u.lock
}

// LocksOf finds a lock by its name, for a rule.
type LocksOf func(name string, r config.Rule) (gate.Locker, error)

// gateLockers returns what finds the locks of a configuration's rules, and puts the
// units that they need into those given: one from before where its lock is the same,
// otherwise a new one.
func (m *Engine) gateLockers(ctx context.Context, c *config.Config, units map[lockUse]*lockUnit) LocksOf {
	return func(name string, r config.Rule) (gate.Locker, error) {
		use := lockUse{name, r.Mode == config.ModeObserve}
		unit := units[use]
		if unit == nil {
			var err error
			if unit, err = m.lockUnit(ctx, use, c.Locks[name]); err != nil {
				return nil, fmt.Errorf("lock %s: %w", name, err)
			}
			units[use] = unit
		}
		locker := NewGateLocker(c.Locks[name], r.Settle.MaxHold, use.observe)
		locker.unit = unit
		if name == lastLock(r.Settle) {
			locker.inFlight, locker.hold = &m.flight, c.Locks[r.Settle.Lock].OnUnknownOutcome.Hold
			locker.rule = r.Name
		}
		return locker, nil
	}
}

// flightLimitsOf returns those of each rule that settles.
func flightLimitsOf(c *config.Config) map[string]flightLimits {
	limits := make(map[string]flightLimits)
	for _, r := range c.Rules {
		switch {
		case r.Settle == nil:
		case r.Mode == config.ModeObserve: // it is counted, and keeps nobody out
			limits[r.Name] = flightLimits{calls: math.MaxInt, perClient: math.MaxInt}
		default:
			limits[r.Name] = flightLimits{calls: r.Settle.MaxInFlight, perClient: r.Settle.MaxInFlightPerClient}
		}
	}
	return limits
}

// lastLock names the lock with which a call has all that it needs, and begins: a call that
// waits for its permit is not in flight.
func lastLock(s *config.Settle) string {
	if s.Limit != nil {
		return s.Limit.Lock
	}
	return s.Lock
}

// lockUnit returns the unit in force for a use, or a new one if its lock is another.
func (m *Engine) lockUnit(ctx context.Context, use lockUse, c config.Lock) (*lockUnit, error) {
	if unit := m.lockers.of(use); unit != nil && reflect.DeepEqual(unit.config, c) {
		return unit, nil
	}
	log := m.log.With("lock", use.String())
	opts := lockerOptions(c)
	opts.Process, opts.Observer, opts.Logger = m.process, lockObserver{m.metrics.Lock(use.String())}, m.warnings.Logger(log)
	if use.observe {
		opts.Wait = redislock.Wait{Tries: 1}
	}
	// It may be made again, for calls of rules that are not in force any more.
	ctx = context.WithoutCancel(ctx)
	unit := &lockUnit{
		use: use, config: c, log: log, probe: NewGateLocker(c, 0, use.observe).Key(noOrder),
		make:    func() (*redislock.Locker, func(), error) { return m.newLocker(ctx, c, opts) },
		retired: make(chan struct{}),
	}
	if c.Kind == config.LockQuorum {
		unit.eviction = redisconn.NewEvictionWatch(func() []redis.UniversalClient { return unit.locker.Load().Servers() },
			func() redisconn.Stored { return redisconn.Stored{Locks: !use.observe} }, log)
	}
	return unit, m.lockers.open(unit)
}

// lockerOptions returns what the configuration says of a lock.
func lockerOptions(c config.Lock) redislock.Options {
	opts := redislock.Options{
		Kind: redislock.Kind(c.Kind), Format: redislock.Format(c.Format), Permits: c.Permits,
		Lease: c.Lease, Hold: c.OnUnknownOutcome.Hold, MaxWaitersPerKey: c.MaxWaitersPerKey, FenceLife: c.KeepFence,
		Wait: redislock.Wait{Tries: c.Wait.Tries, Every: c.Wait.Every, UpTo: c.Wait.UpTo},
	}
	if c.Replicas != nil {
		opts.Replicas, opts.ReplicaTimeout = c.Replicas.Confirm, c.Replicas.Timeout
	}
	return opts
}

// newLocker returns a Locker, and what closes it.
func (m *Engine) newLocker(ctx context.Context, c config.Lock, opts redislock.Options) (*redislock.Locker, func(), error) {
	if c.Kind != config.LockQuorum {
		locker, err := redislock.New(m.redis, opts)
		if err != nil {
			return nil, nil, err
		}
		return locker, locker.Close, nil
	}
	opts.Kind = redislock.Exclusive
	var clients []redis.UniversalClient
	var closers []func()
	disconnect := func() {
		for _, closeClient := range closers {
			closeClient()
		}
	}
	for _, address := range c.Quorum.Addresses {
		client, closeClient, err := redisconn.Connect(ctx, redisconn.QuorumServer(m.config.Redis, address), 0)
		if err != nil {
			disconnect()
			return nil, nil, err
		}
		clients, closers = append(clients, client), append(closers, closeClient)
	}
	locker, err := redislock.NewQuorum(clients, opts)
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	return locker, func() { locker.Close(); disconnect() }, nil
}

// processName names this process to whoever looks at a lock: by its host, which in
// a pod is the pod's name.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}
