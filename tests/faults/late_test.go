package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// The tests of this file each let one message to Redis arrive late: after what the
// Locker said later, on another connection.

// TestLateAcquire lets the question for a lock arrive after its caller has left
// and the lock was given back, twice.
func TestLateAcquire(t *testing.T) {
	t.Parallel()
	direct, w, l := wired(t, redislock.Options{Lease: time.Minute})
	released := w.count("publish")
	caught, let := w.catch("late")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	acquired := make(chan error, 1)
	go func() {
		_, err := l.Acquire(ctx, "late")
		acquired <- err
	}()
	<-caught
	leave()
	if err := <-acquired; !errors.Is(err, context.Canceled) {
		t.Fatal("acquired with:", err)
	}
	bedtest.Eventually(t, "it is given back twice", func() bool { return released() >= 2 })
	close(let)
	bedtest.Eventually(t, "the question arrives", func() bool { return exists(t, direct, redislock.FenceKey("late")) })
	bedtest.Eventually(t, "the lock is given back", func() bool { return !exists(t, direct, "late") })
}

// TestLateAcquireOfAQuorum lets one server of three hear of a lock only after the
// others have granted it and it was released.
func TestLateAcquireOfAQuorum(t *testing.T) {
	direct, late, l := wiredQuorum(t)
	released := late.count("publish")
	caught, let := late.catch("late")
	lease := mustAcquire(t, l, "late")
	<-caught
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "it is released on the third server", func() bool { return released() > 0 })
	close(let)
	bedtest.Eventually(t, "the question arrives", func() bool { return exists(t, direct, redislock.FenceKey("late")) })
	bedtest.Eventually(t, "the lock is free on the third server", func() bool { return !exists(t, direct, "late") })
}

// TestHoldOfAQuorumThatIsLate has a lock held for an unknown outcome before one
// server of three has heard that it was granted: all of them have to hold it on.
func TestHoldOfAQuorumThatIsLate(t *testing.T) {
	direct, late, l := wiredQuorum(t)
	caught, let := late.catch("late")
	lease := mustAcquire(t, l, "late")
	<-caught
	held := make(chan error, 1)
	go func() { held <- lease.Hold(t.Context(), "nobody knows") }()
	time.Sleep(50 * time.Millisecond) // for a hold that does not wait to overtake the grant
	close(let)
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "the third server knows", func() bool { return endsIn(t, direct, "late") > lateLease })
}

// lateLease is that of wiredQuorum.
const lateLease = time.Minute

// wiredQuorum returns a Locker of three servers, of which the third is behind a
// wire. All of them know the scripts.
func wiredQuorum(t *testing.T) (third *redis.Client, late *wire, l *redislock.Locker) {
	t.Helper()
	bed := bedtest.New(t)
	var clients []redis.UniversalClient
	for range 3 {
		addr := bed.Redis().Addr()
		late, third = newWire(t, addr), connect(t, addr)
		clients = append(clients, connect(t, late.addr()))
	}
	l = build(t, clients, redislock.Options{Lease: lateLease, Hold: time.Hour})
	if err := mustAcquire(t, l, "warm").Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := mustAcquire(t, l, "held").Hold(t.Context(), "nothing"); err != nil {
		t.Fatal(err)
	}
	// The last to be asked may still be busy with that.
	bedtest.Eventually(t, "all know the scripts", func() bool {
		return exists(t, third, redislock.FenceKey("warm")) && !exists(t, third, "warm") && endsIn(t, third, "held") > lateLease
	})
	return third, late, l
}

// TestLateHandOver lets the messages that hand locks over arrive after the Locker
// has given up on them. The one that was to get the lock asks again, and what it
// gets must not be taken from it by what is given back in the meantime.
func TestLateHandOver(t *testing.T) {
	t.Parallel()
	rounds := 50
	if soak {
		rounds = 1_000
	}
	// If a release is not even sent in time, on a busy machine, its lock ends with
	// the lease.
	opts := redislock.Options{Lease: 10 * time.Second, Wait: redislock.Wait{UpTo: time.Minute}, MaxWaitersPerKey: 1}
	direct, w, warm := wired(t, opts)
	mustHandOver(t, warm)
	client := connect(t, w.addr())
	unsure := 0
	var lockers []*redislock.Locker
	var held []*redislock.Lease
	for i := range rounds {
		// Each has a Locker of its own, and so no other question to go with: one that
		// was not sent yet when its context ends is not sent at all.
		key, l := fmt.Sprintf("key-%d-", i), newLocker(t, client, opts)
		first := mustAcquire(t, l, key)
		granted := make(chan *redislock.Lease, 1)
		go func() {
			lease, err := l.Acquire(t.Context(), key)
			if err != nil {
				t.Error(err)
			}
			granted <- lease
		}()
		bedtest.Eventually(t, "one waits", func() bool { return l.Waiting() == 1 })
		once := true
		w.set(func(p packet) (f fate) {
			if once && p.script() && p.says(key) {
				once = false
				f.late = 50 * time.Millisecond
			}
			return f
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if first.Release(ctx) != nil {
			unsure++
		}
		cancel()
		lease := <-granted
		if lease == nil {
			t.FailNow()
		}
		lockers, held = append(lockers, l), append(held, lease)
	}
	if unsure < rounds/2 {
		t.Errorf("only %d of %d hand-overs were given up", unsure, rounds)
	}
	// Of each, both owners are given back, three times.
	for _, l := range lockers {
		l.Close() // once all is given back
	}
	for _, lease := range held {
		if fields, err := direct.HGetAll(t.Context(), lease.Key()).Result(); err != nil || len(fields) != 2 || fields[lease.Owner()] != "1" {
			t.Errorf("%s is %v (%v), not held by its lease %s", lease.Key(), fields, err, lease.Owner())
		}
	}
}

// renewal is what every renewal says, and every hold.
const renewal = `"held":true`

// TestLateRenewal lets a renewal arrive after the lock was left to its hold time,
// which it must neither shorten nor lengthen.
func TestLateRenewal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		lease, hold time.Duration
	}{
		{"of a lease shorter than the hold", time.Second, time.Minute},
		{"of a lease longer than the hold", 3 * time.Second, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			direct, w, l := wired(t, redislock.Options{Lease: c.lease, Hold: c.hold})
			caught, let := w.catch(renewal)
			lease := mustAcquire(t, l, "k")
			<-caught
			if err := lease.Hold(t.Context(), "a test"); err != nil {
				t.Fatal(err)
			}
			before, called := time.Now(), calls(t, direct)
			close(let)
			bedtest.Eventually(t, "the renewal arrives", func() bool { return calls(t, direct) != called })
			left, passed := endsIn(t, direct, "k"), time.Since(before)
			if left > c.hold || left < c.hold-passed-time.Second/2 {
				t.Errorf("held for %v, it ends in %v after a late renewal", c.hold, left)
			}
		})
	}
}

// TestLateReentry lets a re-entry arrive after its caller has left and the lock was
// released, or left to its hold time: it must not keep the lock for longer.
func TestLateReentry(t *testing.T) {
	const hold = time.Second
	for _, c := range []struct {
		name string
		end  func(context.Context, *redislock.Lease) error
	}{
		{"of a lease that is held", func(ctx context.Context, l *redislock.Lease) error { return l.Hold(ctx, "a test") }},
		{"of a lease that was released", func(ctx context.Context, l *redislock.Lease) error { return l.Release(ctx) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			direct, w, l := wired(t, redislock.Options{Lease: time.Minute, Hold: hold})
			lease := mustAcquire(t, l, "k")
			owner := lease.Owner()
			caught, let := w.catch(fmt.Sprintf("60000\r\n$%d\r\n%s", len(owner), owner)) // after the lease's length, the owner
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			entered := make(chan error, 1)
			go func() {
				_, err := l.Acquire(ctx, "k", redislock.Reenter(lease.Owner()))
				entered <- err
			}()
			<-caught
			leave()
			if err := c.end(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			called := calls(t, direct)
			close(let)
			if err := <-entered; !errors.Is(err, context.Canceled) {
				t.Fatal("re-entered with:", err)
			}
			bedtest.Eventually(t, "the re-entry arrives", func() bool { return calls(t, direct) != called })
			if left := endsIn(t, direct, "k"); left > hold {
				t.Errorf("held for %v, it ends in %v after a late re-entry", hold, left)
			}
			bedtest.Eventually(t, "the lock is free", func() bool { return !exists(t, direct, "k") })
		})
	}
}

// wired returns a Locker behind a wire. Redis knows the scripts: a question about
// one that it does not know goes out twice, and the first time does nothing.
func wired(t *testing.T, opts redislock.Options) (direct *redis.Client, w *wire, l *redislock.Locker) {
	t.Helper()
	addr := bedtest.New(t).Redis().Addr()
	w = newWire(t, addr)
	l = newLocker(t, connect(t, w.addr()), opts)
	outer := mustAcquire(t, l, "warm")
	inner, err := l.Acquire(t.Context(), "warm", redislock.Reenter(outer.Owner()))
	if err == nil {
		err = errors.Join(inner.Release(t.Context()), outer.Hold(t.Context(), "nothing"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, addr), w, l
}

// mustHandOver has one caller give a lock to another.
func mustHandOver(t *testing.T, l *redislock.Locker) {
	t.Helper()
	first := mustAcquire(t, l, "handed over")
	over := make(chan error, 1)
	go func() {
		second, err := l.Acquire(t.Context(), "handed over")
		if err == nil {
			err = second.Release(t.Context())
		}
		over <- err
	}()
	bedtest.Eventually(t, "one waits", func() bool { return l.Waiting() == 1 })
	if err := errors.Join(first.Release(t.Context()), <-over); err != nil {
		t.Fatal(err)
	}
}

func mustAcquire(t *testing.T, l *redislock.Locker, key string) *redislock.Lease {
	t.Helper()
	lease, err := l.Acquire(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func exists(t *testing.T, c *redis.Client, key string) bool {
	t.Helper()
	n, err := c.Exists(t.Context(), key).Result()
	bedtest.Check(t, err)
	return n == 1
}

// endsIn returns what is left of a key, negative when it does not exist.
func endsIn(t *testing.T, c *redis.Client, key string) time.Duration {
	t.Helper()
	left, err := c.PTTL(t.Context(), key).Result()
	bedtest.Check(t, err)
	return left
}

// calls returns how many scripts Redis has run, in its own words.
func calls(t *testing.T, c *redis.Client) string {
	t.Helper()
	stats, err := c.Info(t.Context(), "commandstats").Result()
	bedtest.Check(t, err)
	_, rest, _ := strings.Cut(stats, "cmdstat_evalsha:")
	line, _, _ := strings.Cut(rest, ",")
	return line
}
