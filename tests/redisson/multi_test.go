package redisson

import (
	"errors"
	"testing"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
)

// TestMulti has Redisson's MultiLock and our AcquireAll want the same locks.
func TestMulti(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	ctx, names := t.Context(), []string{"a", "b", "c"}
	java, other := s.thread(), s.thread()
	multi, single := java.MultiLock("b", "c"), other.Lock("c")
	ours := newLocker(t, s, redislock.Options{Lease: lease})
	waiting := newLocker(t, s, redislock.Options{Lease: lease, Wait: waits[toBeWoken], MaxWaitersPerKey: 1})

	all := value(ours.AcquireAll(ctx, names))(t)
	if value(multi.TryLock(ctx, 0, lease))(t) || value(single.TryLock(ctx, 0, lease))(t) {
		t.Error("Java has a lock of ours")
	}
	must(t, all.Release(ctx))
	if !value(multi.TryLock(ctx, 0, lease))(t) {
		t.Fatal("Java does not get what is free")
	}
	if _, err := ours.AcquireAll(ctx, names); !errors.Is(err, redislock.ErrBusy) {
		t.Errorf("with two of three locks taken: %v, want ErrBusy", err)
	}
	if !value(other.Lock("a").TryLock(ctx, 0, lease))(t) {
		t.Error("we left a lock behind that we got beside those that are taken")
	}
	must(t, other.Lock("a").Unlock(ctx))
	done := background(func() (*redislock.Lease, error) { return waiting.AcquireAll(ctx, names) })
	for _, name := range []string{"b", "c"} { // Java's last one lets us in
		s.listening(t, redislock.Channel(redislock.Exclusive, name), 1)
		must(t, java.Lock(name).Unlock(ctx))
	}
	must(t, receive(t, done).Release(ctx))
	if n := s.redis.Exists(ctx, names...).Val(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}
