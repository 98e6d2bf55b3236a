package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// rivalOf returns the options of a Locker that a lease of others shuts out.
func rivalOf(opts Options) Options {
	switch opts.Kind {
	case Read:
		opts.Kind = Write
	case Write:
		opts.Kind = Read
	case Semaphore:
		opts.Permits = 1
	}
	return opts
}

func wantBusy(t *testing.T, l *Locker, key, when string) {
	t.Helper()
	if lease, err := l.Acquire(t.Context(), key); !errors.Is(err, ErrBusy) {
		t.Errorf("%s: %v, want ErrBusy", when, err)
		if err == nil {
			release(t, lease)
		}
	}
}

// endIn returns how long a lock of a kind lasts unless it is renewed.
func endIn(t *testing.T, c redis.UniversalClient, l *Locker, key string) time.Duration {
	t.Helper()
	if s := inspect(t, c, l.opts, key); len(s.Holders) == 1 {
		return s.Holders[0].TTL
	}
	return 0
}

// onEachKind runs a test on a server of its own for every kind.
func onEachKind(t *testing.T, test func(t *testing.T, c redis.UniversalClient, opts Options)) {
	t.Helper()
	c := single(t, 1)[0]
	onEveryKind(t, func(t *testing.T, opts Options, key string) {
		if opts.Kind == Semaphore {
			opts.Permits = 1
		}
		t.Parallel()
		test(t, c, opts)
	})
}

// TestOnlyOurLeasesAreEntered has somebody else hold the lock, under a name that a
// request then presents.
func TestOnlyOurLeasesAreEntered(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	l := newLocker(t, c, Options{})
	ended := acquire(t, l, "another")
	release(t, ended)
	for _, opts := range lockKinds {
		opts.ensureDefaults()
		for i, name := range []string{
			"1", "worker-7", java, ended.Owner(), "mode", "read", "ordergate_fence",
			"7d6c1b1e-5b1e-4f0e-9d7b-0c1f2a3b4c5d", "7d6c1b1e-5b1e-4f0e-9d7b-0c1f2a3b4c5d:x",
		} {
			t.Run(fmt.Sprintf("%s %s %s", opts.Kind, opts.Format, name), func(t *testing.T) {
				if opts.Kind == Semaphore {
					opts.Permits = 1
				}
				key := fmt.Sprint("k", opts.Kind, opts.Format, i)
				l := newLocker(t, c, opts)
				release(t, acquire(t, l, key)) // there is a fence, and perhaps more, of ours
				before := time.Minute / 3
				switch {
				case opts.Format == String:
					c.Set(t.Context(), key, name, before)
				case opts.Kind == Read: // a Java writer, with the field "mode" of them
					play(t, c, key, "hset k mode write "+name+":write 1\npexpire k 20000")
				case opts.Kind == Write:
					play(t, c, key, "hset k mode write "+name+":write 1\npexpire k 20000")
				case opts.Kind == Semaphore:
					play(t, c, key, "set k 0")
				default:
					play(t, c, key, "hset k "+name+" 1\npexpire k 20000")
				}
				if lease, err := l.Acquire(t.Context(), key, Reenter(name)); err == nil {
					t.Error("let in by presenting another's name")
					release(t, lease)
				}
				if name == "ordergate_fence" { // which only its form keeps out
					return
				}
				if a, err := l.reenter(t.Context(), key, name, "entry", ""); err != nil || a.granted() {
					t.Errorf("entered a lock that ordergate did not grant: %v, %v", a, err)
				}
				if left := c.PTTL(t.Context(), key).Val(); left > before {
					t.Errorf("it lasts for %v by now, want %v at most", left, before)
				}
			})
		}
	}
	// A reader's lock is one that others of ours may share.
	readers := newLocker(t, c, Options{Kind: Read})
	play(t, c, "r", "hset k mode read "+java+" 1\nset {k}:"+java+":rwlock_timeout:1 1 px 20000\npexpire k 20000")
	for _, name := range []string{"mode", "read", java} {
		if a, err := readers.reenter(t.Context(), "r", name, "entry", ""); err != nil || a.granted() {
			t.Errorf("presenting %s: %v, %v", name, a, err)
		}
		release(t, acquire(t, readers, "r", Reenter(name)))
	}
}

// TestPartsEndApart has a lease and a call within it end at different times: neither
// shortens the other.
func TestPartsEndApart(t *testing.T) {
	t.Parallel()
	const lease, hold, long = 3 * time.Second, 200 * time.Millisecond, time.Hour
	onEachKind(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		opts.Lease, opts.Hold = lease, hold
		short := newLocker(t, c, opts)
		opts.Hold = long
		l := newLocker(t, c, opts)
		rival := newLocker(t, c, rivalOf(opts))
		name := func(what string) string { return fmt.Sprint(opts.Kind, opts.Format, " ", what) }
		renewed := func(l *Lease) {
			end := endOf(l)
			bedtest.Eventually(t, "a renewal", func() bool { return endOf(l).Sub(end) > lease/4 })
		}

		// A call within is held for long, and the lease around it renewed and released.
		key := name("held within")
		outer := acquire(t, l, key)
		inner := acquire(t, l, key, Reenter(outer.Owner()))
		if err := inner.Hold(t.Context(), "a test"); err != nil {
			t.Error(err)
		}
		renewed(outer)
		if left := endIn(t, c, l, key); left < long-time.Minute {
			t.Errorf("after a renewal, what is held within lasts for %v, want %v", left, long)
		}
		release(t, outer)
		if left := endIn(t, c, l, key); left < long-time.Minute {
			t.Errorf("after the release, what is held within lasts for %v, want %v", left, long)
		}
		wantBusy(t, rival, key, "after the release around what is held")

		// A lease is held for less than the call within it goes on.
		key = name("held around")
		outer = acquire(t, short, key)
		inner = acquire(t, short, key, Reenter(outer.Owner()))
		if err := outer.Hold(t.Context(), "a test"); err != nil {
			t.Error(err)
		}
		renewed(inner) // which takes longer than the hold
		wantBusy(t, rival, key, "while the call within goes on")
		select {
		case <-inner.Lost():
			t.Error("the call within was lost")
		default:
		}
		release(t, inner)
		release(t, acquire(t, rival, key)) // the hold is over as well
	})
}

// TestPartsOfOthers has several holders, and calls within the lease of the first: it
// has the first's fence, and its own permit.
func TestPartsOfOthers(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, opts := range []Options{{Kind: Read}, {Kind: Semaphore, Permits: 2}} {
			l := newLocker(t, c, opts)
			key := string(opts.Kind)
			outer, other := acquire(t, l, key), acquire(t, l, key)
			inner := acquire(t, l, key, Reenter(outer.Owner()))
			if inner.Fence() != outer.Fence() || inner.Fence() == other.Fence() {
				t.Errorf("%s: fence %d within a lease with %d; another holder has %d", key, inner.Fence(), outer.Fence(), other.Fence())
			}
			bedtest.Eventually(t, "both are on record", func() bool { return outer.onRecord() && other.onRecord() })
			again := acquire(t, l, key, Reenter(outer.Owner()))
			if again.Fence() != outer.Fence() {
				t.Errorf("%s: fence %d within a lease with %d, once that is on record", key, again.Fence(), outer.Fence())
			}
			release(t, again)
			release(t, outer)
			if opts.Kind == Semaphore {
				wantBusy(t, l, key, "while the call within has the permit")
			}
			release(t, other)
			if opts.Kind == Read {
				wantBusy(t, newLocker(t, c, Options{Kind: Write}), key, "while the call within reads")
			}
			release(t, inner)
			release(t, acquire(t, newLocker(t, c, rivalOf(opts)), key))
		}
	})
}

// TestPartDies has the process of a call within a lease die: its part ends, and the
// lease goes on as if it had never been.
func TestPartDies(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		opts.Lease = 2 * time.Second
		l, dying := newLocker(t, c, opts), newLocker(t, c, opts)
		key := fmt.Sprint("dies ", opts.Kind, opts.Format)
		outer := acquire(t, l, key)
		acquire(t, dying, key, Reenter(outer.Owner()))
		dying.Close()
		bedtest.Eventually(t, "its part has ended", func() bool {
			return c.Exists(t.Context(), after(key, "ordergate_entry:"+l.field(outer.Owner()))).Val() == 0
		})
		select {
		case <-outer.Lost():
			t.Error("the lease was lost")
		default:
		}
		release(t, outer)
		release(t, acquire(t, newLocker(t, c, rivalOf(opts)), key))
	})
}

// TestLateGrants has answers come after the lease that they grant has ended: of
// several keys, of a call within a lease, and of a lock that was handed over.
func TestLateGrants(t *testing.T) {
	t.Parallel()
	const lease = 600 * time.Millisecond // a busy machine renews it in time
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		client := another(t, c)
		l := newLocker(t, client, Options{Lease: lease, Wait: Wait{UpTo: time.Minute}})
		p := watch(t, client, Exclusive, Redisson)
		holder := newLocker(t, c, Options{})
		late := func(deed string) {
			once := true
			p.mu.Lock()
			defer p.mu.Unlock()
			p.after = func(trip trip) error {
				p.mu.Lock()
				mine := once && trip.has(deed)
				once = once && !mine
				p.mu.Unlock()
				if mine {
					start := time.Now()
					bedtest.Eventually(t, "the lease is over", func() bool { return time.Since(start) > 2*lease })
				}
				return nil
			}
		}
		late("acquire_all")
		if lease, err := l.AcquireAll(t.Context(), []string{"a", "b"}); !errors.Is(err, errLate) {
			t.Errorf("several keys: lease %v, %v, want %v", lease != nil, err, errLate)
		}
		outer := acquire(t, holder, "k")
		late("reenter")
		if lease, err := l.Acquire(t.Context(), "k", Reenter(outer.Owner())); !errors.Is(err, errLate) {
			t.Errorf("a call within: lease %v, %v, want %v", lease != nil, err, errLate)
		}
		release(t, outer)
		held := acquire(t, l, "h")
		got := async(t.Context(), l, "h")
		p.settle(t, l, "h")
		late("handover")
		if err := held.Release(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("the old lease is released in any case: %v", err)
		}
		next := bedtest.Receive(t, "the grant", got).ok(t)
		if left := time.Until(endOf(next)); left <= 0 {
			t.Errorf("the lease that was handed over is %v old", -left)
		}
		l.cleanup.Wait()
		if owner := c.HExists(t.Context(), "h", next.Owner()).Val(); !owner {
			t.Error("what was granted was given back")
		}
		release(t, next)
	})
}

// TestHeldWithinIsNotEntered has the outcome of a call within a lease be unknown: it may
// go on for as long as it is held, and nobody enters beside it.
func TestHeldWithinIsNotEntered(t *testing.T) {
	t.Parallel()
	onEachKind(t, func(t *testing.T, c redis.UniversalClient, opts Options) {
		opts.Hold = time.Hour
		l, key := newLocker(t, c, opts), fmt.Sprint(opts.Kind, opts.Format)
		outer := acquire(t, l, key)
		inner := acquire(t, l, key, Reenter(outer.Owner()))
		if err := inner.Hold(t.Context(), "a test"); err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"beside the call around it", "after the call around it"} {
			if a, err := l.reenter(t.Context(), key, outer.Owner(), "entry", ""); err != nil || a.granted() {
				t.Errorf("%s: a lease with a part that is held was entered: %v, %v", when, a, err)
			}
			release(t, outer)
		}
	})
}
