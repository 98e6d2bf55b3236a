package engine

import (
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/testbed"
	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// lockEngine makes what locks need of an engine, and nothing of it works in the
// background.
func lockEngine(t *testing.T, r *config.Redis, l config.Lock) (*Engine, *bedtest.Log) {
	t.Helper()
	c := &config.Config{Redis: r, Locks: map[string]config.Lock{"settlement": l}}
	c.EnsureDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	log := &bedtest.Log{}
	m := &Engine{
		config: c, log: slog.New(slog.NewTextHandler(log, nil)), metrics: admin.NewMetrics("", time.Now()),
	}
	client, closeClient, err := redisconn.Connect(t.Context(), c.Redis, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.redis, m.closers = client, []func(){closeClient}
	t.Cleanup(m.Close)
	return m, log
}

func (m *Engine) mustUnit(t *testing.T, use lockUse) *lockUnit {
	t.Helper()
	unit, err := m.lockUnit(t.Context(), use, m.config.Locks[use.lock])
	if err != nil {
		t.Fatal(err)
	}
	return unit
}

// TestLockCondition has a user that may not run scripts.
func TestLockCondition(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--user", "gate", "on", ">secret", "~*", "&*", "+@all", "-eval", "-evalsha")
	m, log := lockEngine(t, &config.Redis{Addresses: []string{server.Addr()}, Username: "gate", Password: "secret"}, config.Lock{})
	unit, observed := m.mustUnit(t, lockUse{lock: "settlement"}), m.mustUnit(t, lockUse{"settlement", true})
	if c := unit.condition(); c.Ready || c.Name != "lock settlement" || c.Reason != "not tried out yet" {
		t.Errorf("before the first try: %+v", c)
	}
	unit.check(t.Context())
	observed.check(t.Context())
	for _, c := range []admin.Condition{unit.condition(), observed.condition()} {
		isObserved := c.Name == "lock settlement:observe"
		if c.Ready != isObserved || !strings.Contains(c.Reason, "settlements are refused: redis does not serve locks: NOPERM") {
			t.Errorf("refused: %+v", c)
		}
	}
	if n := strings.Count(log.String(), "no lock can be taken"); n != 2 {
		t.Errorf("told %d times: %s", n, log)
	}

	operator, closeOperator, err := redisconn.Connect(t.Context(), &config.Redis{
		Mode: config.RedisSingle, Addresses: []string{server.Addr()}, Username: testbed.User, Password: testbed.Password,
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer closeOperator()
	if err := operator.Do(t.Context(), "acl", "setuser", "gate", "+eval", "+evalsha").Err(); err != nil {
		t.Fatal(err)
	}
	unit.check(t.Context())
	if c := unit.condition(); !c.Ready || c.Reason != "" || !unit.passed {
		t.Errorf("allowed: %+v", c)
	}
	if !strings.Contains(log.String(), "locks can be taken again") {
		t.Errorf("not told: %s", log)
	}
	if keys := operator.Keys(t.Context(), "order:lock:*").Val(); len(keys) != 0 {
		t.Errorf("left behind: %q", keys)
	}
}

// TestLockConditionWithoutRedis checks that a Redis that is away does not take
// readiness away: that is a condition of its own.
func TestLockConditionWithoutRedis(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m, log := lockEngine(t, &config.Redis{Addresses: []string{addr}}, config.Lock{})
	unit := m.mustUnit(t, lockUse{lock: "settlement"})
	unit.check(t.Context())
	if c := unit.condition(); !c.Ready || c.Reason != "" || unit.passed {
		t.Errorf("got %+v", c)
	}
	if strings.Contains(log.String(), "no lock can be taken") {
		t.Errorf("logged %s", log)
	}
}

// TestFencesInTheOrderAsked has IDs whose keys sort in another order.
func TestFencesInTheOrderAsked(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis()
	m, _ := lockEngine(t, &config.Redis{Addresses: []string{server.Addr()}}, config.Lock{Key: "order:{id}:lock"})
	locker, err := m.gateLockers(t.Context(), m.config, map[lockUse]*lockUnit{})("settlement", config.Rule{Settle: &config.Settle{}})
	if err != nil {
		t.Fatal(err)
	}
	const last = 2_000_000_000_000_000 // ahead of the clock, in microseconds since 1970
	ids, want := []string{"1", "10", "2"}, []int64{last + 2, last + 11, last + 3}
	for i, id := range ids {
		if err := m.redis.Set(t.Context(), "redisson_lock_token:{order:"+id+":lock}", want[i]-1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	lease, err := locker.Acquire(t.Context(), gate.LockRequest{IDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, lease.Fences()); diff != "" {
		t.Error("fences (-want +got):\n" + diff)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
