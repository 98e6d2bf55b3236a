package redisson

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestAgent checks the Java service by what it leaves in Redis.
func TestAgent(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *stack)
	}{
		{"lock", agentLock}, {"fenced", agentFenced}, {"fair", agentFair}, {"read and write", agentReadWrite},
		{"multi", agentMulti}, {"semaphore", agentSemaphore}, {"wait", agentWait}, {"call", agentCall},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// check compares what Redis holds of the test's name.
func (s *stack) check(t *testing.T, what string, owners map[string]string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.state(t, t.Name(), owners)); diff != "" {
		t.Errorf("%s, Redis holds (-want +got):\n%s", what, diff)
	}
}

func agentLock(t *testing.T, s *stack) {
	ctx, a, b := t.Context(), s.thread(), s.thread()
	owners := map[string]string{a.Owner(): "A", b.Owner(): "B"}
	lock, other := a.Lock(t.Name()), b.Lock(t.Name())
	must(t, lock.Lock(ctx, lease))
	s.check(t, "locked", owners, "NAME = [A:1], 1m0s")
	must(t, lock.Lock(ctx, testbed.Renewed))
	s.check(t, "locked again by the watchdog", owners, "NAME = [A:2], 30s")
	if n := value(lock.HoldCount(ctx))(t); n != 2 {
		t.Errorf("hold count is %d, want 2", n)
	}
	if n := value(other.HoldCount(ctx))(t); n != 0 {
		t.Errorf("another thread's hold count is %d, want 0", n)
	}
	if left := value(other.RemainTimeToLive(ctx))(t); left <= 20*time.Second || left > 30*time.Second {
		t.Errorf("it ends in %v, want just below 30s", left)
	}
	if value(other.TryLock(ctx, 20*time.Millisecond, lease))(t) {
		t.Error("two threads have the lock")
	}
	if took := b.Last().Took; took < 19*time.Millisecond { // by Java's clock, whose timers may be a little early
		t.Errorf("tryLock gave up after %v, want 20ms", took)
	}
	var exception *testbed.RedissonError
	if err := other.Unlock(ctx); !errors.As(err, &exception) || exception.Class != "IllegalMonitorStateException" {
		t.Errorf("unlocked by another thread: %v", err)
	}
	must(t, lock.Unlock(ctx))
	s.check(t, "unlocked once", owners, "NAME = [A:1], 30s")
	if !value(other.IsLocked(ctx))(t) || !value(other.ForceUnlock(ctx))(t) || value(other.IsLocked(ctx))(t) {
		t.Error("forceUnlock did not free the lock")
	}
	s.check(t, "unlocked by force", owners)
}

func agentFenced(t *testing.T, s *stack) {
	ctx, a, b := t.Context(), s.thread(), s.thread()
	owners := map[string]string{a.Owner(): "A", b.Owner(): "B"}
	lock, other := a.FencedLock(t.Name()), b.FencedLock(t.Name())
	if token := value(lock.Token(ctx))(t); token != 0 {
		t.Errorf("the token before the first grant is %d, want 0", token)
	}
	first := value(lock.LockAndGetToken(ctx))(t)
	s.check(t, "locked", owners, "NAME = [A:1], 30s", "redisson_lock_token:{NAME} = 1, stays")
	if _, ok, err := other.TryLockAndGetToken(ctx, 0, lease); ok || err != nil {
		t.Errorf("two threads have the lock (%v)", err)
	}
	must(t, lock.Unlock(ctx))
	second, ok, err := other.TryLockAndGetToken(ctx, 0, lease)
	if err != nil || !ok || first != 1 || second != 2 {
		t.Errorf("tokens are %d and %d (%v), want 1 and 2", first, second, err)
	}
	if token := value(lock.Token(ctx))(t); token != 2 {
		t.Errorf("the last token is %d, want 2", token)
	}
	must(t, other.Unlock(ctx))
	s.check(t, "unlocked", owners, "redisson_lock_token:{NAME} = 2, stays")
}

func agentFair(t *testing.T, s *stack) {
	ctx, a, b, c := t.Context(), s.thread(), s.thread(), s.thread()
	owners := map[string]string{a.Owner(): "A", b.Owner(): "B", c.Owner(): "C"}
	queue := "redisson_lock_queue:{" + t.Name() + "}"
	must(t, a.FairLock(t.Name()).Lock(ctx, lease))
	first := background(func() (bool, error) { return b.FairLock(t.Name()).TryLock(ctx, patience, lease) })
	s.inLine(t, queue, 1)
	second := background(func() (bool, error) { return c.FairLock(t.Name()).TryLock(ctx, patience, lease) })
	s.inLine(t, queue, 2)
	s.check(t, "two wait", owners,
		"NAME = [A:1], 1m0s",
		"redisson_lock_queue:{NAME} = list [B C], stays",
		// The lease of 60 s and the waits of 30 s, one after the other.
		"redisson_lock_timeout:{NAME} = zset [B:1m30s C:2m0s], stays")
	must(t, a.FairLock(t.Name()).Unlock(ctx))
	if !receive(t, first) {
		t.Fatal("the first in line did not get the lock")
	}
	must(t, b.FairLock(t.Name()).Unlock(ctx))
	if !receive(t, second) {
		t.Fatal("the second in line did not get the lock")
	}
	must(t, c.FairLock(t.Name()).Unlock(ctx))
	s.check(t, "nobody waits", owners)
}

// inLine waits until so many stand in the queue of a fair lock.
func (s *stack) inLine(t *testing.T, queue string, want int64) {
	t.Helper()
	bedtest.Eventually(t, "the line is as long as it should be", func() bool {
		return s.redis.LLen(t.Context(), queue).Val() == want
	})
}

func agentReadWrite(t *testing.T, s *stack) {
	ctx, a, b := t.Context(), s.thread(), s.thread()
	owners := map[string]string{a.Owner(): "A", b.Owner(): "B"}
	must(t, a.ReadLock(t.Name()).Lock(ctx, lease))
	must(t, b.ReadLock(t.Name()).Lock(ctx, 2*lease))
	must(t, b.ReadLock(t.Name()).Lock(ctx, 2*lease))
	s.check(t, "two readers", owners,
		"NAME = [A:1 B:2 mode:read], 2m0s",
		"{NAME}:A:rwlock_timeout:1 = 1, 1m0s",
		"{NAME}:B:rwlock_timeout:1 = 1, 2m0s",
		"{NAME}:B:rwlock_timeout:2 = 1, 2m0s")
	if value(a.WriteLock(t.Name()).TryLock(ctx, 0, lease))(t) {
		t.Error("a writer among readers")
	}
	must(t, a.ReadLock(t.Name()).Unlock(ctx))
	must(t, b.ReadLock(t.Name()).Unlock(ctx))
	must(t, b.ReadLock(t.Name()).Unlock(ctx))
	s.check(t, "no reader left", owners)
	must(t, a.WriteLock(t.Name()).Lock(ctx, lease))
	s.check(t, "a writer", owners, "NAME = [A:write:1 mode:write], 1m0s")
	if value(b.ReadLock(t.Name()).TryLock(ctx, 0, lease))(t) {
		t.Error("a reader beside the writer")
	}
	must(t, a.WriteLock(t.Name()).Unlock(ctx))
	s.check(t, "no writer left", owners)
}

func agentMulti(t *testing.T, s *stack) {
	ctx, a := t.Context(), s.thread()
	owners := map[string]string{a.Owner(): "A"}
	lock := a.MultiLock(t.Name()+"{1}", t.Name()+"{2}")
	if !value(lock.TryLock(ctx, 0, lease))(t) {
		t.Fatal("not locked")
	}
	s.check(t, "locked", owners, "NAME{1} = [A:1], 1m0s", "NAME{2} = [A:1], 1m0s")
	must(t, lock.Unlock(ctx))
	s.check(t, "unlocked", owners)
}

func agentSemaphore(t *testing.T, s *stack) {
	ctx, a, b := t.Context(), s.thread(), s.thread()
	semaphore := a.Semaphore(t.Name())
	if !value(semaphore.TrySetPermits(ctx, 3))(t) || value(semaphore.TrySetPermits(ctx, 5))(t) {
		t.Error("permits can be set other than once")
	}
	must(t, semaphore.Acquire(ctx, 2))
	s.check(t, "two taken", nil, "NAME = 1, stays")
	if value(semaphore.TryAcquire(ctx, 2, 0))(t) {
		t.Error("four of three permits")
	}
	waiter := background(func() (bool, error) { return b.Semaphore(t.Name()).TryAcquire(ctx, 2, patience) })
	s.listening(t, "redisson_sc:{"+t.Name()+"}", 1)
	must(t, semaphore.Release(ctx, 2))
	if !receive(t, waiter) {
		t.Error("a release let nobody in")
	}
	if n := value(semaphore.AvailablePermits(ctx))(t); n != 1 {
		t.Errorf("%d are free, want 1", n)
	}
	s.check(t, "two taken again", nil, "NAME = 1, stays")
}

// listening waits until so many clients listen on a channel.
func (s *stack) listening(t *testing.T, channel string, want int64) {
	t.Helper()
	bedtest.Eventually(t, "somebody listens on "+channel, func() bool {
		return s.redis.PubSubNumSub(t.Context(), channel).Val()[channel] == want
	})
}

// agentWait has threads in Java wait for each other, and compares clocks.
func agentWait(t *testing.T, s *stack) {
	ctx, a, b := t.Context(), s.thread(), s.thread()
	holder, waiter := a.Lock(t.Name()), b.Lock(t.Name())
	must(t, holder.Lock(ctx, lease))
	done := background(func() (bool, error) { return waiter.TryLock(ctx, patience, lease) })
	s.listening(t, "redisson_lock__channel:{"+t.Name()+"}", 1)
	before := time.Now().Truncate(time.Microsecond)
	must(t, holder.Unlock(ctx))
	if !receive(t, done) {
		t.Fatal("the lock was not handed over")
	}
	if at := b.Last().Returned; at.Before(before) || at.After(time.Now()) {
		t.Errorf("the waiter returned at %v, want between %v and now", at, before)
	}
	must(t, waiter.Unlock(ctx))
	s.listening(t, "redisson_lock__channel:{"+t.Name()+"}", 0)
}

// agentCall breaks off a call, and makes one that there is not.
func agentCall(t *testing.T, s *stack) {
	a, b := s.thread(), s.thread()
	must(t, a.Lock(t.Name()).Lock(t.Context(), lease))
	ctx, leave := context.WithCancel(t.Context())
	done := background(func() (bool, error) { return b.Lock(t.Name()).TryLock(ctx, patience, lease) })
	s.listening(t, "redisson_lock__channel:{"+t.Name()+"}", 1)
	leave()
	if o := <-done; !errors.Is(o.err, context.Canceled) {
		t.Errorf("broken off: %v, want context.Canceled", o.err)
	}
	must(t, a.Lock(t.Name()).Unlock(t.Context()))
	var exception *testbed.RedissonError
	_, err := a.MultiLock(t.Name()).HoldCount(t.Context())
	if !errors.As(err, &exception) || exception.Class != "UnsupportedOperationException" {
		t.Errorf("a call that there is not: %v", err)
	}
}

// TestAgentDies has the watchdog renew a lock until the Java process is killed,
// and a new process take it.
func TestAgentDies(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{Watchdog: 1500 * time.Millisecond})
	ctx, a := t.Context(), s.thread()
	must(t, a.Lock("k").Lock(ctx, testbed.Renewed))
	last := time.Duration(0)
	bedtest.Eventually(t, "a renewal", func() bool {
		ttl := s.redis.PTTL(ctx, "k").Val()
		grew := last > 0 && ttl > last
		last = ttl
		return grew
	})
	s.java.Kill()
	if err := a.Lock("k").Unlock(ctx); err == nil {
		t.Error("a thread of a killed process unlocked")
	}
	must(t, s.java.Restart(ctx))
	b := s.thread()
	if !value(b.Lock("k").TryLock(ctx, patience, lease))(t) {
		t.Error("the lock outlived its lease")
	}
	if a.Owner() == b.Owner() {
		t.Error("two clients share an owner")
	}
}
