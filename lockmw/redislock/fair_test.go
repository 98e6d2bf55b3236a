package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// lineOf returns who waits for the fair lock "k", the first first.
func lineOf(t *testing.T, c redis.UniversalClient) []string {
	t.Helper()
	line, err := c.LRange(t.Context(), before(fairQueue, "k"), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// wantLine waits until so many stand in line, and returns them.
func wantLine(t *testing.T, c redis.UniversalClient, n int) (line []string) {
	t.Helper()
	bedtest.Eventually(t, fmt.Sprintf("%d stand in line", n), func() bool {
		line = lineOf(t, c)
		return len(line) == n
	})
	return line
}

// wantNoLine checks that nobody is in the list and the sorted set.
func wantNoLine(t *testing.T, c redis.UniversalClient) {
	t.Helper()
	if n := c.Exists(t.Context(), before(fairQueue, "k"), before(fairTimeouts, "k")).Val(); n != 0 {
		t.Errorf("in line are %v, %v", lineOf(t, c), c.ZRange(t.Context(), before(fairTimeouts, "k"), 0, -1).Val())
	}
}

// queueUp puts a waiter of another process into the line, as Redisson does it.
func queueUp(t *testing.T, c redis.UniversalClient, owner string, till time.Time) {
	t.Helper()
	c.RPush(t.Context(), before(fairQueue, "k"), owner)
	if err := c.ZAdd(t.Context(), before(fairTimeouts, "k"), redis.Z{Score: float64(till.UnixMilli()), Member: owner}).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestFairOrder has callers of three processes served in the order of arrival.
func TestFairOrder(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		opts := Options{Kind: Fair, Wait: Wait{UpTo: time.Minute}}
		lockers := []*Locker{newLocker(t, c, opts), newLocker(t, c, opts), newLocker(t, another(t, c), opts)}
		held := acquire(t, lockers[0], "k")
		checkOrder(t, lockers, held, 30, func(n int) { wantLine(t, c, n) })
		wantNoLine(t, c)
	})
}

// TestFairNewcomer has one who comes while the lock is free, and another first in
// line.
func TestFairNewcomer(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		queueUp(t, c, "java:1", time.Now().Add(time.Hour))
		l := newLocker(t, c, Options{Kind: Fair})
		if _, err := l.Acquire(t.Context(), "k"); !errors.Is(err, ErrBusy) {
			t.Errorf("past the first in line: %v, want ErrBusy", err)
		}
		if diff := gocmp.Diff([]string{"java:1"}, lineOf(t, c)); diff != "" {
			t.Errorf("in line (-want +got):\n%s", diff)
		}
	})
}

// TestFairWaiterDied has a waiter of Redisson's who is first in line and does not
// answer: until he counts as dead he is waited for, and not after.
func TestFairWaiterDied(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		opts := Options{Kind: Fair, Wait: Wait{UpTo: time.Minute}}
		l := newLocker(t, c, opts)
		held := acquire(t, l, "k")
		queueUp(t, c, "java:1", time.Now().Add(-time.Second)) // dead already
		till := time.Now().Add(1500 * time.Millisecond)
		queueUp(t, c, "java:2", till)
		ear := c.Subscribe(t.Context(), Channel(Fair, "k")+":java:2")
		defer func() { _ = ear.Close() }()
		wantListeners(t, c, Channel(Fair, "k")+":java:2", 1)
		got := async(t.Context(), l, "k")
		bedtest.Eventually(t, "the dead one is forgotten", func() bool {
			line := lineOf(t, c)
			return len(line) == 2 && line[0] == "java:2"
		})
		release(t, held)
		if time.Now().Before(till) { // or the machine is too busy for this
			if m, err := ear.ReceiveMessage(t.Context()); err != nil || m.Payload != "0" {
				t.Errorf("the first in line was told %v, %v", m, err)
			}
		}
		next := bedtest.Receive(t, "the grant", got).ok(t)
		if at := time.Now(); at.Before(till.Truncate(time.Millisecond)) {
			t.Errorf("granted %v before the first in line counts as dead", till.Sub(at))
		}
		release(t, next)
		wantNoLine(t, c)
	})
}

// TestFairWaiterStaysAlive has a waiter of ours tell again and again that it is
// there.
func TestFairWaiterStaysAlive(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Kind: Fair, Wait: Wait{UpTo: time.Minute}})
		held := acquire(t, l, "k")
		ctx, leave := context.WithCancel(t.Context())
		got := async(ctx, l, "k")
		owner := wantLine(t, c, 1)[0]
		alive := func() time.Time {
			score := c.ZScore(t.Context(), before(fairTimeouts, "k"), owner).Val()
			return time.UnixMilli(int64(score))
		}
		first := alive()
		if ahead := time.Until(first); ahead > fairWaiterTimeout {
			t.Errorf("it counts as alive for %v, want %v at most", ahead, fairWaiterTimeout)
		}
		bedtest.Eventually(t, "it says so again", func() bool { return alive().Sub(first) > usualPoll/2 })
		leave()
		if r := bedtest.Receive(t, "the end of the wait", got); !errors.Is(r.err, context.Canceled) {
			t.Errorf("who left: %v", r.err)
		}
		l.cleanup.Wait()
		wantNoLine(t, c)
		release(t, held)
	})
}

// TestFairLeaving takes who leaves, for whatever reason, out of the line.
func TestFairLeaving(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		held := acquire(t, newLocker(t, c, Options{Kind: Fair}), "k")
		opts := Options{Kind: Fair, Wait: never}
		l := newLocker(t, c, opts)
		ctx, leave := context.WithCancel(t.Context())
		var leaving, staying []<-chan result
		for i := range 10 {
			if i%2 == 0 {
				leaving = append(leaving, async(ctx, l, "k"))
			} else {
				staying = append(staying, async(t.Context(), l, "k"))
			}
			wantLine(t, c, i+1)
		}
		line := lineOf(t, c)
		leave()
		for _, got := range leaving {
			if r := bedtest.Receive(t, "the end of who left", got); !errors.Is(r.err, context.Canceled) {
				t.Errorf("who left: %v", r.err)
			}
		}
		l.cleanup.Wait()
		want := []string{line[1], line[3], line[5], line[7], line[9]}
		if diff := gocmp.Diff(want, lineOf(t, c)); diff != "" {
			t.Errorf("in line (-want +got):\n%s", diff)
		}
		// One whose wait ends, one for whom there is no seat, and one who asks once.
		for _, o := range []Options{
			{Wait: Wait{UpTo: 20 * time.Millisecond}},
			{Wait: Wait{UpTo: time.Hour}, MaxWaitersPerKey: 1},
			{Wait: once},
		} {
			o.Kind = Fair
			brief := newLocker(t, c, o)
			if o.MaxWaitersPerKey == 1 {
				ctx, leave := context.WithCancel(t.Context())
				seated := async(ctx, brief, "k")
				wantLine(t, c, len(want)+1)
				wantWaiting(t, brief, 1)
				defer func() { leave(); bedtest.Receive(t, "the end of who was seated", seated) }()
				want = append(want, lineOf(t, c)[len(want)])
			}
			if _, err := brief.Acquire(t.Context(), "k"); !errors.Is(err, ErrBusy) {
				t.Errorf("%+v: %v, want ErrBusy", o.Wait, err)
			}
			bedtest.Eventually(t, "it has left the line", func() bool { return slices.Equal(lineOf(t, c), want) })
		}
		release(t, held)
		for _, got := range staying {
			release(t, bedtest.Receive(t, "a grant", got).ok(t))
		}
	})
}

// TestFairCrowd has far more callers than may wait: those that are refused are not put
// into the line in Redis, and cost it nothing.
func TestFairCrowd(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		const seats, callers = 5, 300
		held := acquire(t, newLocker(t, another(t, c), Options{Kind: Fair}), "k")
		p := watch(t, c, Fair, Redisson)
		l := newLocker(t, c, Options{Kind: Fair, Wait: never, MaxWaitersPerKey: seats})
		ctx, leave := context.WithCancel(t.Context())
		results := make(chan error, callers)
		for range callers {
			go func() { _, err := l.Acquire(ctx, "k"); results <- err }()
		}
		for range callers - seats {
			if err := bedtest.Receive(t, "a refusal", results); !errors.Is(err, ErrBusy) {
				t.Errorf("one too many: %v, want ErrBusy", err)
			}
		}
		wantLine(t, c, seats)
		bedtest.Eventually(t, "all are subscribed", func() bool {
			return len(c.PubSubChannels(t.Context(), Channel(Fair, "k")+":*").Val()) == seats
		})
		l.cleanup.Wait()
		// A waiter asks when it comes and once its subscription is confirmed.
		if deeds := p.deedsSeen(); len(deeds) > 3*seats {
			t.Errorf("%d callers, %d of them waiting, asked %d times", callers, seats, len(deeds))
		}
		leave()
		for range seats {
			if err := bedtest.Receive(t, "the end of a wait", results); !errors.Is(err, context.Canceled) {
				t.Errorf("who left: %v", err)
			}
		}
		l.cleanup.Wait()
		wantNoLine(t, c)
		release(t, held)
	})
}

// TestFairWordIsPassedOn has a caller leave who was told that it is next, before it
// asked. The one behind it is told at once.
func TestFairWordIsPassedOn(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		opts := Options{Kind: Fair, Wait: never}
		holder, behind := newLocker(t, another(t, c), opts), newLocker(t, another(t, c), opts)
		held := acquire(t, holder, "k")
		l, p := newLocker(t, c, opts), watch(t, c, Fair, Redisson)
		ctx, leave := context.WithCancel(t.Context())
		first := async(ctx, l, "k")
		told := wantLine(t, c, 1)[0]
		p.settle(t, l, Channel(Fair, "k")+":"+told)
		second := async(t.Context(), behind, "k")
		next := wantLine(t, c, 2)[1]
		ear := another(t, c).Subscribe(t.Context(), Channel(Fair, "k")+":"+next)
		defer func() { _ = ear.Close() }()
		wantListeners(t, c, Channel(Fair, "k")+":"+next, 2)
		blocked, open := p.block(isDeed("acquire"))
		defer open()
		release(t, held)
		bedtest.Receive(t, "the question of who was told", blocked)
		leave()
		open()
		if r := bedtest.Receive(t, "the end of who left", first); !errors.Is(r.err, context.Canceled) {
			t.Errorf("who left: %v", r.err)
		}
		if m, err := ear.ReceiveTimeout(t.Context(), 30*time.Second); err != nil {
			t.Error(err)
		} else if _, ok := m.(*redis.Subscription); !ok {
			t.Errorf("first came %v", m)
		}
		if m, err := ear.ReceiveTimeout(t.Context(), 30*time.Second); err != nil {
			t.Errorf("the second in line was not told: %v", err)
		} else if m, ok := m.(*redis.Message); !ok || m.Payload != "0" {
			t.Errorf("the second in line was told %v", m)
		}
		release(t, bedtest.Receive(t, "the second's grant", second).ok(t))
		l.cleanup.Wait()
		behind.cleanup.Wait()
		wantNoLine(t, c)
	})
}

// TestFairLinePast has scores as Redisson writes them, long in the past and with a
// fraction.
func TestFairLinePast(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for i, score := range []string{"0", "-1", "1.5", strconv.FormatInt(time.Now().UnixMilli(), 10)} {
			owner := fmt.Sprint("java:", i)
			c.RPush(t.Context(), before(fairQueue, "k"), owner)
			c.Do(t.Context(), "zadd", before(fairTimeouts, "k"), score, owner)
		}
		c.RPush(t.Context(), before(fairQueue, "k"), "java:without a score")
		lease := acquire(t, newLocker(t, c, Options{Kind: Fair}), "k")
		wantNoLine(t, c)
		release(t, lease)
	})
}

// TestFairAskedTwice has a client ask again and again for a waiter, as one that lost
// the answer: the times in line go on with the clock, not with the questions.
func TestFairAskedTwice(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		l := newLocker(t, c, Options{Kind: Fair, Wait: never})
		held := acquire(t, l, "k")
		until := func(owner string) time.Time {
			ms, err := c.ZScore(t.Context(), before(fairTimeouts, "k"), owner).Result()
			if err != nil {
				t.Fatal(err)
			}
			return time.UnixMilli(int64(ms))
		}
		ask := func(owner string) {
			if a, err := l.try(t.Context(), "k", owner, AcquireOption{}); err != nil || a.granted() {
				t.Fatal(a, err)
			}
		}
		ask("first:1")
		ask("second:2")
		start, first := time.Now(), until("second:2")
		for range 20 {
			bedtest.Eventually(t, "a moment passes", func() bool { return time.Since(start) > 10*time.Millisecond })
			ask("second:2")
		}
		if later, passed := until("second:2").Sub(first), time.Since(start); later > passed+100*time.Millisecond {
			t.Errorf("after %v and 20 questions it counts as alive for %v longer", passed, later)
		}
		release(t, held)
	})
}
