package redislock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func excludes(t *testing.T, b *bench) {
	holder, other := b.rivals(t, Options{}), b.locker(t, Options{})
	held := acquire(t, holder, b.key)
	if _, err := other.Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
		t.Fatalf("while it is held: %v, want ErrBusy", err)
	}
	release(t, acquire(t, other, b.key+"0")) // another key is free
	release(t, held)
	release(t, acquire(t, other, b.key))
}

// wakes would take an hour if releases did not wake.
func wakes(t *testing.T, b *bench) {
	holder, waiter := b.rivals(t, Options{}), b.locker(t, Options{Wait: never})
	for range 10 {
		held := acquire(t, holder, b.key)
		got := async(t.Context(), waiter, b.key)
		bedtest.Eventually(t, "somebody waits", func() bool { return waiter.Waiting() == 1 })
		release(t, held)
		release(t, (<-got).ok(t))
	}
}

// expires has a holder that died without a word.
func expires(t *testing.T, b *bench) {
	lease := 300 * time.Millisecond
	if b.quorum {
		lease = 2 * time.Second // whose tenth each server has to answer
	}
	dead := b.rivals(t, Options{Lease: lease})
	acquire(t, dead, b.key)
	dead.Close() // renews no more
	start := time.Now()
	got := async(t.Context(), b.locker(t, Options{Wait: Wait{UpTo: time.Minute}}), b.key)
	release(t, (<-got).ok(t))
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("a lease of %v was waited for for %v", lease, took)
	}
	b.free(t)
}

func reenters(t *testing.T, b *bench) {
	if b.quorum {
		t.Skip("leases of a quorum are not re-entered")
	}
	l, other, rival := b.locker(t, Options{}), b.locker(t, Options{}), b.rivals(t, Options{})
	outer := acquire(t, l, b.key)
	inner := acquire(t, other, b.key, Reenter(outer.Owner()))
	if inner.Fence() != outer.Fence() || inner.Owner() != outer.Owner() {
		t.Errorf("inner %s %d, outer %s %d", inner.Owner(), inner.Fence(), outer.Owner(), outer.Fence())
	}
	release(t, inner)
	if _, err := rival.Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
		t.Fatalf("after the inner release: %v, want ErrBusy", err)
	}
	again := acquire(t, other, b.key, Reenter(outer.Owner()))
	release(t, outer)
	if _, err := rival.Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
		t.Fatalf("while the inner one goes on: %v, want ErrBusy", err)
	}
	release(t, again)
	b.free(t)
	// A lease that is over, or was never one, is no key to anything.
	held := acquire(t, rival, b.key)
	for _, presented := range []string{outer.Owner(), "made-up", ""} {
		if _, err := l.Acquire(t.Context(), b.key, Reenter(presented)); !errors.Is(err, ErrBusy) {
			t.Errorf("presenting %q: %v, want ErrBusy", presented, err)
		}
	}
	release(t, held)
}

// isLost has an operator delete everything about the lock.
func isLost(t *testing.T, b *bench) {
	term := time.Second
	if b.quorum {
		term = 3 * time.Second // whose tenth each server has to answer
	}
	l := b.locker(t, Options{Lease: term})
	lease := acquire(t, l, b.key)
	for _, c := range b.clients {
		for _, key := range []string{b.key, after(b.key, permitsOfSuffix), after(b.key, permitsSuffix)} {
			c.Del(t.Context(), key)
		}
	}
	<-lease.Lost()
	if err := lease.Release(t.Context()); err != nil {
		t.Errorf("releasing what is known to be lost: %v", err)
	}
	if l.Held() != 0 {
		t.Error("a lost lease is still renewed")
	}
	b.free(t)
}

func isHeldOn(t *testing.T, b *bench) {
	l := b.locker(t, Options{Hold: time.Second})
	lease := acquire(t, l, b.key, Request("settle 7"))
	if err := lease.Hold(t.Context(), "nobody knows"); err != nil {
		t.Fatal(err)
	}
	field := l.field(lease.Owner())
	bedtest.Eventually(t, "a record", func() bool { // of a quorum, one server may be late
		note := b.clients[0].HGet(t.Context(), after(b.key, recordSuffix), field).Val()
		return strings.Contains(note, "nobody knows") && strings.Contains(note, "settle 7")
	})
	if _, err := b.rivals(t, Options{}).Acquire(t.Context(), b.key); !errors.Is(err, ErrBusy) {
		t.Fatalf("while it is held on: %v, want ErrBusy", err)
	}
	release(t, (<-async(t.Context(), b.rivals(t, Options{Wait: Wait{UpTo: time.Minute}}), b.key)).ok(t))
}

// flushed is what a failover or an operator may do.
func flushed(t *testing.T, b *bench) {
	flush := func() {
		for _, c := range b.clients {
			if cl, ok := c.(*redis.ClusterClient); ok {
				if err := cl.ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
					return c.ScriptFlush(ctx).Err()
				}); err != nil {
					t.Fatal(err)
				}
			} else {
				c.ScriptFlush(t.Context())
			}
		}
	}
	l := b.locker(t, Options{Lease: time.Second})
	flush()
	lease := acquire(t, l, b.key)
	flush()
	end := endOf(lease)
	bedtest.Eventually(t, "it is renewed", func() bool { return endOf(lease).After(end) })
	flush()
	release(t, lease)
	b.free(t)
}

func growsFence(t *testing.T, b *bench) {
	l, last := b.locker(t, Options{}), int64(0)
	turn := func(why string) {
		t.Helper()
		lease := acquire(t, l, b.key)
		if lease.Fence() <= last {
			t.Errorf("%s: fence %d after %d", why, lease.Fence(), last)
		}
		last = lease.Fence()
		release(t, lease)
	}
	turn("first")
	turn("again")
	for _, c := range b.clients {
		c.Del(t.Context(), FenceKey(b.key))
	}
	turn("number lost")
	last += 1e12 // the clock was eleven days ahead, and was set back
	for _, c := range b.clients {
		c.Set(t.Context(), FenceKey(b.key), last, 0)
	}
	turn("clock set back")
	turn("and on")
	for _, c := range b.clients {
		c.Set(t.Context(), FenceKey(b.key), "garbage", 0)
	}
	last = 0
	turn("not a number")
}
