package changelog

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const snapshotKey = "ordergate:{orders}:snapshot"

// loadsSnapshot runs a log whose snapshots are lists of IDs.
func loadsSnapshot(t *testing.T, s server, opts Options) *instance {
	t.Helper()
	var i *instance
	opts.LoadSnapshot = func(ctx context.Context) (Mark, error) {
		at, err := i.Snapshot(ctx)
		if err != nil || at.Token == "" {
			return Mark{}, err
		}
		for n := range at.Chunks {
			text, err := i.Chunk(ctx, at.Token, n)
			if errors.Is(err, redis.Nil) {
				return Mark{}, nil
			}
			var ids []string
			if err = errors.Join(err, json.Unmarshal(text, &ids)); err != nil {
				return Mark{}, err
			}
			for _, id := range ids {
				i.apply(id)
			}
		}
		return at.Mark, nil
	}
	i = newInstance(t, s, opts)
	i.start(t)
	return i
}

// write writes a snapshot of all IDs of an instance to Redis, without adopting it.
func (i *instance) write(t *testing.T, token string) (next, before Snapshot) {
	t.Helper()
	eventually(t, "no member is away", func() bool { return i.Wait(t.Context()) == nil })
	before, err := i.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	next = Snapshot{Mark: i.Mark(), Token: token, Chunks: 3, Bytes: 1}
	i.mu.Lock()
	var ids []string
	for id := range i.ids {
		ids = append(ids, id)
	}
	i.mu.Unlock()
	for n := range next.Chunks {
		part := ids[len(ids)*n/next.Chunks : len(ids)*(n+1)/next.Chunks]
		text, err := json.Marshal(part)
		if err = errors.Join(err, i.PutChunk(t.Context(), token, n, text)); err != nil {
			t.Fatal(err)
		}
	}
	return next, before
}

// trimmed adopts a snapshot and trims the log. Entries must have been removed.
func (i *instance) trimmed(t *testing.T, token string, stay int) {
	t.Helper()
	next, before := i.write(t, token)
	if err := i.Adopt(t.Context(), next, before); err != nil {
		t.Fatal(err)
	}
	if removed, err := i.Trim(t.Context(), next, stay); err != nil || removed == 0 {
		t.Fatalf("%d entries were removed, %v", removed, err)
	}
}

func (i *instance) appendMany(t *testing.T, prefix string, n int) {
	t.Helper()
	for part := range slices.Chunk(numbers(prefix, n), reappendBatch) {
		if err := i.Append(t.Context(), part...); err != nil {
			t.Fatal(err)
		}
	}
}

// atPosition returns the options of an ordergate.
func atPosition(instanceID string) Options {
	return Options{Member: instanceID, PollEvery: 20 * time.Millisecond, Timeout: 10 * time.Second, Lease: 10 * time.Second}
}

func TestTrimmedLogUsesItsSnapshot(t *testing.T) {
	s := startRealServer(t)
	a := loadsSnapshot(t, s, atPosition("a"))
	slow := loadsSnapshot(t, s, idle)
	waitSure(t, a, slow)
	a.appendMany(t, "a", 2000)
	slow.mustWait(t) // and falls behind
	file := slow.Mark()
	a.appendMany(t, "b", 2000)
	if err := a.RecordDoubt(t.Context(), Doubt{Kind: Failover, Reason: "one that is settled"}); err != nil {
		t.Fatal(err)
	}
	a.trimmed(t, "first", 100)
	a.appendMany(t, "c", 2000)
	first := a.client.Keys(t.Context(), snapshotKey+":first:*").Val()
	a.trimmed(t, "second", 100)
	a.appendMany(t, "d", 500)
	if n := a.client.XLen(t.Context(), logKey).Val(); n > 500+100+slack {
		t.Errorf("the log has %d entries", n)
	}
	if left := a.client.Exists(t.Context(), first...).Val(); len(first) != 3 || left != 0 {
		t.Errorf("of %d chunks of the snapshot before there are %d", len(first), left)
	}
	for _, key := range a.client.Keys(t.Context(), snapshotKey+":*").Val() {
		if ttl := a.client.TTL(t.Context(), key).Val(); ttl >= 0 {
			t.Errorf("%s is gone in %v", key, ttl)
		}
	}

	again := newInstance(t, s, idle) // starts with a file that is older than the log
	again.opts.LoadSnapshot = func(ctx context.Context) (Mark, error) { return slow.opts.LoadSnapshot(ctx) }
	again.opts.PageSize = 10
	current, err := a.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	apply := again.Log.apply
	again.Log.apply = func(id string) {
		apply(id)
		// A file written now must not continue before the entry of the snapshot's mark.
		if at := again.Mark(); at != file && at.Seq < current.Seq {
			t.Errorf("the mark is at %d, before the entry that the snapshot ends with, %d", at.Seq, current.Seq)
		}
	}
	again.Resume(file)
	again.start(t)
	for name, i := range map[string]*instance{
		"one that starts": loadsSnapshot(t, s, idle), "one that was held up": slow, "one with a file": again,
	} {
		i.mustWait(t)
		for _, id := range []string{"a0", "b1999", "c1000", "d499"} {
			if !i.has(id) && !slow.has(id) {
				t.Errorf("%s does not have %s", name, id)
			}
		}
		if d := i.doubted(); len(d) > 0 {
			t.Errorf("%s has the doubts %v", name, d)
		}
		if i.Mark() != a.Mark() {
			a.mustWait(t)
			if i.Mark() != a.Mark() {
				t.Errorf("%s is at %v, not at %v", name, i.Mark(), a.Mark())
			}
		}
	}

	old := runInstance(t, s, idle) // of a release without snapshots
	old.mustWait(t)
	if old.kinds()[0] != Gap {
		t.Errorf("doubts of one that reads the log alone: %v", old.doubted())
	}

	// Lost entries that no instance remembers are reported.
	fresh := loadsSnapshot(t, s, idle)
	fresh.mustWait(t)
	fresh.stop()
	a.stop()
	again.stop()
	slow.stop()
	old.stop()
	late := loadsSnapshot(t, s, atPosition("late"))
	eventually(t, "no member is away", func() bool { return late.Wait(t.Context()) == nil })
	if err := late.client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	last := loadsSnapshot(t, s, idle)
	eventually(t, "no member is away", func() bool { return late.Wait(t.Context()) == nil && last.Wait(t.Context()) == nil })
	if !last.has("d499") || last.has("a0") || !last.hasKind(Lost) {
		t.Errorf("after FLUSHALL it has what is remembered: %v, the rest: %v, doubts %v", last.has("d499"), last.has("a0"), last.doubted())
	}
}

// TestTrimAfterAFailover delays an ordergate whose order a failover loses until the log was
// trimmed. The log does not show the loss.
func TestTrimAfterAFailover(t *testing.T) {
	s := startRealServer(t)
	opts := atPosition("c")
	opts.Lease = 200 * time.Millisecond // an append after a failover waits for its end
	c := loadsSnapshot(t, s, opts)
	opts.Member = "a"
	opts.LoadSnapshot = func(ctx context.Context) (Mark, error) { return c.opts.LoadSnapshot(ctx) }
	a, w := wiredInstance(t, s, opts)
	waitSure(t, a, c)
	c.appendMany(t, "a", 100)
	waitSure(t, a, c)
	w.set(only(a.page, cut))
	none, err := c.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a.mustAppend(t, "lost")
	loseLast(t, c.client, 101)
	eventually(t, "the failover is seen", func() bool { return c.hasKind(Failover) })
	c.appendMany(t, "b", 2000)
	eventually(t, "all is known", func() bool { return c.has("b1999") && c.Mark().Seq > 2000 })
	next := Snapshot{Mark: c.Mark(), Token: "only", Chunks: 1, Bytes: 1}
	if err := errors.Join(c.PutChunk(t.Context(), "only", 0, []byte("[]")), c.Adopt(t.Context(), next, none)); err != nil {
		t.Fatal(err)
	}
	if removed, err := c.Trim(t.Context(), next, 100); err != nil || removed == 0 {
		t.Fatalf("%d entries were removed, %v", removed, err)
	}
	w.set(nil)
	waitSure(t, a)
	d := newInstance(t, s, idle)
	d.opts.LoadSnapshot = a.opts.LoadSnapshot
	d.start(t)
	waitSure(t, d)
	if !d.has("lost") {
		t.Errorf("the log does not have it; doubts %v and %v", a.doubted(), d.doubted())
	}
}

// A trimmed log without a snapshot that joins it has a gap.
func TestTrimmedLogWithoutItsSnapshot(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, c *redis.Client) error{
		"deleted": func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, snapshotKey).Err() },
		"one chunk deleted": func(ctx context.Context, c *redis.Client) error {
			return c.Del(ctx, snapshotKey+":only:1").Err()
		},
		"of another log": func(ctx context.Context, c *redis.Client) error {
			return c.HSet(ctx, snapshotKey, "epoch", "another").Err()
		},
		"of another entry": func(ctx context.Context, c *redis.Client) error {
			return c.HSet(ctx, snapshotKey, "nonce", "another").Err()
		},
		"older than the log": func(ctx context.Context, c *redis.Client) error {
			return c.HSet(ctx, snapshotKey, "seq", "100").Err()
		},
		"later than the log": func(ctx context.Context, c *redis.Client) error {
			return c.HSet(ctx, snapshotKey, "seq", "100000").Err()
		},
		"not deleted, but the log": func(ctx context.Context, c *redis.Client) error { return c.Del(ctx, logKey).Err() },
		"gone, as the log": func(ctx context.Context, c *redis.Client) error {
			return errors.Join(c.Del(ctx, snapshotKey).Err(), c.XTrimMaxLen(ctx, logKey, 0).Err())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startRealServer(t)
			a := loadsSnapshot(t, s, idle)
			a.appendMany(t, "a", 1000)
			a.trimmed(t, "only", 100)
			if err := do(t.Context(), a.client); err != nil {
				t.Fatal(err)
			}
			b := loadsSnapshot(t, s, idle)
			b.mustWait(t)
			b.mustWait(t)
			if name == "not deleted, but the log" && !b.has("a0") {
				t.Error("what the snapshot has is not known")
			}
			if !b.hasKind(Gap) {
				t.Errorf("doubts %v", b.doubted())
			}
		})
	}
}

// A temporary error of Redis, or of the disk, is no damage to the log.
func TestLoadSnapshotIsRetried(t *testing.T) {
	s := startRealServer(t)
	a := loadsSnapshot(t, s, idle)
	a.appendMany(t, "a", 1000)
	a.trimmed(t, "only", 100)
	b := newInstance(t, s, Options{PollEvery: time.Millisecond, Timeout: 10 * time.Second})
	tries := 0
	b.opts.LoadSnapshot = func(ctx context.Context) (Mark, error) {
		if tries++; tries < 3 {
			return Mark{}, errors.New("no space left on device")
		}
		return a.opts.LoadSnapshot(ctx)
	}
	b.start(t)
	eventually(t, "it is taken", func() bool { return b.Wait(t.Context()) == nil })
	if len(b.doubted()) > 0 || tries != 3 || b.Mark() != a.Mark() {
		t.Errorf("after %d tries, at %v, doubts %v", tries, b.Mark(), b.doubted())
	}
}

func TestAdoptAndTrimAreRefused(t *testing.T) {
	ctx := t.Context()
	s := startRealServer(t)
	a := loadsSnapshot(t, s, atPosition("a"))
	a.appendMany(t, "a", 1000)
	older, none := a.write(t, "older")
	a.appendMany(t, "b", 1000)
	newer, _ := a.write(t, "newer")
	lacking, _ := a.write(t, "lacking")
	a.client.Del(ctx, a.chunkKey("lacking", 1))
	other, anotherEntry := newer, newer
	other.LogID, anotherEntry.Nonce = "other", "other"
	refused := func(what, why string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", what, err, why)
		}
	}
	trim := func(of Snapshot) error { _, err := a.Trim(ctx, of, 100); return err }
	refused("one without a chunk", "chunk 2 is gone", a.Adopt(ctx, lacking, none))
	refused("one of another log", "is another one", a.Adopt(ctx, other, none))
	refused("one of another entry", "lost entry 2000", a.Adopt(ctx, anotherEntry, none))
	refused("trimming before", "another snapshot", trim(newer))
	if err := a.Adopt(ctx, newer, none); err != nil {
		t.Fatal(err)
	}
	refused("a slow one", "quicker", a.Adopt(ctx, older, none))
	refused("an older one", "later one", a.Adopt(ctx, older, newer))
	refused("trimming by another", "another snapshot", trim(older))
	a.client.Rename(ctx, a.chunkKey("newer", 2), "aside")
	refused("trimming without a chunk", "chunk 3 is gone", trim(newer))
	a.client.Rename(ctx, "aside", a.chunkKey("newer", 2))

	old := runInstance(t, s, atPosition("old")) // of a release without snapshots
	eventually(t, "no member is away", func() bool { return old.Wait(t.Context()) == nil })
	if err := trim(newer); !errors.Is(err, ErrNotTrimmed) || !strings.Contains(err.Error(), old.member.Name()) {
		t.Errorf("beside a member of an older release: %v", err)
	}
	if n := a.client.XLen(ctx, logKey).Val(); n != 2000 {
		t.Errorf("%d entries are left", n)
	}
	old.stop()
	if removed, err := a.Trim(ctx, newer, 100); err != nil || removed < 1700 {
		t.Errorf("%d entries were removed, %v", removed, err)
	}
	if n, err := a.First(ctx); err != nil || n < 1700 || n > 1900 {
		t.Errorf("the log begins at %d, %v", n, err)
	}
}

// A promoted replica may lack the last writes. It may lack the trimming, but never the snapshot
// without the trimming.
func TestFailoverKeepsTheSnapshotOfATrimmedLog(t *testing.T) {
	s := startRealServer(t)
	a := loadsSnapshot(t, s, atPosition("a"))
	a.appendMany(t, "a", KeepBeforeMark+1000)
	a.trimmed(t, "only", KeepBeforeMark)
	a.appendMany(t, "b", 300)
	a.mustWait(t)
	seq := a.Mark().Seq
	pipe := a.client.Pipeline()
	loseAfter(t.Context(), pipe, seq-100)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.mustWait(t)
	a.mustWait(t)
	b := loadsSnapshot(t, s, idle)
	b.mustWait(t)
	lacks := 0
	for _, id := range append(numbers("a", KeepBeforeMark+1000), numbers("b", 300)...) {
		if !b.has(id) {
			lacks++
		}
	}
	if lacks > 0 || a.hasKind(Gap) || a.hasKind(Lost) || len(b.doubted()) > 0 {
		t.Errorf("%d are missing, doubts %v and %v", lacks, a.doubted(), b.doubted())
	}
}

// TestSnapshotOfAnotherPrimary loads a snapshot from a primary. Its successor has other entries
// before the snapshot's end, and has not reached that end yet.
func TestSnapshotOfAnotherPrimary(t *testing.T) {
	s := startRealServer(t)
	a := loadsSnapshot(t, s, atPosition("a"))
	eventually(t, "no member is away", func() bool { return a.Wait(t.Context()) == nil })
	a.appendMany(t, "a", 10)
	log, err := a.client.Dump(t.Context(), logKey).Result()
	if err != nil {
		t.Fatal(err)
	}
	meta, err := a.client.Dump(t.Context(), "ordergate:{orders}:meta").Result()
	if err != nil {
		t.Fatal(err)
	}
	a.appendMany(t, "b", 990)
	a.trimmed(t, "first", 0)
	a.stop()
	first, err := a.First(t.Context())
	if err != nil || first < 100 {
		t.Fatal(first, err)
	}
	var b *instance
	opts := idle
	opts.LoadSnapshot = func(ctx context.Context) (Mark, error) {
		at, err := a.opts.LoadSnapshot(ctx)
		if at.Seq == 0 || err != nil {
			return at, err
		}
		// A lagging replica is promoted. It already has its own orders.
		err = errors.Join(
			a.client.RestoreReplace(ctx, logKey, 0, log).Err(),
			a.client.RestoreReplace(ctx, "ordergate:{orders}:meta", 0, meta).Err(),
			a.client.HSet(ctx, "ordergate:{orders}:meta", "term", "former", "members", 0).Err(),
			a.client.Del(ctx, snapshotKey).Err())
		c := newInstance(t, s, Options{Lease: time.Millisecond})
		for _, id := range numbers("new", int(first)) { // so that it ends after the first
			err = errors.Join(err, c.Append(ctx, id))
		}
		return at, err
	}
	b = newInstance(t, s, opts)
	b.start(t)
	eventually(t, "the log is read", func() bool { return b.Wait(t.Context()) == nil })
	if !b.has("new0") && len(b.doubted()) == 0 {
		t.Errorf("read up to %d, the log began at %d then, and an order is absent that was acknowledged", b.Position(), first)
	}
}

// TestSnapshotWithAnotherEntry loads a snapshot. By the time that its end is read, the log has
// another entry there.
func TestSnapshotWithAnotherEntry(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	a := loadsSnapshot(t, s, atPosition("a"))
	eventually(t, "no member is away", func() bool { return a.Wait(t.Context()) == nil }) // or the first answers would wait for a lease
	a.appendMany(t, "a", 1000)
	a.trimmed(t, "only", 0)
	a.stop()
	opts := idle
	opts.PersistGaps, opts.Lease = true, 100*time.Millisecond
	opts.LoadSnapshot = func(ctx context.Context) (Mark, error) {
		at, err := a.opts.LoadSnapshot(ctx)
		at.Nonce = "another"
		return at, err
	}
	b := newInstance(t, s, opts)
	b.start(t)
	b.mustWait(t)
	for _, d := range b.doubted() {
		if d.Kind == Gap {
			return
		}
	}
	t.Errorf("doubts %+v", b.doubted())
}

// TestLossBeforeTheStartOfTheLog: an ordergate appends before its first read, and a failover loses
// the entry. Others fill and trim the log before it reads.
func TestLossBeforeTheStartOfTheLog(t *testing.T) {
	t.Parallel()
	s := startRealServer(t)
	opts := idle
	opts.Lease = 100 * time.Millisecond
	b := newInstance(t, s, opts)
	b.mustAppend(t, "1", "lost")
	loseLast(t, b.client, 2)
	a := loadsSnapshot(t, s, opts)
	a.appendMany(t, "a", 2000)
	a.trimmed(t, "only", 0)
	b.opts.LoadSnapshot = a.opts.LoadSnapshot
	b.start(t)
	b.mustWait(t)
	later := newInstance(t, s, opts)
	later.opts.LoadSnapshot = a.opts.LoadSnapshot
	later.start(t)
	if !later.waitFor(t, "lost") {
		t.Errorf("the log does not have it; doubts %v", b.doubted())
	}
}
