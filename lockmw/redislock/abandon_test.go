package redislock

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestWithdrawnQuestion has a caller leave before its question was sent: Redis
// never hears of it, and there is nothing to give back.
func TestWithdrawnQuestion(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		j := jammed(t, c)
		j.acquire(t, "before")
		wantQueued(t, j.locker, 1)
		ctx, leave := context.WithCancel(t.Context())
		got := async(ctx, j.locker, "k")
		wantQueued(t, j.locker, 2)
		j.acquire(t, "after")
		wantQueued(t, j.locker, 3)
		leave()
		if r := bedtest.Receive(t, "the end of who left", got); !errors.Is(r.err, context.Canceled) || redisbatch.IsAmbiguous(r.err) {
			t.Errorf("who left: %v, ambiguous %v", r.err, redisbatch.IsAmbiguous(r.err))
		}
		wantQueued(t, j.locker, 2)
		j.drain(t, redisbatch.MaxWorkers+2)
		j.locker.cleanup.Wait()
		for _, trip := range j.seen() {
			for _, a := range trip.asked {
				if a.key == "k" {
					t.Errorf("Redis was sent %+v", a)
				}
			}
		}
		if n := c.Exists(t.Context(), "k", FenceKey("k")).Val(); n != 0 {
			t.Error("the lock was granted")
		}
	})
}

// TestAbandonedQuestion has a caller leave while its question is on its way. It is
// granted, and given back.
func TestAbandonedQuestion(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		for _, answered := range []bool{false, true} {
			t.Run(fmt.Sprint("answered ", answered), func(t *testing.T) {
				c := another(t, c)
				c.FlushAll(t.Context())
				j := jammed(t, c)
				ctx, leave := context.WithCancel(t.Context())
				got := async(ctx, j.locker, "k")
				wantQueued(t, j.locker, 1)
				block, opened := j.block, j.open
				if answered {
					block = j.blockAnswer
					j.block(func(trip) bool { return false })
				}
				blocked, open := block(func(t trip) bool { return t.has("acquire") && t.asked[0].key == "k" })
				defer open()
				opened()
				bedtest.Receive(t, "the question", blocked)
				leave()
				if r := bedtest.Receive(t, "the end of who left", got); !errors.Is(r.err, context.Canceled) || !redisbatch.IsAmbiguous(r.err) {
					t.Errorf("who left: %v, ambiguous %v", r.err, redisbatch.IsAmbiguous(r.err))
				}
				if answered != taken(t, c) {
					t.Errorf("taken: %v, want %v", !answered, answered)
				}
				open()
				for range redisbatch.MaxWorkers {
					release(t, bedtest.Receive(t, "a grant", j.results).ok(t))
				}
				j.locker.cleanup.Wait()
				if c.Exists(t.Context(), FenceKey("k")).Val() != 1 {
					t.Error("it was never granted")
				}
				if taken(t, c) || j.locker.Held() != 0 {
					t.Error("the lock was left behind")
				}
			})
		}
	})
}

// TestAbandonedForLong has the answer take longer than who left is waited for: the grant is
// given back all the same.
func TestAbandonedForLong(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	j := jammed(t, c)
	ctx, leave := context.WithCancel(t.Context())
	got := async(ctx, j.locker, "k")
	wantQueued(t, j.locker, 1)
	opened := j.open
	blocked, open := j.blockAnswer(func(t trip) bool { return t.has("acquire") && t.asked[0].key == "k" })
	defer open()
	opened()
	bedtest.Receive(t, "the question", blocked)
	leave()
	bedtest.Receive(t, "the end of who left", got)
	for range redisbatch.MaxWorkers - 1 { // the flight that has the answer has one, too
		release(t, bedtest.Receive(t, "a grant", j.results).ok(t))
	}
	bedtest.Eventually(t, "it is given back before its answer comes", func() bool { return !taken(t, c) })
	open()
	release(t, bedtest.Receive(t, "a grant", j.results).ok(t))
	j.locker.cleanup.Wait()
	if taken(t, c) {
		t.Error("the lock was left behind")
	}
}

// TestAbandonedBatch is the same for several locks that one question asks for, or for what of
// them is free.
func TestAbandonedBatch(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		j := jammed(t, c)
		ctx, leave := context.WithCancel(t.Context())
		keys := names("{first0}of a batch", 5)
		got := make(chan result, 1)
		go func() {
			lease, err := j.locker.AcquireAll(ctx, keys)
			got <- result{lease, err}
		}()
		wantQueued(t, j.locker, 1)
		opened := j.open
		blocked, open := j.blockAnswer(func(t trip) bool { return t.has("acquire_all") })
		defer open()
		opened()
		bedtest.Receive(t, "the question", blocked)
		leave()
		if r := bedtest.Receive(t, "the end of who left", got); !errors.Is(r.err, context.Canceled) {
			t.Errorf("who left: %v", r.err)
		}
		if n := c.Exists(t.Context(), keys...).Val(); n != int64(len(keys)) {
			t.Errorf("%d locks were granted", n)
		}
		open()
		for range redisbatch.MaxWorkers {
			release(t, bedtest.Receive(t, "a grant", j.results).ok(t))
		}
		j.locker.cleanup.Wait()
		if n := c.Exists(t.Context(), keys...).Val(); n != 0 || j.locker.Held() != 0 {
			t.Errorf("%d locks were left behind", n)
		}
	})
}

// TestAbandonedInVain is the same for a lock that another holds, which is left
// alone, and not asked about again.
func TestAbandonedInVain(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, c redis.UniversalClient) {
		held := acquire(t, newLocker(t, another(t, c), Options{}), "k")
		j := jammed(t, c)
		ctx, leave := context.WithCancel(t.Context())
		got := async(ctx, j.locker, "k")
		wantQueued(t, j.locker, 1)
		opened := j.open
		blocked, open := j.block(func(t trip) bool { return t.has("acquire") && t.asked[0].key == "k" })
		defer open()
		opened()
		bedtest.Receive(t, "the question", blocked)
		leave()
		bedtest.Receive(t, "the end of who left", got)
		open()
		for range redisbatch.MaxWorkers {
			release(t, bedtest.Receive(t, "a grant", j.results).ok(t))
		}
		j.locker.cleanup.Wait()
		for _, trip := range j.seen() {
			for _, a := range trip.asked {
				if a.key == "k" && a.deed != "acquire" {
					t.Errorf("Redis was sent %+v", a)
				}
			}
		}
		if !c.HExists(t.Context(), "k", held.Owner()).Val() {
			t.Error("the other's lock was given back")
		}
		release(t, held)
	})
}

// TestGiveBackFails loses the answer to a grant, and then the first attempt to give it
// back: the next one does it.
func TestGiveBackFails(t *testing.T) {
	t.Parallel()
	c := single(t, 1)[0]
	l, p := newLocker(t, c, Options{}), watch(t, c, Exclusive, Redisson)
	p.once(isDeed("acquire"), true, errors.New("the answer was lost"))
	p.once(isDeed("release"), false, errors.New("the question was lost"))
	if _, err := l.Acquire(t.Context(), "k"); err == nil {
		t.Error("granted without an answer")
	}
	l.cleanup.Wait()
	if c.Exists(t.Context(), "k").Val() != 0 {
		t.Error("it stays taken")
	}
}
