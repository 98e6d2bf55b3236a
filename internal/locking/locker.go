package locking

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// Use identifies a Locker: a lock, and whether its calls are only observed. The Locker of
// observed calls does not wait.
type Use struct {
	Lock    string
	Observe bool
}

// String returns the name in metrics, logs and readiness.
func (u Use) String() string {
	if u.Observe {
		return u.Lock + config.ObservedSuffix
	}
	return u.Lock
}

// UseOf returns the use of a lock by a rule, for enforced or observed calls. [config.OnceLock] is that
// of the rule's keys.
func UseOf(r *config.Rule, name string, observe bool) Use {
	if name == config.OnceLock {
		name += ":" + r.Name // no lock in the file has a colon
	}
	return Use{name, observe}
}

// Locker implements rules.Components. It keeps the active Locker if its lock is the same, and opens a
// new one otherwise.
func (v *Version) Locker(ctx context.Context, name string, r *config.Rule, observe bool) (gate.Locker, error) {
	use := UseOf(r, name, observe)
	unit := v.units[use]
	if unit == nil {
		var err error
		if unit, err = v.lockers.unit(ctx, use, v.config.LockOf(r, name), storedNames(v.config, use)); err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		v.units[use] = unit
	}
	locker := KeyLocker(v.config, name, r, observe)
	locker.unit = unit
	if r.Settle != nil && name == lastLock(r.Settle) {
		locker.inFlight, locker.hold = &v.lockers.inFlight, v.config.Locks[r.Settle.Lock].OnUnknownOutcome.Hold
		locker.rule = limitsName(r.Name, observe)
	}
	return locker, nil
}

// KeyLocks returns the locks of all rules' keys, by their names in metrics and logs.
func KeyLocks(c *config.Config) map[string]config.Lock {
	locks := make(map[string]config.Lock)
	for i := range c.Rules {
		r := &c.Rules[i]
		if o, _ := r.ByKey(); o != nil {
			locks[UseOf(r, config.OnceLock, false).Lock] = c.LockOf(r, config.OnceLock)
		}
	}
	return locks
}

// storedNames returns the names of the stored answers beside a lock.
func storedNames(c *config.Config, use Use) (names []string) {
	if use.isOfKeys() {
		return []string{config.OnceAnswer}
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if o, _ := r.ByOrder(); o != nil && r.OrderLock() == use.Lock {
			for _, name := range append([]string{o.Name}, o.Forget...) {
				if name != "" && name != config.OnceAll && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// flightLimitsOf returns those of each rule that settles.
func flightLimitsOf(c *config.Config) map[string]flightLimits {
	limits := make(map[string]flightLimits)
	for _, r := range c.Rules {
		if r.Settle == nil {
			continue
		}
		limits[limitsName(r.Name, false)] = flightLimits{calls: r.Settle.MaxInFlight, perClient: r.Settle.MaxInFlightPerClient}
		// Observed calls are counted, and not limited.
		limits[limitsName(r.Name, true)] = flightLimits{calls: math.MaxInt, perClient: math.MaxInt}
	}
	return limits
}

// limitsName names the limits of a rule's calls. No rule has a colon in its name.
func limitsName(rule string, observed bool) string {
	if observed {
		return rule + config.ObservedSuffix
	}
	return rule
}

// lastLock names the last lock that a call acquires before it is forwarded. A call that waits
// for its permit is not in flight.
func lastLock(s *config.Settle) string {
	if s.Limit != nil {
		return s.Limit.Lock
	}
	return s.Lock
}

// unit returns the active unit for a use, or a new one if its lock has changed.
func (s *Lockers) unit(ctx context.Context, use Use, c config.Lock, stored []string) (*Unit, error) {
	if unit := s.of(use); unit != nil && reflect.DeepEqual(unit.config, c) {
		return unit, nil
	}
	log := s.opts.Logger.With("lock", use.String())
	opts := lockerOptions(use, c)
	opts.Process, opts.Observer, opts.Logger = s.opts.Process, s.opts.Metrics.Lock(use.String()), s.opts.Warnings.Logger(log)
	if use.Observe {
		opts.Wait = redislock.Wait{Tries: 1}
	}
	// enter may open it again for calls of earlier rules.
	ctx = context.WithoutCancel(ctx)
	unit := &Unit{
		use: use, config: c, log: log, probeKey: newGateLocker(c, 0, use.Observe).Key(probeID), stored: stored,
		open: func() (*redislock.Locker, func(), error) {
			return openLocker(ctx, s.opts.Redis, s.opts.RedisConfig, c, opts)
		},
		retired: make(chan struct{}),
	}
	if c.Kind == config.LockQuorum {
		unit.eviction = redisconn.NewEvictionWatch(func() []redis.UniversalClient { return unit.locker.Load().Servers() },
			func() redisconn.Stored { return redisconn.Stored{Locks: !use.Observe} }, log)
	}
	return unit, s.open(unit)
}

// isOfKeys reports whether the lock is that of a rule's keys: see [UseOf].
func (u Use) isOfKeys() bool { return strings.HasPrefix(u.Lock, config.OnceLock+":") }

// outlives is how much longer than keep_fence the last fence of a lock stays. An answer that is kept for as
// long ends after its grant's fence otherwise, and takes another key: see [redislock.Lease.StoreAnswer].
const outlives = time.Hour

// lockerOptions returns the configured options of a lock.
func lockerOptions(use Use, c config.Lock) redislock.Options {
	opts := redislock.Options{
		Kind: redislock.Kind(c.Kind), Format: redislock.Format(c.Format), Permits: c.Permits,
		Lease: c.Lease, Hold: c.OnUnknownOutcome.Hold, MaxWaitersPerKey: c.MaxWaitersPerKey,
		Gather: true,
		Wait:   redislock.Wait{Tries: c.Wait.Tries, Every: c.Wait.Every, UpTo: c.Wait.UpTo},
	}
	opts.FenceLife = c.KeepFence
	if use.isOfKeys() {
		opts.FenceLife = c.Lease
	}
	// A lock of keys, or of sessions, has no row in a database whose fence would be compared.
	opts.FencesUnused = use.isOfKeys() || c.OfTokens()
	if !opts.FencesUnused && c.KeepFence > 0 && opts.Kind != redislock.Semaphore {
		opts.FenceLife = c.KeepFence + outlives
	}
	if c.Replicas != nil {
		opts.Replicas, opts.ReplicaTimeout = c.Replicas.Confirm, c.Replicas.Timeout
	}
	return opts
}

// openLocker returns a Locker, and the function that closes it.
func openLocker(ctx context.Context, client redis.UniversalClient, common *config.Redis, c config.Lock, opts redislock.Options) (*redislock.Locker, func(), error) {
	if c.Kind != config.LockQuorum {
		locker, err := redislock.New(client, opts)
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
		server, closeClient, err := redisconn.Connect(ctx, redisconn.QuorumServer(common, address), 0)
		if err != nil {
			disconnect()
			return nil, nil, err
		}
		clients, closers = append(clients, server), append(closers, closeClient)
	}
	locker, err := redislock.NewQuorum(clients, opts)
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	return locker, func() { locker.Close(); disconnect() }, nil
}
