package redisson

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
)

// TestHolder does to a lock of ours what happens to one while it is held.
func TestHolder(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, sort := range []sort{exclusive, fenced, fair, read, write} {
		t.Run(sort.name, func(t *testing.T) {
			t.Run("force", func(t *testing.T) { forced(t, s, sort) })
			t.Run("entries", func(t *testing.T) { entries(t, s, sort) })
		})
	}
	t.Run("fence", func(t *testing.T) { fences(t, s) })
	t.Run("fence of Java's", func(t *testing.T) { fenceOfJava(t, s) })
	t.Run("fence forgotten", func(t *testing.T) { fenceForgotten(t, s) })
}

// newLocker returns a Locker for a test's own use.
func newLocker(t *testing.T, s *stack, opts redislock.Options) *redislock.Locker {
	t.Helper()
	l := value(redislock.New(s.redis, opts))(t)
	t.Cleanup(l.Close)
	return l
}

// rlock returns the part of a Java lock that a semaphore does not have.
func rlock(l javaLock) *testbed.RedissonLock {
	if f, ok := l.(*testbed.RedissonFencedLock); ok {
		return f.RedissonLock
	}
	return l.(*testbed.RedissonLock)
}

// forced has Java break a lock: its holder learns of it with the next renewal.
func forced(t *testing.T, s *stack, sort sort) {
	l := newLocker(t, s, redislock.Options{Kind: sort.kind, Lease: time.Second})
	held := value(l.Acquire(t.Context(), t.Name()))(t)
	select {
	case <-held.Lost():
		t.Fatal("lost before it was broken")
	default:
	}
	if !value(rlock(sort.java(s.thread(), t.Name())).ForceUnlock(t.Context()))(t) {
		t.Fatal("there was nothing to break")
	}
	select {
	case <-held.Lost():
	case <-time.After(patience):
		t.Error("its holder does not know that it was broken")
	}
	other := take(t, newJavaParty(s), sort, t.Name(), lease)
	must(t, held.Release(t.Context()))
	if fields := s.redis.HGetAll(t.Context(), t.Name()).Val(); len(fields) == 0 {
		t.Error("the next holder's lock was released")
	}
	release(t, other)
}

// entries has both sides enter a lock twice and leave it twice.
func entries(t *testing.T, s *stack, sort sort) {
	ctx := t.Context()
	var states [2][]step
	note := func(i int, when, name, owner string) {
		lines := s.shared(t, sort, name, map[string]string{owner: "OWNER"})
		for k := range lines { // Redisson adds a writer's leases up
			lines[k], _, _ = strings.Cut(lines[k], ", ")
		}
		states[i] = append(states[i], step{when, lines})
	}

	java, name := s.thread(), t.Name()+"/Java"
	lock := sort.java(java, name)
	for _, when := range []string{"entered", "entered twice"} {
		if !value(lock.TryLock(ctx, 0, lease))(t) {
			t.Fatal("the lock is taken")
		}
		note(0, when, name, java.Owner())
	}
	for _, when := range []string{"left once", "left"} {
		must(t, lock.Unlock(ctx))
		note(0, when, name, java.Owner())
	}

	l, name := newLocker(t, s, redislock.Options{Kind: sort.kind, Lease: lease}), t.Name()+"/ours"
	outer := value(l.Acquire(ctx, name))(t)
	note(1, "entered", name, outer.Owner())
	inner := value(l.Acquire(ctx, name, redislock.Reenter(outer.Owner())))(t)
	note(1, "entered twice", name, outer.Owner())
	must(t, inner.Release(ctx))
	note(1, "left once", name, outer.Owner())
	rival := sort
	if sort.kind == redislock.Read {
		rival = write
	}
	if value(newJavaParty(s).ask(ctx, rival, name, lease, notAtAll))(t) != nil {
		t.Error("Java has what was left only once")
	}
	must(t, outer.Release(ctx))
	note(1, "left", name, outer.Owner())
	if diff := cmp.Diff(states[0], states[1]); diff != "" {
		t.Errorf("Redisson leaves and we leave (-Redisson +we):\n%s", diff)
	}
}

// fences has both sides take a lock by turns: each number is greater than the one
// before, whoever got it.
func fences(t *testing.T, s *stack) {
	ctx, l := t.Context(), newLocker(t, s, redislock.Options{})
	lock := s.thread().FencedLock(t.Name())
	last, who := int64(0), "nobody"
	turn := func(side string, fence int64) {
		t.Helper()
		if fence <= last {
			t.Errorf("%s gets %d after %s got %d", side, fence, who, last)
		}
		last, who = fence, side
	}
	java := func() { turn("Java", value(lock.LockAndGetToken(ctx))(t)) }
	ours := func() *redislock.Lease {
		held := value(l.Acquire(ctx, t.Name()))(t)
		turn("ours", held.Fence())
		return held
	}
	java()
	must(t, lock.Unlock(ctx))
	for range 10 {
		must(t, ours().Release(ctx))
		must(t, ours().Release(ctx))
		java()
		java() // a re-entry has a number of its own
		must(t, lock.Unlock(ctx))
		must(t, lock.Unlock(ctx))
	}
	if token := value(lock.Token(ctx))(t); token != last {
		t.Errorf("Redisson takes %d for the last one, want %d", token, last)
	}
}

// fenceOfJava has a number that Redisson began: it is to have no end after our
// grants either, or Redisson would begin again with 1 after it.
func fenceOfJava(t *testing.T, s *stack) {
	ctx, l := t.Context(), newLocker(t, s, redislock.Options{})
	lock := s.thread().FencedLock(t.Name())
	value(lock.LockAndGetToken(ctx))(t)
	must(t, lock.Unlock(ctx))
	must(t, value(l.Acquire(ctx, t.Name()))(t).Release(ctx))
	if end := s.redis.PTTL(ctx, redislock.FenceKey(t.Name())).Val(); end != -1 {
		t.Errorf("Redisson's number ends in %v, want no end", end)
	}
}

// fenceForgotten has the last number deleted. Redisson begins again with 1 then;
// ours grow all the same.
func fenceForgotten(t *testing.T, s *stack) {
	ctx, l := t.Context(), newLocker(t, s, redislock.Options{})
	lock := s.thread().FencedLock(t.Name())
	first := value(l.Acquire(ctx, t.Name()))(t)
	must(t, first.Release(ctx))
	must(t, s.redis.Del(ctx, redislock.FenceKey(t.Name())).Err())
	value(lock.LockAndGetToken(ctx))(t)
	must(t, lock.Unlock(ctx))
	second := value(l.Acquire(ctx, t.Name()))(t)
	if second.Fence() <= first.Fence() {
		t.Errorf("we get %d after we got %d", second.Fence(), first.Fence())
	}
	must(t, second.Release(ctx))
}
