package locking

import (
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// newLockers returns Lockers with nothing in the background, for one lock.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newLockers(t *testing.T, r *config.Redis, l config.Lock) (*Lockers, *config.Config, *bedtest.Log) {
	t.Helper()
	c := &config.Config{Redis: r, Locks: map[string]config.Lock{"settlement": l}}
	c.EnsureDefaults()
	bedtest.Check(t, c.Validate())
	log := &bedtest.Log{}
	client, closeClient, err := redisconn.Connect(t.Context(), c.Redis, 0)
	bedtest.Check(t, err)
	t.Cleanup(closeClient)
	warnings := new(recurring.Warnings)
	t.Cleanup(warnings.Close)
	s := New(Options{
		Redis: client, RedisConfig: c.Redis, Metrics: metrics.New("", time.Now()), Warnings: warnings,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	t.Cleanup(s.Close)
	return s, c, log
}

func mustUnit(t *testing.T, s *Lockers, c *config.Config, use Use) *Unit {
	t.Helper()
	unit, err := s.unit(t.Context(), use, c.Locks[use.Lock], nil)
	bedtest.Check(t, err)
	return unit
}

// TestLockCondition has a user that may not run scripts.
func TestLockCondition(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--user", "gate", "on", ">secret", "~*", "&*", "+@all", "-eval", "-evalsha")
	s, c, log := newLockers(t, &config.Redis{Addresses: []string{server.Addr()}, Username: "gate", Password: "secret"}, config.Lock{})
	rules := []config.Rule{{Settle: &config.Settle{Lock: "settlement"}}}
	unit, observed := mustUnit(t, s, c, Use{Lock: "settlement"}), mustUnit(t, s, c, Use{"settlement", true})
	if c := unit.condition(c.Rules); c.Ready || c.Name != "lock settlement" || c.Reason != "not tested yet" {
		t.Errorf("before the first try: %+v", c)
	}
	unit.check(t.Context())
	observed.check(t.Context())
	for _, c := range []health.Condition{unit.condition(rules), observed.condition(rules)} {
		isObserved := c.Name == "lock settlement:observe"
		if c.Ready != isObserved || !strings.Contains(c.Reason, "settlements are refused: redis does not serve locks: NOPERM") {
			t.Errorf("refused: %+v", c)
		}
	}
	rules = []config.Rule{{Create: &config.Create{Lock: "settlement"}}, {Settle: &config.Settle{Lock: "another"}}}
	if c := unit.condition(rules); !strings.HasPrefix(c.Reason, "creates with a lock are refused: redis does not serve locks: NOPERM") {
		t.Errorf("a create: %+v", c)
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
	if c := unit.condition(c.Rules); !c.Ready || c.Reason != "" || !unit.passed {
		t.Errorf("allowed: %+v", c)
	}
	if !strings.Contains(log.String(), "locks can be taken again") {
		t.Errorf("not told: %s", log)
	}
	if keys := operator.Keys(t.Context(), "order:lock:*").Val(); len(keys) != 0 {
		t.Errorf("left behind: %q", keys)
	}
}

// TestStoredAnswersCondition has a user that may take locks, and not touch stored answers.
func TestStoredAnswersCondition(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis("--user", "gate", "on", ">secret", "~order:lock:*", "~{order:lock:*}:ordergate_holders", "~redisson*", "&*", "+@all")
	s, c, log := newLockers(t, &config.Redis{Addresses: []string{server.Addr()}, Username: "gate", Password: "secret"}, config.Lock{})
	c.Rules = []config.Rule{{Settle: &config.Settle{Lock: "settlement"}}}
	for _, once := range []*config.Once{nil, {Name: "commission"}} {
		c.Rules[0].Settle.Once = once
		version := s.Prepare(c)
		_, err := version.Locker(t.Context(), "settlement", &c.Rules[0], false)
		bedtest.Check(t, err)
		unit := version.units[Use{Lock: "settlement"}]
		unit.check(t.Context())
		const reason = "settlements are refused: redis does not serve locks: the stored answer {order:lock:ordergate/probe}:ordergate_once:commission: NOPERM"
		if c := unit.condition(c.Rules); c.Ready != (once == nil) || !strings.Contains(c.Reason, reason) && once != nil {
			t.Errorf("%+v: %+v", once, c)
		}
	}
	if n := strings.Count(log.String(), "no lock can be taken"); n != 1 {
		t.Errorf("told %d times: %s", n, log)
	}
}

// TestStoredNames has rules that share a lock.
func TestStoredNames(t *testing.T) {
	once := func(name string, forget ...string) *config.Settle {
		return &config.Settle{Lock: "settlement", Once: &config.Once{Name: name, Forget: forget}}
	}
	c := &config.Config{Rules: []config.Rule{
		{Settle: once("commission")}, {Settle: once("refund")}, {Settle: once("commission")}, {Settle: once("", "bonus", "refund")},
		{Settle: &config.Settle{Lock: "settlement"}}, {Settle: &config.Settle{Lock: "other", Once: &config.Once{Name: "other"}}},
	}}
	for lock, want := range map[string][]string{"settlement": {"commission", "refund", "bonus"}, "merchants": nil, "once:payment": {"answer"}} {
		if diff := cmp.Diff(want, storedNames(c, Use{Lock: lock})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", lock, diff)
		}
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
	s, c, log := newLockers(t, &config.Redis{Addresses: []string{addr}}, config.Lock{})
	unit := mustUnit(t, s, c, Use{Lock: "settlement"})
	unit.check(t.Context())
	if c := unit.condition(c.Rules); !c.Ready || c.Reason != "" || unit.passed {
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
	s, c, _ := newLockers(t, &config.Redis{Addresses: []string{server.Addr()}}, config.Lock{Key: "order:{id}:lock"})
	locker, err := s.Prepare(c).Locker(t.Context(), "settlement", &config.Rule{Settle: &config.Settle{}}, false)
	if err != nil {
		t.Fatal(err)
	}
	const last = 2_000_000_000_000_000 // ahead of the clock, in microseconds since 1970
	ids, want := []string{"1", "10", "2"}, []int64{last + 2, last + 11, last + 3}
	for i, id := range ids {
		if err := s.opts.Redis.Set(t.Context(), "redisson_lock_token:{order:"+id+":lock}", want[i]-1, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	granted := make(chan gate.Lease, 1)
	locker.Acquire(t.Context(), gate.LockRequest{IDs: ids}, func(lease gate.Lease, err error) {
		if err != nil {
			t.Error(err)
		}
		granted <- lease
	})
	lease := <-granted
	if lease == nil {
		return
	}
	if diff := cmp.Diff(want, lease.Fences()); diff != "" {
		t.Error("fences (-want +got):\n" + diff)
	}
	released := make(chan error, 1)
	lease.Release(func(err error) { released <- err })
	if err := <-released; err != nil {
		t.Fatal(err)
	}
}

// TestErrorsMayBlock has more calls find the only slot taken, once they have their locks, than there are
// goroutines that serve all. What follows their errors blocks.
func TestErrorsMayBlock(t *testing.T) {
	t.Parallel()
	server := bedtest.New(t).Redis()
	s, c, _ := newLockers(t, &config.Redis{Addresses: []string{server.Addr()}}, config.Lock{Wait: config.Wait{Tries: 1}})
	c.Rules = []config.Rule{{Name: "settle", Settle: &config.Settle{Lock: "settlement", MaxInFlight: 1, MaxInFlightPerClient: 1}}}
	version := s.Prepare(c)
	locker, err := version.Locker(t.Context(), "settlement", &c.Rules[0], false)
	bedtest.Check(t, err)
	s.Activate(version)

	const calls = redisbatch.MaxWorkers + 1
	opened, failed, granted := make(chan struct{}), make(chan error, calls), make(chan gate.Lease, calls)
	defer close(opened)
	bedtest.Check(t, server.Pause())
	for i := range calls {
		locker.Acquire(t.Context(), gate.LockRequest{IDs: []string{strconv.Itoa(i)}}, func(lease gate.Lease, err error) {
			if err == nil {
				granted <- lease
				return
			}
			failed <- err
			<-opened
		})
	}
	bedtest.Check(t, server.Resume())
	for range calls - 1 {
		if err := bedtest.Receive(t, "a refusal", failed); !errors.Is(err, gate.ErrOverloaded) {
			t.Errorf("without a slot: %v", err)
		}
	}
	released := make(chan error, 1)
	(<-granted).Release(func(err error) { released <- err })
	select {
	case err := <-released:
		bedtest.Check(t, err)
	case <-time.After(5 * time.Second):
		t.Error("no lock is released meanwhile")
	}
}
