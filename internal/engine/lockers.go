package engine

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
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

// gateLockers returns what finds the locks of rules, and makes them.
func (m *Engine) gateLockers(ctx context.Context) LocksOf {
	return func(name string, r config.Rule) (gate.Locker, error) {
		use := lockUse{name, r.Mode == config.ModeObserve}
		unit, err := m.lockUnit(ctx, use)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		return NewGateLocker(unit.locker, m.config.Locks[name], r.Settle.MaxHold, use.observe), nil
	}
}

// lockUnit returns the Locker for a use, and makes it at the first.
func (m *Engine) lockUnit(ctx context.Context, use lockUse) (*lockUnit, error) {
	if unit, ok := m.lockers[use]; ok {
		return unit, nil
	}
	c, log := m.config.Locks[use.lock], m.log.With("lock", use.String())
	opts := redislock.Options{
		Kind: redislock.Kind(c.Kind), Format: redislock.Format(c.Format), Permits: c.Permits,
		Lease: c.Lease, Hold: c.OnUnknownOutcome.Hold, MaxWaitersPerKey: c.MaxWaitersPerKey,
		Wait:    redislock.Wait{Tries: c.Wait.Tries, Every: c.Wait.Every, UpTo: c.Wait.UpTo},
		Process: m.process, Observer: lockObserver{m.metrics.Lock(use.String())}, Logger: log,
	}
	if use.observe {
		opts.Wait = redislock.Wait{Tries: 1}
	}
	if c.Replicas != nil {
		opts.Replicas, opts.ReplicaTimeout = c.Replicas.Confirm, c.Replicas.Timeout
	}
	locker, err := m.newLocker(ctx, c, opts)
	if err != nil {
		return nil, err
	}
	m.metrics.LockGauges(use.String(), locker.Held, locker.Waiting)
	unit := &lockUnit{use: use, locker: locker, log: log}
	unit.probe = NewGateLocker(locker, c, 0, use.observe).Key(noOrder)
	m.lockers[use] = unit
	return unit, nil
}

func (m *Engine) newLocker(ctx context.Context, c config.Lock, opts redislock.Options) (*redislock.Locker, error) {
	if c.Kind != config.LockQuorum {
		return redislock.New(m.redis, opts)
	}
	opts.Kind = redislock.Exclusive
	var clients []redis.UniversalClient
	for _, address := range c.Quorum.Addresses {
		client, closeClient, err := Connect(ctx, QuorumServer(m.config.Redis, address))
		if err != nil {
			return nil, err
		}
		clients, m.closers = append(clients, client), append(m.closers, closeClient)
	}
	return redislock.NewQuorum(clients, opts)
}

// QuorumServer returns how to reach one server of a quorum: like the Redis of
// everything else, if there is any.
func QuorumServer(r *config.Redis, address string) *config.Redis {
	server := config.Redis{Mode: config.RedisSingle, Addresses: []string{address}}
	if r != nil {
		server.Username, server.Password, server.TLS = r.Username, r.Password, r.TLS
	}
	return &server
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
