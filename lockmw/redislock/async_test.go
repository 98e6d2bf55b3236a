package redislock

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// acquireAsync is Acquire by AcquireAsync.
func acquireAsync(ctx context.Context, l *Locker, key string) (*Lease, error) {
	got := make(chan result, 1)
	l.AcquireAsync(ctx, []string{key}, func(lease *Lease, err error) { got <- result{lease, err} })
	r := <-got
	return r.lease, r.err
}

// TestAcquireAsync is what those get who wait without a goroutine.
func TestAcquireAsync(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		holder := newLocker(t, c, Options{})
		begin := func(l *Locker, ctx context.Context) <-chan result {
			got := make(chan result, 1)
			l.AcquireAsync(ctx, []string{"k"}, func(lease *Lease, err error) { got <- result{lease, err} })
			return got
		}
		t.Run("released by another process", func(t *testing.T) {
			l, held := newLocker(t, c, Options{Wait: never}), acquire(t, holder, "k")
			got := begin(l, t.Context())
			bedtest.Eventually(t, "it waits", func() bool { return l.Waiting() == 1 })
			release(t, held)
			release(t, (<-got).ok(t))
		})
		t.Run("one after the other", func(t *testing.T) {
			const callers = 3
			l, held := newLocker(t, c, Options{Wait: never}), acquire(t, holder, "k")
			got := make(chan result, callers)
			for range callers {
				l.AcquireAsync(t.Context(), []string{"k"}, func(lease *Lease, err error) { got <- result{lease, err} })
			}
			bedtest.Eventually(t, "they wait", func() bool { return l.Waiting() == callers })
			release(t, held)
			for range callers { // handed over within the process
				release(t, (<-got).ok(t))
			}
			bedtest.Eventually(t, "nobody waits", func() bool { return l.Waiting() == 0 && l.Held() == 0 })
		})
		t.Run("busy", func(t *testing.T) {
			l, held := newLocker(t, c, Options{Wait: Wait{UpTo: 50 * time.Millisecond}}), acquire(t, holder, "k")
			defer release(t, held)
			if r := <-begin(l, t.Context()); !errors.Is(r.err, ErrBusy) {
				t.Errorf("after the wait: %v, want ErrBusy", r.err)
			}
			if r := <-begin(newLocker(t, c, Options{}), t.Context()); !errors.Is(r.err, ErrBusy) {
				t.Errorf("without a wait: %v, want ErrBusy", r.err)
			}
		})
		t.Run("left", func(t *testing.T) {
			l, held := newLocker(t, c, Options{Wait: never}), acquire(t, holder, "k")
			defer release(t, held)
			ctx, leave := context.WithCancel(t.Context())
			got := begin(l, ctx)
			bedtest.Eventually(t, "it waits", func() bool { return l.Waiting() == 1 })
			leave()
			if r := <-got; !errors.Is(r.err, context.Canceled) {
				t.Errorf("who left: %v", r.err)
			}
			if r := <-begin(l, ctx); !errors.Is(r.err, context.Canceled) {
				t.Errorf("who had left: %v", r.err)
			}
			if l.cleanup.Wait(); l.Waiting() != 0 {
				t.Error("somebody waits")
			}
		})
		t.Run("closed", func(t *testing.T) {
			l, held := newLocker(t, c, Options{Wait: never}), acquire(t, holder, "k")
			defer release(t, held)
			got := begin(l, t.Context())
			bedtest.Eventually(t, "it waits", func() bool { return l.Waiting() == 1 })
			l.Close()
			if r := <-got; !errors.Is(r.err, ErrClosed) {
				t.Errorf("after Close: %v, want ErrClosed", r.err)
			}
		})
		t.Run("lost", func(t *testing.T) {
			l := newLocker(t, c, Options{Lease: 300 * time.Millisecond})
			lease, lost := (<-begin(l, t.Context())).ok(t), make(chan struct{})
			lease.NotifyLost(func() { close(lost) })
			if err := c.Del(t.Context(), "k").Err(); err != nil {
				t.Fatal(err)
			}
			<-lost
			again := make(chan struct{})
			lease.NotifyLost(func() { close(again) })
			<-again
			_ = lease.Release(context.Background()) // it is lost
		})
	})
}

// TestManyWaitWithoutGoroutines has a thousand wait.
func TestManyWaitWithoutGoroutines(t *testing.T) {
	t.Parallel()
	const callers = 1000
	c := embedded(t, 1)[0]
	holder, l := newLocker(t, c, Options{}), newLocker(t, c, Options{Wait: never, MaxWaitersPerKey: callers})
	held := acquire(t, holder, "k")
	var granted atomic.Int32
	before := runtime.NumGoroutine()
	for i := range callers {
		l.AcquireAsync(t.Context(), []string{"k"}, func(lease *Lease, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			granted.Add(1)
			lease.ReleaseAsync(context.Background(), func(err error) {
				if err != nil {
					t.Error(err)
				}
			})
		})
		if i == 0 { // the others find that one waits, and do not ask Redis
			bedtest.Eventually(t, "one waits", func() bool { return l.Waiting() == 1 })
		}
	}
	// Other tests run beside this one.
	bedtest.Eventually(t, "they wait", func() bool { return l.Waiting() == callers })
	bedtest.Eventually(t, "they need no goroutines", func() bool { return runtime.NumGoroutine() < before+callers/2 })
	release(t, held)
	bedtest.Eventually(t, "all had their turns", func() bool { return granted.Load() == callers })
}

// TestReleaseAsync is what those get who release without a goroutine.
func TestReleaseAsync(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		begin := func(lease *Lease) <-chan error {
			got := make(chan error, 1)
			lease.ReleaseAsync(t.Context(), func(err error) { got <- err })
			return got
		}
		l, other := newLocker(t, c, Options{Wait: never}), newLocker(t, c, Options{Wait: never})
		t.Run("released", func(t *testing.T) {
			lease := acquire(t, l, "k")
			for range 2 { // the second does nothing
				if err := bedtest.Receive(t, "the end", begin(lease)); err != nil {
					t.Error(err)
				}
			}
			release(t, acquire(t, other, "k"))
		})
		t.Run("lost", func(t *testing.T) {
			lease := acquire(t, l, "k")
			bedtest.Check(t, c.Del(t.Context(), "k").Err())
			if err := bedtest.Receive(t, "the end", begin(lease)); !errors.Is(err, ErrLost) {
				t.Errorf("the release of a lost lock: %v, want ErrLost", err)
			}
		})
		for name, waiting := range map[string]*Locker{"handed over": l, "wakes another process": other} {
			t.Run(name, func(t *testing.T) {
				lease, got := acquire(t, l, "k"), make(chan result, 1)
				waiting.AcquireAsync(t.Context(), []string{"k"}, func(lease *Lease, err error) { got <- result{lease, err} })
				bedtest.Eventually(t, "it waits", func() bool { return waiting.Waiting() == 1 })
				if err := bedtest.Receive(t, "the end", begin(lease)); err != nil {
					t.Error(err)
				}
				r := bedtest.Receive(t, "the lock", got)
				release(t, r.ok(t))
			})
		}
		t.Run("stores", func(t *testing.T) {
			lease := acquire(t, l, "k", Stored("paid"))
			lease.StoreAnswer("paid", "200 ok", "", time.Minute)
			if err := bedtest.Receive(t, "the end", begin(lease)); err != nil {
				t.Error(err)
			}
			found, err := acquireAsync(t.Context(), l, "k")
			bedtest.Check(t, err)
			release(t, found)
			_, err = l.Acquire(t.Context(), "k", Stored("paid"))
			if answer, ok := errors.AsType[*StoredAnswer](err); !ok || answer.Text != "200 ok" {
				t.Errorf("the next call gets %v, want the stored answer", err)
			}
		})
		t.Run("WRONGTYPE", func(t *testing.T) {
			lease := acquire(t, l, "k")
			bedtest.Check(t, c.Set(t.Context(), "k", "x", 0).Err())
			defer c.Del(t.Context(), "k")
			if err := bedtest.Receive(t, "the end", begin(lease)); err == nil || errors.Is(err, ErrLost) {
				t.Errorf("the release of what another program has overwritten: %v", err)
			}
		})
	})
}

// blockingLog is a log whose reader stands still.
type blockingLog struct {
	slog.Handler
	block func()
}

func (l blockingLog) Handle(context.Context, slog.Record) error {
	l.block()
	return nil
}

// TestErrorsMayBlock has as many callers block on their errors as there are goroutines that serve all.
func TestErrorsMayBlock(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		busy := func(keys ...string) func(*Locker, *Lease, func(error)) {
			return func(l *Locker, _ *Lease, then func(error)) {
				l.AcquireAsync(t.Context(), keys, func(_ *Lease, err error) { then(err) })
			}
		}
		lost := func(_ *Locker, lease *Lease, then func(error)) { lease.ReleaseAsync(t.Context(), then) }
		for _, tc := range []struct {
			name  string
			kind  Kind
			fails func(l *Locker, lost *Lease, then func(error))
			log   bool // what blocks
		}{
			{name: "busy", kind: Exclusive, fails: busy("k")},
			{name: "one of several is busy", kind: Write, fails: busy("k", "other")},
			{name: "lost", kind: Exclusive, fails: lost},
			{name: "lost, which is logged", kind: Exclusive, fails: lost, log: true},
		} {
			t.Run(tc.name, func(t *testing.T) {
				defer c.FlushDB(t.Context())
				begun, opened := make(chan struct{}, redisbatch.MaxWorkers), make(chan struct{})
				block, opts := func() { begun <- struct{}{}; <-opened }, Options{Kind: tc.kind}
				if tc.log {
					opts.Logger = slog.New(blockingLog{slog.NewTextHandler(io.Discard, nil), block})
				}
				l := newLocker(t, c, opts)
				acquire(t, newLocker(t, c, Options{Kind: tc.kind}), "k")
				var leases []*Lease
				for _, key := range names("lost", redisbatch.MaxWorkers) {
					leases = append(leases, acquire(t, l, key))
					bedtest.Check(t, c.Del(t.Context(), key).Err())
				}
				var ended sync.WaitGroup
				for _, lease := range leases {
					ended.Add(1)
					tc.fails(l, lease, func(err error) {
						defer ended.Done()
						if err == nil {
							t.Error("it did not fail")
						}
						if !tc.log {
							block()
						}
					})
					bedtest.Receive(t, "the error", begun)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				lease, err := l.Acquire(ctx, "free")
				close(opened)
				ended.Wait()
				if err != nil {
					t.Fatalf("another call: %v", err)
				}
				release(t, lease)
			})
		}
	})
}
