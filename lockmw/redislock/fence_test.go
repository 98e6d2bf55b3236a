package redislock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFenceIsTheSameEverywhere has grants at any part of a second: the scripts make a text
// of the clock's microseconds, which Redis writes without zeros before them.
func TestFenceIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		key := "whole:" + string(opts.Kind) + string(opts.Format)
		l := newLocker(t, c, opts)
		bedtest.Eventually(t, "a grant in the first tenth of a second", func() bool {
			lease := acquire(t, l, key)
			inner := acquire(t, l, key, Reenter(lease.Owner()))
			last, err := c.Get(t.Context(), FenceKey(key)).Int64()
			if err != nil || last != lease.Fence() || inner.Fence() != last {
				t.Fatalf("fence %d, %d of a call within, %d in Redis: %v", lease.Fence(), inner.Fence(), last, err)
			}
			release(t, inner)
			release(t, lease)
			return last%1_000_000 < 100_000
		})
	})
}

// TestRecordGoes leaves no record of a lease behind, and deletes none that is another's:
// one that nobody put on record is released by its own key alone.
func TestRecordGoes(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	l := newLocker(t, c, Options{})
	record := after("k", recordSuffix)
	for _, recorded := range []bool{false, true} {
		c.HSet(t.Context(), record, "one that died", "")
		lease := acquire(t, l, "k")
		if recorded {
			bedtest.Eventually(t, "it is on record", lease.onRecord)
		}
		release(t, lease)
		if there := c.Exists(t.Context(), record).Val() == 1; there == recorded {
			t.Errorf("after a lease on record %v there is a record: %v", recorded, there)
		}
	}
}

// TestRecordOfAGroupGoes has a call wait for the second of two orders until the first is on
// record for it. What joins the two leases gives both up with their records.
func TestRecordOfAGroupGoes(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	l := newLocker(t, c, Options{Wait: never})
	last := acquire(t, l, "z")
	got := make(chan result, 1)
	go func() {
		lease, err := l.AcquireAll(t.Context(), []string{"a", "z"})
		got <- result{lease, err}
	}()
	record := after("a", recordSuffix)
	bedtest.Eventually(t, "the first is on record", func() bool { return c.Exists(t.Context(), record).Val() == 1 })
	release(t, last)
	release(t, bedtest.Receive(t, "the group's grant", got).ok(t))
	if left := c.Keys(t.Context(), "*"+recordSuffix).Val(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestSemaphoreEnds has the counters of a semaphore stay as long as its fence, also when that
// was changed, and leaves those alone that Java has made.
func TestSemaphoreEnds(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	day := newLocker(t, c, Options{Kind: Semaphore, Permits: 3, FenceLife: 24 * time.Hour, Wait: never})
	ever := newLocker(t, c, Options{Kind: Semaphore, Permits: 3, Wait: never})
	check := func(key string, ends bool, free string) {
		t.Helper()
		left := c.PTTL(t.Context(), key).Val()
		if (left > 0) != ends || left > 24*time.Hour {
			t.Errorf("%s lasts for %v", key, left)
		}
		if got := c.Get(t.Context(), key).Val(); got != free {
			t.Errorf("%s: %s permits, want %s", key, got, free)
		}
	}
	first := acquire(t, day, "k")
	check("k", true, "2")
	check(after("k", permitsSuffix), true, "3")
	second := acquire(t, ever, "k")
	check("k", false, "1")
	check(after("k", permitsSuffix), false, "3")
	release(t, acquire(t, day, "k"))
	release(t, second)
	check("k", true, "2")
	c.Del(t.Context(), "k", after("k", permitsSuffix)) // as they would end
	release(t, acquire(t, day, "k"))
	check("k", true, "2")
	release(t, first)
	check("k", true, "3")

	c.Set(t.Context(), "java", 3, 0)
	release(t, acquire(t, day, "java"))
	check("java", false, "3")
}
