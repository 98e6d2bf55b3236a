package redisson

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestFair(t *testing.T) {
	t.Parallel()
	s := newStack(t, testbed.RedissonOptions{})
	for _, test := range []struct {
		name string
		run  func(*testing.T, *stack)
	}{
		{"order", fairOrder}, {"leaving", fairLeaving}, {"death of ours", fairDeathOfOurs}, {"line", fairLine},
		{"long hold", fairLongHold},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s) })
	}
}

// line is who waits for a fair lock, first come first.
type line struct {
	*stack
	t       *testing.T
	name    string
	waiters []<-chan outcome[*grant]
}

// join has a party wait at the end of the line.
func (l *line) join(p party) {
	l.t.Helper()
	before := l.length()
	l.waiters = append(l.waiters, background(func() (*grant, error) {
		return p.ask(l.t.Context(), fair, l.name, lease, untilFree)
	}))
	l.await(before + 1)
}

// await waits until so many are in line.
func (l *line) await(n int64) {
	l.t.Helper()
	l.inLine(l.t, l.queue(), n)
}

func (l *line) length() int64 {
	l.t.Helper()
	return value(l.redis.LLen(l.t.Context(), l.queue()).Result())(l.t)
}

func (l *line) queue() string { return "redisson_lock_queue:{" + l.name + "}" }

// fairOrder lines up both sides by turns: they are served in that order, whoever
// holds and releases. Java's are served by messages only: they don't poll.
func fairOrder(t *testing.T, s *stack) {
	java, ours := newJavaParty(s), newGoParty(t, s)
	for _, order := range []struct {
		name    string
		parties []party
	}{
		{"after Java", []party{java, ours, java, ours, ours, java, java}},
		{"after ours", []party{ours, java, ours, java, java, ours, ours}},
	} {
		t.Run(order.name, func(t *testing.T) {
			l := &line{stack: s, t: t, name: t.Name()}
			holder := take(t, order.parties[0], fair, l.name, lease)
			for _, p := range order.parties {
				l.join(p)
			}
			for i := range l.waiters {
				release(t, holder)
				holder = l.served(i)
			}
			release(t, holder)
		})
	}
}

// fairLongHold has the holder stay for longer than its lease was when the line
// formed, as one does that renews it: the waiters keep their places, whoever is
// before them.
func fairLongHold(t *testing.T, s *stack) {
	const lasts = 8 * time.Second // ours count as alive for less
	java, ours := newJavaParty(s), newGoParty(t, s)
	l := &line{stack: s, t: t, name: t.Name()}
	holder := take(t, java, fair, l.name, lease)
	l.join(java)
	// Redisson counts from the end of the lease: that was near. The others count
	// from the first.
	first := value(s.redis.LIndex(t.Context(), l.queue(), 0).Result())(t)
	must(t, s.redis.ZIncrBy(t.Context(), "redisson_lock_timeout:{"+l.name+"}", -float64(lease.Milliseconds()), first).Err())
	since := time.Now()
	for _, p := range []party{ours, java, ours, ours} {
		l.join(p)
	}
	bedtest.Eventually(t, "it was held for long", func() bool { return time.Since(since) > lasts })
	release(t, holder)
	formed := len(l.waiters)
	for i := 0; i < len(l.waiters); i++ {
		g := l.served(i)
		if i < formed {
			l.join(ours) // who asks would pass over the dead
		}
		release(t, g)
	}
}

// served waits until somebody in line has the lock, who is to be number i.
func (l *line) served(i int) *grant {
	l.t.Helper()
	deadline := time.Now().Add(2 * patience)
	for time.Now().Before(deadline) {
		for k := i; k < len(l.waiters); k++ {
			select {
			case o := <-l.waiters[k]:
				must(l.t, o.err)
				if k != i || o.value == nil {
					l.t.Fatalf("of the line, number %d is next and number %d ended its wait (with the lock: %v)", i+1, k+1, o.value != nil)
				}
				return o.value
			case <-time.After(time.Millisecond):
			}
		}
	}
	l.t.Fatalf("number %d of the line was not served", i+1)
	panic("not reached")
}

// fairLeaving has the first in line leave before its turn: the one behind is
// served as soon as the lock is free.
func fairLeaving(t *testing.T, s *stack) {
	t.Run("Java's", func(t *testing.T) {
		l := &line{stack: s, t: t, name: t.Name()}
		holder := take(t, newGoParty(t, s), fair, l.name, lease)
		thread := s.thread()
		gone := background(func() (bool, error) {
			return thread.FairLock(l.name).TryLock(t.Context(), time.Second, lease)
		})
		l.await(1)
		l.join(newGoParty(t, s))
		if receive(t, gone) {
			t.Fatal("two have the lock")
		}
		l.await(1)
		release(t, holder)
		release(t, l.served(0))
	})
	t.Run("ours", func(t *testing.T) {
		l := &line{stack: s, t: t, name: t.Name()}
		holder := take(t, newJavaParty(s), fair, l.name, lease)
		ctx, leave := context.WithCancel(t.Context())
		ours := newGoParty(t, s)
		gone := background(func() (*grant, error) { return ours.ask(ctx, fair, l.name, lease, untilFree) })
		l.await(1)
		l.join(newJavaParty(s))
		leave()
		if o := <-gone; !errors.Is(o.err, context.Canceled) {
			t.Fatalf("who left: %v, want context.Canceled", o.err)
		}
		l.await(1)
		release(t, holder)
		release(t, l.served(0))
	})
}

// fairDeathOfOurs has one of ours wait first in line and then die: it can't
// leave in order, as its connections are broken. Java's is served all the same,
// when it asks again: that is when the lease would have ended that it saw last.
func fairDeathOfOurs(t *testing.T, s *stack) {
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	locker := value(redislock.New(client, redislock.Options{
		Kind: redislock.Fair, Wait: redislock.Wait{UpTo: 3 * time.Second}, MaxWaitersPerKey: 1,
	}))(t)
	defer locker.Close()
	java := newJavaParty(s)
	l := &line{stack: s, t: t, name: t.Name()}
	holder := take(t, newGoParty(t, s), fair, l.name, 2*time.Second)
	dead := background(func() (*redislock.Lease, error) { return locker.Acquire(t.Context(), l.name) })
	l.await(1)
	l.join(java)
	must(t, client.Close())
	if o := <-dead; o.err == nil {
		t.Fatal("who died has the lock")
	}
	if n := l.length(); n != 2 {
		t.Fatalf("%d are in line, want the dead one still there", n)
	}
	release(t, holder)
	release(t, l.served(0))
}

// TestFairDeathOfJava is the other way round.
func TestFairDeathOfJava(t *testing.T) {
	t.Parallel()
	// A waiter of Redisson's counts as alive for the lease of the holder and the
	// time that it would wait, from when it came.
	const held, waits = 2 * time.Second, 2 * time.Second
	s := newStack(t, testbed.RedissonOptions{})
	ours := newGoParty(t, s)
	l := &line{stack: s, t: t, name: t.Name()}
	holder := take(t, ours, fair, l.name, held)
	thread := s.thread()
	dead := background(func() (bool, error) { return thread.FairLock(l.name).TryLock(t.Context(), waits, lease) })
	l.await(1)
	s.java.Kill()
	if o := <-dead; o.err == nil {
		t.Fatalf("who died got an answer: %v", o.value)
	}
	l.join(ours)
	if n := l.length(); n != 2 {
		t.Fatalf("%d are in line, want the dead one still there", n)
	}
	release(t, holder)
	release(t, l.served(0))
	if n := l.length(); n != 0 {
		t.Errorf("%d are still in line", n)
	}
}

// fairLine compares what a line of Redisson's and one of ours are in Redis.
func fairLine(t *testing.T, s *stack) {
	var lines [2][]string
	for i, p := range s.pairs(t) {
		l := &line{stack: s, t: t, name: t.Name() + "/" + strings.ReplaceAll(p.name, " ", "-")}
		holder := take(t, p.holder, fair, l.name, lease)
		l.join(p.holder)
		waiter := value(s.redis.LIndex(t.Context(), l.queue(), 0).Result())(t)
		lines[i] = s.shared(t, fair, l.name, map[string]string{holder.owner: "HOLDER", waiter: "WAITER"})
		release(t, holder)
		if g := l.served(0); g.owner != waiter {
			t.Errorf("%s is in line, and %s has the lock", waiter, g.owner)
		} else {
			release(t, g)
		}
	}
	if diff := cmp.Diff(lines[0], lines[1]); diff != "" {
		t.Errorf("Redisson's line and ours (-Redisson +we):\n%s", diff)
	}
}
