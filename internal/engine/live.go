package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/condition"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// LiveReport is what [CheckLive] finds. Each violation has Path and Message.
type LiveReport struct {
	Problems []config.Violation       // of servers and sources
	Misfits  []config.Violation       // of the configuration: rules refuse IDs that a source has
	Notes    []config.Violation       // what will be slow or unsafe
	Samples  []string                 // lines with some IDs of each source, as each rule reads them
	Clocks   map[string]time.Duration // by table: how far its database's clock is ahead of this machine's
}

// CheckLive connects to the servers and sources of a valid configuration, as a starting
// ordergate does. It takes each lock once, with
// an ID that no order has. It reads the change logs without joining them as a member, and
// creates no slot for logical replication. It blocks for some seconds for each server that does
// not answer.
func CheckLive(ctx context.Context, c *config.Config) LiveReport {
	l := &liveCheck{config: c, sources: make(map[string]bool), result: LiveReport{Clocks: make(map[string]time.Duration)}}
	l.checkFiles()
	defer l.connect(ctx)()
	for _, name := range slices.Sorted(maps.Keys(c.Locks)) {
		l.checkLock(ctx, "locks."+name, locking.Use{Lock: name}, c.Locks[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Filters)) {
		l.checkFilter(ctx, name, c.Filters[name])
	}
	for i := range c.Rules {
		l.checkRule(ctx, fmt.Sprintf("rules[%d].", i), &c.Rules[i])
	}
	return l.result
}

// liveCheck is the state of one CheckLive.
type liveCheck struct {
	config  *config.Config
	redis   redis.UniversalClient // nil: no Redis to check, or it is not reachable
	result  LiveReport
	sources map[string]bool // that were checked already
}

// report adds an error to the problems found; nil: it does nothing.
func (l *liveCheck) report(path string, err error) {
	if err != nil {
		l.result.Problems = append(l.result.Problems, config.Violation{Path: path, Message: err.Error()})
	}
}

// connect checks that Redis is reachable, and that it does not evict keys.
func (l *liveCheck) connect(ctx context.Context) (shut func()) {
	c := l.config.Redis
	if c == nil || c.Mode == config.RedisEmbedded {
		return func() {}
	}
	client, shut, err := redisconn.Connect(ctx, c, 0)
	if err != nil {
		l.report("redis", err)
		return func() {}
	}
	if err := client.Ping(ctx).Err(); err != nil {
		l.report("redis", redisconn.Explain(err))
		return shut
	}
	l.redis = client
	stored := redisconn.Stored{ChangeLogs: len(l.config.Filters) > 0}
	for _, lock := range l.config.Locks {
		stored.Locks = stored.Locks || lock.Kind != config.LockQuorum
	}
	for i := range l.config.Rules {
		byKey, _ := l.config.Rules[i].ByKey()
		stored.Locks = stored.Locks || byKey != nil
	}
	if found := redisconn.CheckEviction(ctx, stored, client); found.Text != "" {
		l.report("redis", errors.New(found.Text))
	}
	return shut
}

func (l *liveCheck) checkLock(ctx context.Context, path string, use locking.Use, c config.Lock) {
	if c.Kind != config.LockQuorum && l.redis == nil {
		return
	}
	locking.Check(ctx, l.redis, l.config, use, c, func(place string, err error) { l.report(path+place, err) })
}

// checkRule checks what a rule needs besides locks and filters: the lock of its keys, the keys of
// its conditions, and the table of its dedup.
func (l *liveCheck) checkRule(ctx context.Context, path string, r *config.Rule) {
	if o, at := r.ByKey(); o != nil {
		l.checkLock(ctx, path+at, locking.UseOf(r, config.OnceLock, !r.Mode.Enforces()), l.config.LockOf(r, config.OnceLock))
	}
	if r.Settle != nil && l.redis != nil {
		l.checkConditions(ctx, path+"settle.require", r)
	}
	if create := r.Create; create != nil && create.Dedup != nil {
		l.report(path+"create.dedup.confirm", loader.CheckConfirmer(ctx, l.config, r))
	}
}

// checkConditions reads the keys of a rule's conditions, with an ID that no order has.
func (l *liveCheck) checkConditions(ctx context.Context, path string, r *config.Rule) {
	list, _, err := rules.Conditions(r)
	if err != nil {
		l.report(path, err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, redisconn.Timeout)
	defer cancel()
	checker := redislock.NewChecker(l.redis)
	defer checker.Close()
	set := condition.New(list, condition.Options{Checker: checker, Now: time.Now})
	for i, state := range set.Probe(ctx) {
		if state.Err != nil {
			l.report(fmt.Sprintf("%s[%d]", path, i), fmt.Errorf("the key %s cannot be read: %w", list[i].Key, state.Err))
		}
	}
}

func (l *liveCheck) checkFilter(ctx context.Context, name string, c config.Filter) {
	if l.redis != nil {
		l.report("filters."+name, loader.CheckLog(ctx, l.redis, name))
		if c.InRedis() != "" {
			if err := l.redis.Exists(ctx, c.KeyPrefix).Err(); err != nil {
				l.report("filters."+name+".key_prefix", err)
			}
		}
	}
	for _, s := range c.Sources {
		if !l.sources[s] {
			l.sources[s] = true
			l.checkSource(ctx, name, s)
		}
	}
}
