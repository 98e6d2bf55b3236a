package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// never is a wait whose polls come too late to help a test: only being woken
// ends it.
var never = Wait{Tries: 2, Every: time.Hour}

// once asks a single time.
var once = Wait{Tries: 1}

func newLocker(t *testing.T, client redis.UniversalClient, opts Options) *Locker {
	t.Helper()
	if opts.Lease == 0 {
		opts.Lease = time.Minute
	}
	if opts.Wait == (Wait{}) {
		opts.Wait = once
	}
	if opts.MaxWaitersPerKey == 0 {
		opts.MaxWaitersPerKey = 100
	}
	l, err := New(client, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func acquire(t *testing.T, l *Locker, key string, opts ...AcquireOption) *Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func release(t *testing.T, lease *Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// taken reports whether somebody holds the lock that most tests use.
func taken(t *testing.T, c redis.UniversalClient) bool {
	t.Helper()
	n, err := c.Exists(t.Context(), "k").Result()
	if err != nil {
		t.Fatal(err)
	}
	return n == 1
}

func TestExclusion(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		a, b := newLocker(t, c, Options{}), newLocker(t, c, Options{})
		first := acquire(t, a, "k")
		if _, err := b.Acquire(t.Context(), "k"); !errors.Is(err, ErrBusy) {
			t.Fatalf("second Acquire: %v, want ErrBusy", err)
		}
		acquire(t, b, "another key")
		release(t, first)
		second := acquire(t, b, "k")
		if second.Fence() <= first.Fence() {
			t.Errorf("fence %d after %d", second.Fence(), first.Fence())
		}
		if second.Owner() == first.Owner() {
			t.Error("two leases share an owner")
		}
	})
}

func TestWireFormat(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		lease := acquire(t, newLocker(t, c, Options{Lease: 30 * time.Second}), "order:lock:1001")
		fields, err := c.HGetAll(t.Context(), "order:lock:1001").Result()
		if err != nil || len(fields) != 2 || fields[lease.Owner()] != "1" || fields["ordergate_fence"] != fmt.Sprint("f", lease.Fence()) {
			t.Errorf("lock is %v, %v; want {%s: 1, ordergate_fence: f%d}", fields, err, lease.Owner(), lease.Fence())
		}
		if ttl := c.PTTL(t.Context(), "order:lock:1001").Val(); ttl <= 20*time.Second || ttl > 30*time.Second {
			t.Errorf("lock ends in %v", ttl)
		}
		if fence := c.Get(t.Context(), "redisson_lock_token:{order:lock:1001}").Val(); fence != fmt.Sprint(lease.Fence()) {
			t.Errorf("fence key holds %q, want %d", fence, lease.Fence())
		}
		uuid, thread, _ := strings.Cut(lease.Owner(), ":")
		if len(uuid) != 36 || thread == "" {
			t.Errorf("owner %q is not <uuid>:<number>", lease.Owner())
		}
	})
}

func TestNames(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"order:lock:1001":   "redisson_lock__channel:{order:lock:1001}",
		"order:lock:{1001}": "redisson_lock__channel:order:lock:{1001}",
	} {
		if got := Channel(Exclusive, key); got != want {
			t.Errorf("Channel(exclusive, %q) = %q, want %q", key, got, want)
		}
	}
}

// TestForeignHolder plays Redisson's part with the commands that it was seen to
// send.
func TestForeignHolder(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Wait: never})
		ctx := t.Context()
		c.HSet(ctx, "k", "0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:52", 1)
		c.PExpire(ctx, "k", time.Minute)
		granted := make(chan *Lease, 1)
		go func() { granted <- acquire(t, l, "k") }()
		bedtest.Eventually(t, "the waiter listens", func() bool {
			return c.PubSubNumSub(ctx, Channel(Exclusive, "k")).Val()[Channel(Exclusive, "k")] == 1
		})
		c.Del(ctx, "k")
		c.Publish(ctx, Channel(Exclusive, "k"), "0")
		release(t, <-granted)
		bedtest.Eventually(t, "the waiter stops listening", func() bool {
			return c.PubSubNumSub(ctx, Channel(Exclusive, "k")).Val()[Channel(Exclusive, "k")] == 0
		})
	})
}

// TestReleaseWakes would take an hour if the release did not wake the waiter.
func TestReleaseWakes(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		a, b := newLocker(t, c, Options{}), newLocker(t, c, Options{Wait: never})
		for range 20 {
			held := acquire(t, a, "k")
			granted := make(chan *Lease, 1)
			go func() { granted <- acquire(t, b, "k") }()
			bedtest.Eventually(t, "somebody waits", func() bool { return b.Waiting() == 1 })
			release(t, held)
			release(t, <-granted)
		}
	})
}

// TestQueue has many wait in one process: each release lets one in, and nobody
// is forgotten.
func TestQueue(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Wait: Wait{UpTo: time.Minute}})
		var inside, turns atomic.Int32
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				lease, err := l.Acquire(t.Context(), "k")
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two are inside")
				}
				turns.Add(1)
				inside.Add(-1)
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if turns.Load() != 50 || l.Waiting() != 0 || l.Held() != 0 {
			t.Errorf("%d turns, %d waiting, %d held", turns.Load(), l.Waiting(), l.Held())
		}
	})
}

func TestTriesRunOut(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		acquire(t, newLocker(t, c, Options{}), "k")
		for _, w := range []Wait{{Tries: 3, Every: time.Millisecond}, {UpTo: 5 * time.Millisecond}} {
			l := newLocker(t, c, Options{Wait: w})
			if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, ErrBusy) {
				t.Errorf("%+v: %v, want ErrBusy", w, err)
			}
		}
	})
}

func TestTooManyWait(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		holder := newLocker(t, c, Options{})
		acquire(t, holder, "k")
		acquire(t, holder, "l")
		for second, opts := range map[string]Options{"k": {Wait: never, MaxWaitersPerKey: 1}, "l": {Wait: never, MaxWaiters: 1}} {
			l := newLocker(t, c, opts)
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { _, err := l.Acquire(ctx, "k"); left <- err }()
			bedtest.Eventually(t, "one waits", func() bool { return l.Waiting() == 1 })
			if _, err := l.Acquire(t.Context(), second); !errors.Is(err, ErrBusy) {
				t.Errorf("one too many, for %s: %v, want ErrBusy", second, err)
			}
			leave()
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("who left: %v, want context.Canceled", err)
			}
			if l.Waiting() != 0 {
				t.Errorf("%d still wait", l.Waiting())
			}
		}
	})
}

func TestRedisLost(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	l := newLocker(t, client, Options{})
	if _, err := l.Acquire(t.Context(), "k"); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("without Redis: %v", err)
	}
}

func TestWrongType(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		c.Set(t.Context(), "k", "a lock of another format", 0)
		l := newLocker(t, c, Options{})
		_, err := l.Acquire(t.Context(), "k")
		if err == nil || errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("Acquire over a string: %v, want WRONGTYPE", err)
		}
		l.cleanup.Wait()
		if got := c.Get(t.Context(), "k").Val(); got != "a lock of another format" {
			t.Errorf("the string became %q", got)
		}
	})
}

// TestUncontendedRoundTrips holds the cost of a bracket: two commands.
func TestUncontendedRoundTrips(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{})
		release(t, acquire(t, l, "k")) // loads the scripts
		var count counter
		c.AddHook(&count)
		release(t, acquire(t, l, "k"))
		if n := count.commands.Load(); n != 2 {
			t.Errorf("%d commands, want 2", n)
		}
	})
}
