package changelog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// After FLUSHALL every ordergate knows what the log lacks. They share the work.
func TestLostLogIsReappendedOnce(t *testing.T) {
	for _, tc := range []struct {
		name    string
		stopped int // ordergates that ended without deregistering
	}{{"by all", 0}, {"by a few", 7}} {
		t.Run(tc.name, func(t *testing.T) {
			const n = recentItems
			s := startRealServer(t)
			var all []*instance
			for i := range 10 {
				opts := Options{Member: fmt.Sprint("place ", i), Timeout: 10 * time.Second, Lease: 10 * time.Second}
				all = append(all, runInstance(t, s, opts))
			}
			ids := numbers("order ", n)
			for part := range slices.Chunk(ids, reappendBatch) {
				if err := all[0].Append(t.Context(), part...); err != nil {
					t.Fatal(err)
				}
			}
			for _, i := range all {
				eventually(t, "all is known to a member", func() bool { return i.count() == n && len(i.Members()) == len(all) })
			}
			for _, i := range all[:tc.stopped] {
				i.member.track("what keeps it from leaving")
				i.stop()
			}
			client := all[0].client
			if err := client.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			for _, i := range all[tc.stopped:] {
				eventually(t, "the log is followed again", func() bool {
					return i.State().Doubts[Gap] > 0 && i.State().Phase != Loading && i.Mark() != Mark{} && i.Wait(t.Context()) == nil ||
						tc.stopped > 0 && i.State().Phase == Away
				})
			}
			entries := client.XRange(t.Context(), logKey, "-", "+").Val()
			given := make(map[any]bool)
			for _, e := range entries {
				if id, ok := e.Values["id"]; ok {
					given[id] = true
				}
			}
			t.Logf("%d entries for %d orders", len(entries), n)
			if len(given) != n || len(entries) > 2*n {
				t.Errorf("%d of %d orders are in the log again, in %d entries: want %d at most", len(given), n, len(entries), 2*n)
			}
		})
	}
}

// TestEntriesReadDuringRecoveryAreReappended: entries read during recovery are remembered like
// earlier ones, if the next failover loses them.
func TestEntriesReadDuringRecoveryAreReappended(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	ctx := t.Context()
	a := runInstance(t, s, brisk("a"))
	push := func(id string) {
		t.Helper()
		if err := a.client.RPush(ctx, inboxKey, id).Err(); err != nil {
			t.Fatal(err)
		}
	}
	push("1")
	push("2")
	waitSure(t, a)
	loseLast(t, a.client, 2)
	push("3") // the page that shows the loss has it
	waitSure(t, a)
	if !a.has("3") || !a.hasKind(Failover) {
		t.Fatalf("it has 3: %v, doubts %v", a.has("3"), a.doubted())
	}
	pipe := a.client.TxPipeline()
	loseAfter(ctx, pipe, 1)
	pipe.HSet(ctx, metaKey, "term", strings.Repeat("1", 40))
	if _, err := pipe.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	waitSure(t, a)
	if a.hasKind(Gap) || a.hasKind(Lost) {
		t.Errorf("doubts that time alone does not clear: %v", a.doubted())
	}
	b := runInstance(t, s, patient("b"))
	waitSure(t, b)
	for _, id := range []string{"1", "2", "3"} {
		if !b.has(id) {
			t.Errorf("%s is lost: %v", id, a.client.XRange(ctx, logKey, "-", "+").Val())
		}
	}
}

// TestFailoverDuringTheFirstRead promotes a server between two pages. It has other entries with the
// numbers of the first page.
func TestFailoverDuringTheFirstRead(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	a := runInstance(t, s, brisk("a"))
	a.mustAppend(t, numbers("old", 30)...)
	waitSure(t, a)
	a.stop() // no other instance may append them
	opts := brisk("b")
	opts.PageSize = 10
	b := newInstance(t, s, opts)
	w := wired(t, s, b)
	outside := newInstance(t, s, Options{Lease: brisk("").Lease})
	var once sync.Once
	w.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if runs(cmd, b.page) && err == nil {
			once.Do(func() {
				pipe := a.client.TxPipeline()
				loseAfter(ctx, pipe, 5)
				pipe.HSet(ctx, metaKey, "term", strings.Repeat("0", 40))
				if _, err := pipe.Exec(ctx); err != nil {
					t.Error(err)
				}
				if err := outside.Record(ctx, numbers("new", 40)...); err != nil {
					t.Error(err)
				}
			})
		}
		return err
	})
	b.start(t)
	waitSure(t, b)
	for _, id := range numbers("new", 40) {
		if !b.has(id) {
			t.Errorf("%s is in the log, and was not read: doubts %v", id, b.doubted())
		}
	}
}

// setTo simulates a failover to a server with its own replication ID, which lost the entries after
// one.
func setTo(t *testing.T, c *redis.Client, seq uint64, name string) {
	t.Helper()
	pipe := c.TxPipeline()
	loseAfter(t.Context(), pipe, seq)
	pipe.HSet(t.Context(), metaKey, "term", strings.Repeat(name, 40))
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSecondLoss loses entries twice that only one ordergate knows. A later ordergate must find
// them in the log.
func TestSecondLoss(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	for n, tc := range []struct {
		name  string
		begin func(t *testing.T, a, other *instance)
		read  string // after a has read these entries
		then  func(t *testing.T, a, other *instance)
	}{
		{"read while it is mended", func(t *testing.T, _, other *instance) {
			setTo(t, other.client, 1, "0")
			other.mustAppend(t, "known", "last")
		}, "last", func(t *testing.T, _, other *instance) { setTo(t, other.client, 1, "1") }},
		{"acknowledged by a server that has less than was read", func(t *testing.T, _, other *instance) {
			other.mustAppend(t, "4", "5", "6", "7", "8")
		}, "8", func(t *testing.T, a, other *instance) {
			setTo(t, other.client, 3, "0")
			a.mustAppend(t, "known")
			setTo(t, other.client, 3, "1")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := database{s, n}
			opts := idle
			opts.Lease = 100 * time.Millisecond
			a, other := newInstance(t, d, opts), newInstance(t, d, opts)
			apply, then := a.Log.apply, sync.OnceFunc(func() { tc.then(t, a, other) })
			a.Log.apply = func(id string) {
				if apply(id); id == tc.read {
					then()
				}
			}
			a.start(t)
			other.mustAppend(t, "1", "2", "3")
			a.mustWait(t)
			tc.begin(t, a, other)
			a.mustWait(t)
			other.mustAppend(t, "new")
			a.mustWait(t)
			a.mustWait(t)
			if !a.has("known") {
				t.Error("it was not read")
			}
			if later := runInstance(t, d, opts); !later.waitFor(t, "known") {
				t.Errorf("the log does not have it; doubts %v", a.doubted())
			}
		})
	}
}
