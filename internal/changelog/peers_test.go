package changelog

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestWaitForPeersCoversTheLaterAppend: an earlier append returns after a later one, which a reader
// has not received.
func TestWaitForPeersCoversTheLaterAppend(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a, aWire := wiredInstance(t, s, windowed("a", time.Hour))
		open(t, a)
		b, bWire := wiredInstance(t, s, windowed("b", time.Hour))
		open(t, a, b)
		windowsOver(a)
		must(t, a.appendAndWait(t.Context(), "0")) // this loads the script
		first := hold(t)
		aWire.set(only(a.append, first.reply))
		appended := make(chan error, 1)
		go func() { appended <- a.Append(t.Context(), "1") }()
		<-first.entered
		aWire.set(nil)
		eventually(t, "all have the first", func() bool { return a.appliedByAll() >= 2 })
		bWire.set(cut)
		must(t, a.Append(t.Context(), "2"))
		first.release()
		must(t, <-appended)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := a.WaitForPeers(ctx); err == nil && !b.has("2") {
			t.Error("a client may receive an order that a reader with a window lacks")
		}
	})
}

// TestWaitForPeersCoversEarlierFollowers: a follower has appended an order, which a reader has not
// received. The next follower goes on behind it.
func TestWaitForPeersCoversEarlierFollowers(t *testing.T) {
	t.Parallel()
	const hash = "ordergate:{orders}:follow"
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, windowed("a", time.Hour))
		open(t, a)
		b := runInstance(t, s, windowed("b", time.Hour))
		open(t, a, b)
		c, cWire := wiredInstance(t, s, windowed("c", time.Hour))
		open(t, a, b, c)
		windowsOver(b)
		cWire.set(only(c.page, cut))
		must(t, a.NewMember("source:db", time.Hour).RecordAt(t.Context(), Move{Hash: hash, Field: "db", To: "behind it"}, "1"))
		for _, i := range []*instance{b, c} {
			if at, err := i.NewMember("source:db", time.Hour).RecordedAt(t.Context(), hash, "db"); err != nil || at != "behind it" {
				t.Fatalf("the position is %q, %v", at, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if err := b.WaitForPeers(ctx); err == nil {
			t.Error("a client may receive an order that a reader with a window lacks")
		}
		cWire.set(nil)
		must(t, b.WaitForPeers(t.Context()))
		waitSure(t, a, b, c)
		if d := c.doubted(); !c.has("1") || len(d) > 0 {
			t.Errorf("the reader has the order: %v; doubts %v", c.has("1"), d)
		}
	})
}

// TestClearKeepsTheWindow clears a doubt beside an ordergate with a longer window.
func TestClearKeepsTheWindow(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := runInstance(t, s, windowed("a", time.Hour))
		open(t, a)
		must(t, a.client.HSet(t.Context(), a.keys[keyMeta], "window", 2*time.Hour.Milliseconds()).Err())
		b := newInstance(t, s, brisk("b"))
		must(t, b.Append(t.Context(), "1"))
		a.mustWait(t)
		at := a.Mark()
		must(t, b.ClearDoubts(t.Context(), at))
		if w := b.longestWindow(); w != 2*time.Hour {
			t.Errorf("who has cleared a doubt waits for windows of %v", w)
		}
	})
}

// TestReaderWithoutWindowIsNotListed reads a log that cannot be read while XREAD works: the log of
// a primary that became a replica.
func TestReaderWithoutWindowIsNotListed(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := windowed("b", time.Hour)
		opts.PollEvery = 50 * time.Millisecond
		b, w := wiredInstance(t, s, opts)
		open(t, b)
		a := newInstance(t, s, patient("a"))
		var reads, received atomic.Int64
		w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			switch {
			case runs(cmd, b.page):
				reads.Add(1)
				cmd.SetErr(redisError("READONLY You can't write against a read only replica."))
				return cmd.Err()
			case strings.EqualFold(cmd.Name(), "xread"):
				received.Add(1)
			}
			return next(ctx, cmd)
		})
		_, err := a.AppendDoubt(t.Context(), Doubt{Kind: Lost, Reason: "a test"})
		must(t, err)
		must(t, a.Append(t.Context(), "1"))
		began, before := time.Now(), reads.Load()+received.Load()
		time.Sleep(time.Second)
		calls, took := reads.Load()+received.Load()-before, time.Since(began)
		if most := 4 * int64(took/opts.PollEvery); calls > most {
			t.Errorf("in %v, %d reads that fail and calls of XREAD, but at most %d were due", took, calls, most)
		}
		w.set(nil)
		eventually(t, "it is read", func() bool { return b.has("1") })
	})
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// TestForeignEntryAtTheEnd appends an entry in another format.
func TestForeignEntryAtTheEnd(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := windowed("b", time.Hour)
		opts.PollEvery = 50 * time.Millisecond
		b, w := wiredInstance(t, s, opts)
		open(t, b)
		must(t, b.Append(t.Context(), "1"))
		must(t, b.client.Do(t.Context(), "XADD", b.keys[keyLog], "1-1", "id", "2").Err())
		eventually(t, "it is passed over", func() bool { return b.hasKind(Gap) })
		time.Sleep(100 * time.Millisecond)
		var calls atomic.Int64
		w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			calls.Add(1)
			return next(ctx, cmd)
		})
		time.Sleep(time.Second)
		if n := calls.Load(); n > 60 {
			t.Errorf("%d calls in a second in which nothing happens", n)
		}
	})
}

// TestInvalidWindowInRedis stores nonsense in place of the longest window.
func TestInvalidWindowInRedis(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, odd := range []string{"500ms", "", "0.5", "-1"} {
			b := runInstance(t, s, windowed(fmt.Sprint("b", len(odd)), 400*time.Millisecond))
			open(t, b)
			must(t, b.client.HSet(t.Context(), b.keys[keyMeta], "window", odd).Err())
			eventually(t, "it is put right", func() bool { return b.client.HGet(t.Context(), b.keys[keyMeta], "window").Val() == "400" })
			must(t, b.appendAndWait(t.Context(), odd+"!"))
			b.stop()
		}
	})
}

// TestProgressAfterAFailover has a new server whose clock is behind.
func TestProgressAfterAFailover(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := windowed("a", time.Second)
		opts.PollEvery, opts.Lease = 1200*time.Millisecond, 3*time.Second
		a := newInstance(t, s, opts)
		a.start(t)
		opts.Member = "b"
		b, w := wiredInstance(t, s, opts)
		w.set(only(b.page, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			time.Sleep(20 * time.Millisecond) // it is farther away
			return next(ctx, cmd)
		}))
		open(t, a, b)
		future := fmt.Sprint(time.Now().Add(time.Hour).UnixMilli(), "-0")
		must(t, a.client.XAdd(t.Context(), &redis.XAddArgs{Stream: a.keys[keyHad], ID: future, Values: []string{"era", "another", "least", "1"}}).Err())
		time.Sleep(100 * time.Millisecond)                                           // it is read
		must(t, a.client.Del(t.Context(), a.keys[keyReaders], a.keys[keyHad]).Err()) // as a failover does: a new lease epoch
		before := a.member.lastLeaseEpoch()
		eventually(t, "there is a new lease epoch", func() bool {
			return a.member.lastLeaseEpoch() != before && a.client.ZCard(t.Context(), a.keys[keyReaders]).Val() == 2
		})
		windowsOver(a)
		must(t, a.appendAndWait(t.Context(), "first")) // once the lease epoch counts
		var slow int
		for i := range 10 {
			began := time.Now()
			must(t, a.appendAndWait(t.Context(), fmt.Sprint(i)))
			if time.Since(began) > opts.PollEvery/3 {
				slow++
			}
		}
		if slow > 5 {
			t.Errorf("%d of 10 answers wait for the next read", slow)
		}
	})
}

// TestLongestWindowOutlastsALease promotes a server that does not know the longest window.
func TestLongestWindowOutlastsALease(t *testing.T) {
	var w peerWindows
	w.note("one", 10*time.Second, 2*time.Second)
	w.note("two", time.Second, 2*time.Second)
	if left := time.Until(w.until); left < over(10*time.Second)+2*time.Second {
		t.Errorf("windows of the server before count for %v", left)
	}
}
