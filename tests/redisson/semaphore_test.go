package redisson

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
)

// TestSemaphore has both sides take the permits of one semaphore.
func TestSemaphore(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, provider := range []string{"Java", "ours"} {
		t.Run("provided by "+provider, func(t *testing.T) { permits(t, s, provider == "ours") })
	}
	t.Run("death of ours", func(t *testing.T) { lostPermit(t, s) })
}

// permits counts them with both sides' eyes.
func permits(t *testing.T, s *stack, ours bool) {
	const all = 3
	ctx, name := t.Context(), t.Name()
	java := s.thread().Semaphore(name)
	l := newLocker(t, s, redislock.Options{Kind: redislock.Semaphore, Permits: all})
	if ours { // the first who asks
		must(t, value(l.Acquire(ctx, name))(t).Release(ctx))
	}
	if set := value(java.TrySetPermits(ctx, all))(t); set == ours {
		t.Errorf("trySetPermits: %v", set)
	}
	check := func(when string, want int) {
		t.Helper()
		if free := value(java.AvailablePermits(ctx))(t); free != want {
			t.Errorf("%s, %d permits are free, want %d", when, free, want)
		}
	}
	check("at first", all)
	one, two := value(l.Acquire(ctx, name))(t), value(l.Acquire(ctx, name))(t)
	check("with two of ours", 1)
	must(t, java.Acquire(ctx, 1))
	check("with one of Java's", 0)
	if value(java.TryAcquire(ctx, 1, 0))(t) {
		t.Error("Java has one permit too many")
	}
	if _, err := l.Acquire(ctx, name); err == nil {
		t.Error("we have one permit too many")
	}
	must(t, one.Release(ctx))
	check("with one of each", 1)
	must(t, java.Release(ctx, 1))
	check("with one of ours", 2)
	if !value(java.TryAcquire(ctx, 2, 0))(t) {
		t.Error("Java does not get what is free")
	}
	must(t, two.Release(ctx))
	must(t, java.Release(ctx, 2))
	check("at last", all)
}

// lostPermit has one of ours die with a permit: that is free again when its lease
// has ended and one of ours asks. Java alone would not see it.
func lostPermit(t *testing.T, s *stack) {
	ctx, name := t.Context(), t.Name()
	ours := newGoParty(t, s)
	take(t, ours, semaphore, name, 300*time.Millisecond).abandon()
	java := s.thread().Semaphore(name)
	if value(java.TryAcquire(ctx, 1, 0))(t) {
		t.Fatal("two have the only permit")
	}
	release(t, value(ours.ask(ctx, semaphore, name, lease, untilFree))(t))
	if !value(java.TryAcquire(ctx, 1, 0))(t) {
		t.Error("the permit is lost")
	}
}
