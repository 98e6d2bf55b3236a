package redislock

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// losses is an Observer that counts what was lost, and what ended.
type losses struct {
	noObserver
	n, ended atomic.Int32
}

func (l *losses) Lost() { l.n.Add(1) }

func (l *losses) Released(time.Duration) { l.ended.Add(1) }

// wantOne checks that one lease has ended, and was lost.
func (l *losses) wantOne(t *testing.T) {
	t.Helper()
	if lost, ended := l.n.Load(), l.ended.Load(); lost != 1 || ended != 1 {
		t.Errorf("%d lost, %d ended, want one", lost, ended)
	}
}

// TestHoldAgain has Redis refuse one part of a lease when that is to be held, and another
// part deleted. What can be held is, and what is lost is reported at the end, once.
func TestHoldAgain(t *testing.T) {
	t.Parallel()
	f, seen := startFenced(t), &losses{}
	l := newLocker(t, f.client, Options{Hold: time.Hour, Observer: seen})
	lease := acquireAll(t, l, "k1", "k2", "k3")
	if err := f.admin.Del(t.Context(), "k1").Err(); err != nil {
		t.Fatal(err)
	}
	held := func(key string) bool { return f.admin.PTTL(t.Context(), key).Val() > l.opts.Lease }

	f.allow(t, "resetkeys", "~*k1*", "~*k2*")
	if err := lease.Hold(t.Context(), "test"); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("Hold: %v, want what Redis said of k3", err)
	}
	if err := lease.HoldAgain(t.Context(), "test"); err == nil || errors.Is(err, ErrLost) {
		t.Errorf("HoldAgain: %v, want what Redis said of k3", err)
	}
	if !held("k2") || held("k3") || seen.n.Load() != 0 {
		t.Errorf("k2 is held: %v, k3: %v, %d losses", held("k2"), held("k3"), seen.n.Load())
	}
	f.allow(t)
	for range 2 {
		if err := lease.HoldAgain(t.Context(), "test"); !errors.Is(err, ErrLost) {
			t.Errorf("HoldAgain: %v, want ErrLost of k1", err)
		}
	}
	if !held("k3") || held("k1") || seen.n.Load() != 1 {
		t.Errorf("k3 is held: %v, k1: %v, %d losses", held("k3"), held("k1"), seen.n.Load())
	}
}

// TestHoldAgainEndsWithTheLease has Redis refuse for longer than the lease.
func TestHoldAgainEndsWithTheLease(t *testing.T) {
	t.Parallel()
	f, seen := startFenced(t), &losses{}
	l := newLocker(t, f.client, Options{Lease: time.Second, Hold: time.Hour, Observer: seen})
	lease := acquire(t, l, "k")
	f.allow(t, "-evalsha", "-eval")
	_ = lease.Hold(t.Context(), "test") // the lease may be over by now
	bedtest.Eventually(t, "it is lost", func() bool { return errors.Is(lease.HoldAgain(t.Context(), "test"), ErrLost) })
	if n := seen.n.Load(); n != 1 {
		t.Errorf("%d losses", n)
	}
}
