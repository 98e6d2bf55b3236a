package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// failover simulates a failover that lost nothing.
func failover(ctx context.Context, c *redis.Client) error {
	return c.HSet(ctx, metaKey, "term", strings.Repeat("0", 40)).Err()
}

// loseAfter makes the log anew without the entries after one, as on a replica that lacks them. Since
// 7.2, a log from which they were deleted takes no entry with the same number.
func loseAfter(ctx context.Context, pipe redis.Pipeliner, seq uint64) {
	pipe.Eval(ctx, `
		local kept = redis.call('xrange', KEYS[1], '-', ARGV[1] .. '-0')
		redis.call('del', KEYS[1])
		for _, entry in ipairs(kept) do
			redis.call('xadd', KEYS[1], entry[1], unpack(entry[2]))
		end
		if #kept == 0 and ARGV[1] ~= '0' then
			redis.call('xadd', KEYS[1], 'maxlen', 0, ARGV[1] .. '-0', 'none', '')
		end
		return redis.call('hset', KEYS[2], 'seq', ARGV[1])`, []string{logKey, metaKey}, seq)
}

// loseLast simulates a failover that lost the last entry.
func loseLast(t *testing.T, c *redis.Client, seq uint64) {
	t.Helper()
	pipe := c.TxPipeline()
	loseAfter(t.Context(), pipe, seq-1)
	pipe.HSet(t.Context(), metaKey, "term", strings.Repeat("0", 40))
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// clockBack simulates a server clock that was set back.
func clockBack(ctx context.Context, c *redis.Client) error {
	return c.HSet(ctx, metaKey, "now", time.Now().Add(10*time.Second).UnixMilli()).Err()
}

// TestLostMembersStayAway cuts a member off, which may send replies to creates once its lease is
// over. Then it deletes a part of Redis.
func TestLostMembersStayAway(t *testing.T) {
	t.Parallel()
	deletes := func(keys ...string) func(context.Context, *redis.Client) error {
		return func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, keys...).Err() }
	}
	onEveryRedis(t, func(t *testing.T, s server) {
		for _, tc := range []struct {
			name string
			do   func(ctx context.Context, c *redis.Client) error
			kept bool // leases continue
		}{
			{"all", func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }, false},
			{"identity", deletes(metaKey), false},
			{"members", deletes(membersKey), false},
			{"identity and members", deletes(metaKey, membersKey), false},
			{"log and members", deletes(logKey, membersKey), false},
			{"log", deletes(logKey), true},
			{"inbox", deletes(inboxKey), true},
			{"history", failover, false},
			{"time", clockBack, false},
		} {
			t.Run(tc.name, func(t *testing.T) {
				ctx := t.Context()
				b := newInstance(t, s, brisk("b")) // it reads the members when it renews
				if tc.name == "history" && b.client.Info(ctx, "replication").Err() != nil {
					t.Skip("the server does not tell")
				}
				if err := b.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				b.start(t)
				// Its lease outlasts the checks while it is cut off. The member repeats a failed
				// renewal after a fifth of the lease, and an append may wait for its end.
				opts := brisk("a")
				opts.Lease = 10 * time.Second
				a, w := wiredInstance(t, s, opts)
				eventually(t, "they know each other", func() bool { return slices.Contains(b.Members(), a.member.Name()) })
				a.mustAppend(t, "1")
				waitSure(t, a, b)
				before := len(b.doubted())
				w.set(cut)
				if err := errors.Join(tc.do(ctx, b.client), b.client.RPush(ctx, inboxKey, "pushed").Err()); err != nil {
					t.Fatal(err)
				}
				if tc.kept {
					b.mustWait(t)
					return
				}
				// One window may open, if a doubt makes instances read the sources.
				for range 50 {
					if err := b.Wait(ctx); err == nil && len(b.doubted()) == before {
						t.Fatal("no member is missed")
					}
				}
				waitAway(t, b, a.member.Name())
				w.set(nil)
				waitSure(t, a, b)
				if !b.has("pushed") || !b.has("1") {
					t.Error("an ID is missing")
				}
				settled := len(a.doubted()) + len(b.doubted())
				waitSure(t, a, b)
				if now := len(a.doubted()) + len(b.doubted()); now != settled {
					t.Errorf("doubts without end: %v, %v", a.doubted(), b.doubted())
				}
			})
		}
	})
}

// TestAckInANewLeaseEpoch appends to a new primary. Another instance may still use the demoted one,
// where the lease continues.
func TestAckInANewLeaseEpoch(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := brisk("a")
	opts.Lease = 400 * time.Millisecond
	a, w := wiredInstance(t, s, opts)
	waitSure(t, a)
	a.mustAppend(t, "0")
	eventually(t, "it has a lease", func() bool {
		a.member.mu.Lock()
		defer a.member.mu.Unlock()
		return !a.member.renewedFrom.received.IsZero() && time.Since(a.member.renewedFrom.received) < opts.Lease/2
	})
	w.set(only(a.page, cut))
	if err := failover(t.Context(), w.other); err != nil {
		t.Fatal(err)
	}
	a.member.mu.Lock()
	over := a.member.leaseOver(a.member.renewedFrom.received)
	a.member.mu.Unlock()
	a.mustAppend(t, "1")
	if early := time.Until(over); early > 0 {
		t.Errorf("acknowledged %v before the lease is over that the demoted primary knows", early)
	}
	w.set(nil)
	waitSure(t, a)
}

// TestReplyOfADemotedPrimary receives a reply from a demoted primary.
func TestReplyOfADemotedPrimary(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		ctx := t.Context()
		a, w := wiredInstance(t, s, brisk("a"))
		waitSure(t, a)
		a.mustAppend(t, "0")
		h := hold(t)
		w.set(only(a.append, h.reply))
		appended := make(chan error, 1)
		go func() { appended <- a.appendAndWait(ctx, "1") }()
		<-h.entered
		old := make(chan any, 1)
		w.set(only(a.page, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if err == nil {
				select {
				case old <- cmd.(noRetryCmd).Val():
				default:
				}
			}
			return err
		}))
		page := <-old
		w.set(nil)
		leaseEpoch := a.member.lastLeaseEpoch()
		if err := clockBack(ctx, w.other); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new lease epoch is known", func() bool { return a.member.lastLeaseEpoch() != leaseEpoch })
		h.release()
		if err := <-appended; !errors.Is(err, ErrUnavailable) || !errors.Is(err, errDemoted) {
			t.Errorf("Append = %v, want one that is not acknowledged", err)
		}
		if n := a.State().Pending; n != 1 {
			t.Errorf("%d are pending", n)
		}
		w.set(only(a.page, func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			cmd.(noRetryCmd).SetVal(page)
			return nil
		}))
		eventually(t, "the page is refused", func() bool { return errors.Is(a.Wait(ctx), errDemoted) })
		if st := a.State(); st.Phase != Unavailable {
			t.Errorf("state %+v", st)
		}
		w.set(nil)
		a.mustAppend(t, "1")
		waitSure(t, a)
	})
}

// A late reply may be of a lease epoch that no instance has seen and that is over.
func TestLateReplyOfAnUnseenLeaseEpoch(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		ctx := t.Context()
		a, w := wiredInstance(t, s, brisk("a"))
		waitSure(t, a)
		a.mustAppend(t, "0")
		h := hold(t)
		leaseEpoch := a.member.lastLeaseEpoch()
		w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if runs(cmd, a.append) {
				return h.reply(ctx, cmd, next)
			}
			return errCut
		})
		if err := clockBack(ctx, w.other); err != nil {
			t.Fatal(err)
		}
		appended := make(chan error, 1)
		go func() { appended <- a.appendAndWait(ctx, "1") }()
		<-h.entered // in a second lease epoch
		// A read that was under way may still bring the second one.
		second, err := w.other.HGet(ctx, a.keys[keyMeta], "era").Result()
		if err != nil || second == leaseEpoch {
			t.Fatalf("the second lease epoch is %q, %v", second, err)
		}
		if err := clockBack(ctx, w.other); err != nil {
			t.Fatal(err)
		}
		w.set(nil)
		eventually(t, "the third lease epoch is known", func() bool {
			known := a.member.lastLeaseEpoch()
			return known != leaseEpoch && known != second
		})
		h.release()
		if err := <-appended; !errors.Is(err, errDemoted) {
			t.Errorf("Append = %v, want one that is not acknowledged", err)
		}
		a.mustAppend(t, "1")
		waitSure(t, a)
	})
}

// A failover loses an order that was acknowledged and not read. Another order is acknowledged after
// it, before the next read.
func TestLossBehindANewerEntry(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	ctx := t.Context()
	b, other := runInstance(t, s, idle), newInstance(t, s, idle)
	other.mustAppend(t, "1", "2")
	b.mustWait(t)
	b.mustAppend(t, "lost")
	if err := errors.Join(setBack(ctx, other.client, 2), failover(ctx, other.client)); err != nil {
		t.Fatal(err)
	}
	b.mustAppend(t, "newer", "newest")
	b.mustWait(t)
	b.mustWait(t)
	c := runInstance(t, s, idle)
	c.mustWait(t)
	for _, id := range []string{"1", "2", "lost", "newer", "newest"} {
		if !c.has(id) {
			t.Errorf("the log does not have %s", id)
		}
	}
}

// The first of two failovers loses nothing. An order is acknowledged after it. The second failover
// loses the order before the next read.
func TestLossInTheSecondFailover(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	ctx := t.Context()
	opts := idle
	opts.Lease = 100 * time.Millisecond // or a reply would wait for a longer one
	b, other := runInstance(t, s, opts), newInstance(t, s, opts)
	other.mustAppend(t, "1", "2")
	b.mustAppend(t, "3")
	b.mustWait(t)
	if err := failover(ctx, other.client); err != nil {
		t.Fatal(err)
	}
	b.mustAppend(t, "lost") // after a doubt
	second := other.client.HSet(ctx, metaKey, "term", strings.Repeat("1", 40)).Err()
	if err := errors.Join(setBack(ctx, other.client, 3), second); err != nil {
		t.Fatal(err)
	}
	other.mustAppend(t, "4", "5", "6")
	b.mustWait(t)
	b.mustWait(t)
	if c := runInstance(t, s, opts); !c.waitFor(t, "lost") {
		t.Errorf("the log does not have it; doubts %v", b.doubted())
	}
}

// A page is requested. Then a server acknowledges an order, and is demoted or loses all its data.
// The promoted server sends the page. The page is the first of all, or a later one.
func TestLossDuringARead(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	fails := func(ctx context.Context, c *redis.Client) error {
		return errors.Join(setBack(ctx, c, 3), failover(ctx, c))
	}
	empties := func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }
	t.Run("failover", func(t *testing.T) { lossDuringARead(t, s, false, fails) })
	t.Run("failover, first page", func(t *testing.T) { lossDuringARead(t, s, true, fails) })
	t.Run("FLUSHALL", func(t *testing.T) { lossDuringARead(t, s, false, empties) })
	t.Run("FLUSHALL, first page", func(t *testing.T) { lossDuringARead(t, s, true, empties) })
}

func lossDuringARead(t *testing.T, s server, first bool, do func(context.Context, *redis.Client) error) {
	ctx := t.Context()
	opts := idle
	opts.Lease = 100 * time.Millisecond
	b := newInstance(t, s, opts)
	w := wired(t, s, b)
	other := newInstance(t, s, opts)
	if err := other.client.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	other.mustAppend(t, "1", "2")
	b.mustAppend(t, "3")
	if !first {
		b.start(t)
		b.mustWait(t)
	}
	requested, goOn := make(chan struct{}), make(chan struct{})
	w.set(only(b.page, func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		close(requested)
		<-goOn
		w.set(nil)
		return next(ctx, cmd)
	}))
	if first {
		b.start(t)
	}
	read := make(chan error, 1)
	go func() { read <- b.Wait(ctx) }()
	<-requested
	b.mustAppend(t, "lost")
	if err := do(ctx, other.client); err != nil {
		t.Fatal(err)
	}
	other.mustAppend(t, "4", "5", "6")
	close(goOn)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	b.mustWait(t)
	if c := runInstance(t, s, opts); !c.waitFor(t, "lost") {
		t.Errorf("the log does not have it; doubts %v", b.doubted())
	}
}

// waitFor reads to the tail, and reports whether an ID was applied.
func (i *instance) waitFor(t *testing.T, id string) bool {
	t.Helper()
	i.mustWait(t)
	return i.has(id)
}

// TestRepeatedCall runs a script twice with the same arguments, like a client that received no
// reply. The two runs must not produce the same lease epoch, or an earlier renewal would count.
func TestRepeatedCall(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		a := newInstance(t, s, brisk("a"))
		named := make(map[string]bool)
		for range 3 {
			if err := a.client.Del(t.Context(), metaKey).Err(); err != nil {
				t.Fatal(err)
			}
			reply, err := a.append.Run(t.Context(), a.client, a.keys, "nonce", 0, "id", "1").StringSlice()
			if err != nil || len(reply) != 5 {
				t.Fatalf("%q, %v", reply, err)
			}
			if err := clockBack(t.Context(), a.client); err != nil {
				t.Fatal(err)
			}
			later, err := a.append.Run(t.Context(), a.client, a.keys, "nonce", 0, "id", "1").StringSlice()
			if err != nil || len(later) != 5 {
				t.Fatalf("%q, %v", later, err)
			}
			if later[1] != reply[1] {
				t.Errorf("the log was %q, is %q: nothing happened to it", reply[1], later[1])
			}
			for _, name := range []string{"log " + reply[1], "era " + reply[2], "era " + later[2]} {
				if named[name] {
					t.Errorf("%s comes twice", name)
				}
				named[name] = true
			}
		}
	})
}

// TestLossOfUnreadEntries acknowledges an order while a starting ordergate still reads the log or a
// snapshot. A failover loses the order before it was read.
func TestLossOfUnreadEntries(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		entries int
		trimmed bool
	}{{"a long log", recentItems + 3000, false}, {"a snapshot", 1000, true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := startRealServer(t)
			opts := atPosition("a")
			opts.Lease = 100 * time.Millisecond
			a := loadsSnapshot(t, s, opts)
			a.appendMany(t, "a", tc.entries)
			if tc.trimmed {
				a.trimmed(t, "only", 0)
			}
			a.stop()
			opts = idle
			opts.Lease = 100 * time.Millisecond
			opts.LoadSnapshot = a.opts.LoadSnapshot
			b := newInstance(t, s, opts)
			apply, acknowledge, lose := b.apply, sync.OnceFunc(func() { b.mustAppend(t, "early") }), sync.OnceFunc(func() {
				loseLast(t, b.client, b.unreadAcks[len(b.unreadAcks)-1].seq)
			})
			if tc.trimmed {
				b.opts.LoadSnapshot = func(ctx context.Context) (Mark, error) {
					acknowledge()
					return a.opts.LoadSnapshot(ctx)
				}
			}
			b.opts.PageSize = tc.entries / 100
			b.Log.apply = func(id string) {
				acknowledge()
				apply(id)
				if tc.trimmed || id == fmt.Sprint("a", tc.entries-1000) {
					lose()
				}
			}
			b.start(t)
			eventually(t, "the log is read", func() bool { return b.Wait(t.Context()) == nil })
			c := newInstance(t, s, idle)
			c.opts.LoadSnapshot = a.opts.LoadSnapshot
			c.start(t)
			if !c.waitFor(t, "early") {
				t.Errorf("the log does not have it; doubts %v", b.doubted())
			}
		})
	}
}
