package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// trimming is a deployment whose ordergates run in this process, on one Redis.
type trimming struct {
	t      *testing.T
	addr   string
	redis  *redis.Client
	places int
	format string // of IDs
	rules  string // more of them
}

func newTrimming(t *testing.T, bed *bedtest.Bed) *trimming {
	addr := bed.Redis().Addr()
	t.Setenv("TMPDIR", t.TempDir())
	d := &trimming{t: t, addr: addr, redis: redis.NewClient(&redis.Options{Addr: addr}), format: "format: digits, max_length: 19"}
	t.Cleanup(func() { _ = d.redis.Close() })
	return d
}

// start starts an ordergate with these settings of its filter, and waits until the log is
// followed.
func (d *trimming) start(settings string) *Loader {
	d.t.Helper()
	u, _ := d.startHost(settings)
	return u
}

func (d *trimming) startHost(settings string) (*Loader, *trimmingHost) {
	d.t.Helper()
	d.places++
	text := fmt.Sprintf(`
redis: {addresses: [%s], member: place %d}
filters: {orders: {%s}}
rules:
  - {name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, %s}, lookup: {filter: orders}}
`, d.addr, d.places, settings, d.format) + d.rules
	c, err := config.Parse("a.yaml", []byte(text), func(string) string { return "" })
	if err != nil {
		d.t.Fatal(err)
	}
	m, err := newHost(context.Background(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		d.t.Fatal(err)
	}
	u := m.filters["orders"]
	u.logSnapshot.least, u.logSnapshot.stay = 1000, 100
	m.Start(context.Background())
	e := &trimmingHost{m, sync.OnceFunc(m.Close)}
	d.t.Cleanup(e.stop)
	bedtest.Eventually(d.t, "the log is followed, or cannot be", func() bool {
		return u.log.Wait(d.t.Context()) == nil || u.log.State().Phase == changelog.Unavailable && u.filter.Loaded()
	})
	return u, e
}

type trimmingHost struct {
	*host
	stop func()
}

// create has orders created, and returns when the ordergates know them.
func (d *trimming) create(ids []string, by *Loader) {
	d.t.Helper()
	for part := range slices.Chunk(ids, 500) {
		if err := by.log.Append(d.t.Context(), part...); err != nil {
			d.t.Fatal(err)
		}
	}
	bedtest.Eventually(d.t, "the log is followed", func() bool { return by.log.Wait(d.t.Context()) == nil && by.filter.Loaded() })
}

// trim has an ordergate do what it does every ten seconds, again if Redis was late.
func (d *trimming) trim(u *Loader) {
	d.t.Helper()
	err := u.logSnapshot.trim(d.t.Context())
	for tries := 0; tries < 5 && errors.Is(err, changelog.ErrUnavailable); tries++ {
		err = u.logSnapshot.trim(d.t.Context())
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *trimming) entries() int64 {
	return d.redis.XLen(d.t.Context(), "ordergate:{orders}:log").Val()
}

// want asks for orders, and for as many that do not exist.
func (d *trimming) want(u *Loader, name string, ids []string, absent presence.Answer) {
	d.t.Helper()
	bedtest.Eventually(d.t, "it is certain", func() bool {
		return absent == presence.Unknown || u.log.Wait(d.t.Context()) == nil && u.filter.Loaded() && u.log.Window().Holds()
	})
	wrong := 0
	for _, id := range ids {
		if u.filter.MayContain(id) == presence.Absent {
			wrong++
		}
	}
	if wrong > 0 {
		d.t.Errorf("%s: %d of %d orders that exist are absent", name, wrong, len(ids))
	}
	answered := make(map[presence.Answer]int)
	for n := range 200 {
		answered[u.filter.MayContain(fmt.Sprint(3e17+n))]++
	}
	if answered[absent] < 190 {
		d.t.Errorf("%s: of orders that do not exist %v are %v", name, answered, absent)
	}
}

// scattered returns IDs of 18 digits.
func scattered(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint(1e17 + rand.Int64N(1e17))
	}
	return ids
}

// today returns IDs that tell their day.
func today(n int) []string {
	ids := make([]string, n)
	day := time.Now().UTC().Format("20060102")
	for i := range ids {
		ids[i] = fmt.Sprint(day, "1200000", 1e6+i)
	}
	return ids
}

func TestLogIsTrimmedUpToASnapshot(t *testing.T) {
	bed := bedtest.New(t)
	for _, tc := range []struct {
		name, settings, other string // other: of one that starts later
		ids                   func(int) []string
		format                string
	}{
		{"local", "capacity: 20000", "capacity: 20000", scattered, ""},
		{"larger", "capacity: 20000", "capacity: 100000", scattered, ""},
		{"smaller", "capacity: 20000", "capacity: 5000", scattered, ""},
		{"of another rate and layout", "capacity: 20000", "capacity: 20000, false_positive_rate: 0.0001, layout: classic", scattered, ""},
		{"grown by layers", "capacity: 2000, expand: {how: layers}", "capacity: 2000, expand: {how: layers}", scattered, ""},
		{"exact", "kind: exact", "kind: exact", scattered, ""},
		{"exact no more", "kind: exact", "capacity: 20000", scattered, ""},
		{"days by the ID", "capacity: 200000, segments: {keep: 10}", "capacity: 200000, segments: {keep: 9}", today, "format: timestamped"},
		{"days by arrival", "capacity: 200000, segments: {keep: 10, from: arrival, older: absent}", "capacity: 200000, segments: {keep: 10, from: arrival, older: absent}", scattered, ""},
		{"days no more", "capacity: 200000, segments: {keep: 10}", "capacity: 20000", today, "format: timestamped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newTrimming(t, bed)
			if tc.format != "" {
				d.format = tc.format
			}
			ids := tc.ids(5000)
			a := d.start(tc.settings)
			b := d.start(tc.other) // is there all the time
			for n := range 2 {
				d.create(ids[2500*n:2500*(n+1)], a)
				d.trim(a)
				if n := d.entries(); n > 300 {
					t.Fatalf("there are %d entries", n)
				}
			}
			if chunks := d.redis.Keys(t.Context(), "ordergate:{orders}:snapshot:*").Val(); len(chunks) > 3 {
				t.Errorf("there are the chunks %v", chunks)
			}
			d.want(b, "one that was there", ids, presence.Absent)
			c := d.start(tc.other)
			d.want(c, "one that starts", ids, presence.Absent)
			// And that one, in turn, writes what it took.
			more := tc.ids(7000)[5000:]
			d.create(more, c)
			d.trim(c)
			d.want(d.start(tc.settings), "one after that", append(ids, more...), presence.Absent)
			bedtest.Eventually(t, "no file is left", func() bool {
				left, err := filepath.Glob(filepath.Join(os.TempDir(), "ordergate-log-*"))
				return err == nil && len(left) == 0
			})
		})
	}
}

// Whatever fails halfway, there is a snapshot, or the entries.
func TestLogSnapshotIsWrittenWholeOrNotAtAll(t *testing.T) {
	bed := bedtest.New(t)
	d := newTrimming(t, bed)
	const settings = "capacity: 8000000" // 15 chunks
	a := d.start(settings)
	a.logSnapshot.least = 1
	ids := scattered(6000)
	d.create(ids[:3000], a)
	d.trim(a) // not yet: it would take more than it spares
	if n := d.entries(); n != 3000 {
		t.Errorf("there are %d entries", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	write := func(what string, want string) {
		t.Helper()
		if _, err := a.logSnapshot.write(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if n := d.entries(); n < 3000 {
			t.Errorf("%s: there are %d entries", what, n)
		}
	}
	go func() {
		defer close(started)
		bedtest.Eventually(t, "a chunk is written", func() bool {
			return len(d.redis.Keys(context.Background(), "ordergate:{orders}:snapshot:*").Val()) > 0
		})
		cancel()
	}()
	write("it ends", "context canceled")
	<-started
	ctx = t.Context()
	for _, key := range d.redis.Keys(ctx, "ordergate:{orders}:snapshot:*").Val() {
		if ttl := d.redis.TTL(ctx, key).Val(); ttl <= 0 || ttl > time.Hour {
			t.Errorf("%s is gone in %v", key, ttl)
		}
	}
	a.logSnapshot.dir = filepath.Join(t.TempDir(), "none")
	write("no room", "no such file")
	a.logSnapshot.dir = t.TempDir()
	d.redis.Set(ctx, "ordergate:{orders}:secret", strings.Repeat("ab", 16), 0)
	write("another secret", "another secret")
	d.redis.Del(ctx, "ordergate:{orders}:secret")
	a.filter.Doubt(filter.Doubt{Reason: "a doubt", Recovery: filter.ByOperator})
	write("in doubt", "not ready")

	b := d.start(settings)
	b.logSnapshot.least = 1
	if _, err := b.logSnapshot.write(ctx); err != nil {
		t.Fatal(err)
	}
	if current, err := b.log.Snapshot(ctx); err != nil || current.Chunks < 10 {
		t.Errorf("%+v, %v", current, err)
	}
	if size := d.redis.MemoryUsage(ctx, "ordergate:{orders}:snapshot").Val(); size > 1000 {
		t.Errorf("the head has %d bytes", size)
	}
	d.trim(b)
	d.want(d.start(settings), "one that starts", ids[:3000], presence.Absent)
}

// Without a snapshot that joins the log, and has the IDs as they are looked for, nothing
// is absent.
func TestNothingIsAbsentWithoutTheLogsSnapshot(t *testing.T) {
	bed := bedtest.New(t)
	const settings = "capacity: 20000"
	for name, spoil := range map[string]func(d *trimming, keys []string) error{
		"deleted": func(d *trimming, keys []string) error { return d.redis.Del(t.Context(), keys...).Err() },
		"cut off": func(d *trimming, keys []string) error {
			return d.redis.SetRange(t.Context(), keys[0], 1, "xx").Err()
		},
		"of another secret": func(d *trimming, _ []string) error {
			return d.redis.Set(t.Context(), "ordergate:{orders}:secret", strings.Repeat("ab", 16), 0).Err()
		},
		"of other forms of IDs": func(d *trimming, _ []string) error { d.format = "format: uuid"; return nil },
		"of another filter": func(d *trimming, keys []string) error {
			return d.redis.HSet(t.Context(), "ordergate:{orders}:snapshot", "chunks", 0).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTrimming(t, bed)
			a := d.start(settings)
			ids := scattered(3000)
			d.create(ids, a)
			d.trim(a)
			keys := d.redis.Keys(t.Context(), "ordergate:{orders}:snapshot:*").Val()
			if err := spoil(d, keys); err != nil || len(keys) == 0 {
				t.Fatal(keys, err)
			}
			b := d.start(settings)
			d.want(b, "one that starts", ids, presence.Unknown)
			if state, reason := b.filter.State(); state != filter.StateUnknown || !strings.Contains(reason, "unusable") {
				t.Errorf("it is %s: %s", state, reason)
			}
			d.want(a, "one that has all", ids, presence.Absent)
			if name != "deleted" {
				// Somebody says that the sources have every order: from then on the others
				// can do with what this one has.
				if _, _, err := b.Reload(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				d.want(b, "one that was told", nil, presence.Absent)
				d.trim(b)
				d.want(d.start(settings), "one that starts after that", nil, presence.Absent)
				return
			}
			// Whoever has it all writes another.
			if err := d.redis.Del(t.Context(), "ordergate:{orders}:snapshot").Err(); err != nil {
				t.Fatal(err)
			}
			d.trim(a)
			d.want(d.start(settings), "one that starts later", ids, presence.Absent)
		})
	}
}

// A file that is older than the log's beginning is of use still, whatever its secret.
func TestSnapshotFileOlderThanTheLog(t *testing.T) {
	bed := bedtest.New(t)
	d := newTrimming(t, bed)
	dir := t.TempDir()
	settings := func(name string) string {
		return fmt.Sprintf("capacity: 20000, snapshot: {path: %q}", filepath.Join(dir, name))
	}
	if err := os.WriteFile(filepath.Join(dir, "a.secret"), []byte(strings.Repeat("1a", 16)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.secret"), []byte(strings.Repeat("2b", 16)), 0o600); err != nil {
		t.Fatal(err)
	}
	a := d.start(settings("a"))
	ids := scattered(6000)
	b, e := d.startHost(settings("b"))
	d.create(ids[:3000], a)
	d.want(b, "another", ids[:3000], presence.Absent)
	e.stop() // which writes its file
	d.create(ids[3000:], a)
	d.trim(a)
	b = d.start(settings("b"))
	d.want(b, "one that starts from its file", ids, presence.Absent)
	if b.logSnapshot.key != a.logSnapshot.key {
		t.Error("they have secrets of their own")
	}
	b.logSnapshot.least = 1
	d.create(scattered(1), b)
	d.trim(b)
}

// What is in bits alone cannot be read again: a filter grows by a layer then.
func TestFilterGrowsWithATrimmedLog(t *testing.T) {
	bed := bedtest.New(t)
	d := newTrimming(t, bed)
	const settings = "capacity: 6000, expand: {how: rebuild, at_fill: 1}"
	a := d.start(settings)
	ids := scattered(3000)
	d.create(ids, a)
	if err := a.filter.Expand(t.Context()); err != nil || a.filter.Expansion().Read != 3000 {
		t.Fatalf("%v, %d IDs were read again", err, a.filter.Expansion().Read)
	}
	d.trim(a)
	if err := a.filter.Expand(t.Context()); err != nil || a.filter.Capacity() < 13000 {
		t.Errorf("%v, it has room for %d", err, a.filter.Capacity())
	}
	d.want(a, "one that grew", ids, presence.Absent)
	d.want(d.start(settings), "one that starts", ids, presence.Absent)
}

// A filter is not made of what is left of a log whose snapshot is gone, even if what it would
// lack is less than its rate of false positives.
func TestFilterDoesNotGrowWithoutTheLogsSnapshot(t *testing.T) {
	d := newTrimming(t, bedtest.New(t))
	path := filepath.Join(t.TempDir(), "old.csv")
	if err := os.WriteFile(path, []byte(strings.Join(scattered(200_000), "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.rules = fmt.Sprintf("sources: {old: {kind: csv, path: %q}}\n", path)
	a := d.start("capacity: 210_000, false_positive_rate: 0.01, sources: [old], expand: {how: rebuild, at_fill: 1}")
	ids := scattered(3000)
	d.create(ids, a)
	d.trim(a)
	if err := d.redis.Del(t.Context(), "ordergate:{orders}:snapshot").Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.filter.Expand(t.Context()); err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		if got := a.filter.MayContain(id); got == presence.Absent {
			t.Fatalf("%s is absent", id)
		}
	}
}

// TestLogSnapshotHasAllForms has rules that write an ID in different forms. Whoever starts
// from the snapshot finds it in each.
func TestLogSnapshotHasAllForms(t *testing.T) {
	d := newTrimming(t, bedtest.New(t))
	d.format = "format: uuid"
	d.rules = `  - {name: text, match: {methods: [GET], path: "/texts/{id}"}, id: {path: id, format: pattern, pattern: '[0-9a-fA-F-]{36}'}, lookup: {filter: orders}}
`
	const settings = "capacity: 100_000, false_positive_rate: 0.000001"
	a := d.start(settings)
	ids := make([]string, 3000)
	for i := range ids {
		ids[i] = fmt.Sprintf("ABCDEF00-0000-4000-8000-%012d", i)
	}
	d.create(ids, a)
	d.trim(a)
	if n := d.entries(); n >= 5000 {
		t.Fatalf("%d entries: the log is not trimmed", n)
	}
	for _, id := range ids {
		ids = append(ids, strings.ToLower(id))
	}
	d.want(d.start(settings), "started from the snapshot", ids, presence.Absent)
}

// TestNoLogSnapshotWithADoubt abandons a create, which may still run.
func TestNoLogSnapshotWithADoubt(t *testing.T) {
	d := newTrimming(t, bedtest.New(t))
	a := d.start("capacity: 100_000, false_positive_rate: 0.000001")
	d.create(scattered(3000), a)
	if err := a.log.RecordDoubt(t.Context(), changelog.Doubt{Kind: changelog.Running, Reason: "one that may still run"}); err != nil {
		t.Fatal(err)
	}
	bedtest.Eventually(t, "the doubt is known", func() bool { return a.filter.UntilClearable() > 0 })
	d.trim(a)
	if current, err := a.log.Snapshot(t.Context()); err != nil || current.Token != "" {
		t.Errorf("a snapshot ends at entry %d, %v", current.Seq, err)
	}
	if _, err := a.logSnapshot.write(t.Context()); !errors.Is(err, filter.ErrNotReady) {
		t.Errorf("writing a snapshot: %v", err)
	}
	if n := d.entries(); n < 3000 {
		t.Errorf("%d entries: the log is trimmed", n)
	}
}

// A server whose memory is full can be helped by removing what the snapshot has.
func TestLogIsTrimmedWhenMemoryIsFull(t *testing.T) {
	d := newTrimming(t, bedtest.New(t))
	a := d.start("capacity: 20000")
	d.create(scattered(3000), a)
	if _, err := a.logSnapshot.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.redis.ConfigSet(t.Context(), "maxmemory", "500kb").Err(); err != nil {
		t.Fatal(err)
	}
	if err := a.log.Append(t.Context(), "1"); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("the memory is not full: %v", err)
	}
	d.trim(a)
	if n := d.entries(); n > 300 {
		t.Errorf("there are %d entries", n)
	}
}

func TestPack(t *testing.T) {
	for _, share := range []int{0, 1, 10, 100} {
		data := make([]byte, logChunk)
		for i := range data {
			if rand.IntN(100) < share {
				data[i] = byte(rand.Int())
			}
		}
		chunk, err := pack(data)
		if err != nil || len(chunk) > len(data)+1 || share < 11 && len(chunk) > len(data)/2 {
			t.Errorf("%d bytes, %v", len(chunk), err)
		}
		var got bytes.Buffer
		if err := unpack(&got, chunk); err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
	}
	for _, chunk := range [][]byte{nil, {9}, {deflated, 1, 2, 3}, {deflated}} {
		if err := unpack(&bytes.Buffer{}, chunk); !errors.Is(err, errUnusable) {
			t.Errorf("%v: %v", chunk, err)
		}
	}
}
