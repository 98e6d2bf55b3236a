package filter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/snapshot"
	"github.com/ordergate/ordergate/internal/presence"
)

var testSecret = [16]byte{1, 2, 3}

// save writes a snapshot of a filter into a new directory.
func save(t testing.TB, f *Filter) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "orders.snap")
	info, err := f.WriteSnapshot(t.Context(), path, []byte("here"), "sources")
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := os.Stat(path); err != nil || info.Bytes != uint64(stat.Size()) || info.IDs != f.Count() || info.Path != path {
		t.Errorf("info %+v of a file of %v, %v", info, stat, err)
	}
	return path
}

// restore reads a snapshot into a new filter.
func restore(t testing.TB, path string, opts Options) *Filter {
	t.Helper()
	f := mustNew(t, opts)
	info, err := f.ReadSnapshot(t.Context(), path, "sources")
	if err != nil {
		t.Fatal(err)
	}
	if string(info.Position) != "here" || info.IDs != f.Count() || info.Created.IsZero() {
		t.Errorf("info %+v", info)
	}
	if state, reason := f.State(); state != StateReady || reason != "" {
		t.Errorf("state %s, %s", state, reason)
	}
	return f
}

func TestSnapshotKinds(t *testing.T) {
	for name, opts := range map[string]Options{
		"blocked": {Key: testSecret, Layout: bloom.Blocked},
		"classic": {Key: testSecret, Layout: bloom.Classic},
		"default": {Key: testSecret},
		"exact":   {Exact: true},
		"growing": {Key: testSecret, Capacity: 1000, Growth: &Growth{AtFill: 0.8, By: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 5000
			f := mustLoad(t, mustNew(t, opts), numbers(n))
			g := restore(t, save(t, f), opts)
			passed := 0
			for i := range n {
				mustBe(t, g, strconv.Itoa(i), presence.Maybe)
				if g.MayContain(strconv.Itoa(n+i)) != presence.Absent {
					passed++
				}
			}
			// Twice the rate, and five deviations: ten each.
			if passed > 20 {
				t.Errorf("%d of %d IDs passed that were never added", passed, n)
			}
			if g.Count() != f.Count() || g.Capacity() != f.Capacity() {
				t.Errorf("%d of %d IDs, were %d of %d", g.Count(), g.Capacity(), f.Count(), f.Capacity())
			}
			// It goes on as the one before.
			g.Add("1000000")
			mustBe(t, g, "1000000", presence.Maybe)
			mustBe(t, restore(t, save(t, g), opts), "1000000", presence.Maybe)
		})
	}
}

func TestSnapshotRefused(t *testing.T) {
	opts := Options{Key: testSecret, Capacity: 1000, Layout: bloom.Blocked}
	grown := opts
	grown.Growth = &Growth{AtFill: 0.8, By: 2}
	days := opts
	days.Segments = &Segments{Keep: 3, Older: presence.Absent}
	path, large := save(t, mustLoad(t, mustNew(t, opts), numbers(100))), save(t, mustLoad(t, mustNew(t, grown), numbers(1500)))
	for _, tc := range []struct {
		name, path string
		change     func(o *Options)
		want       string
	}{
		{"another capacity", path, func(o *Options) { o.Capacity++ }, "capacity is 1000, want 1001"},
		{"another rate", path, func(o *Options) { o.FalsePositiveRate = 0.01 }, "false positive rate is 0.001, want 0.01"},
		{"another layout", path, func(o *Options) { o.Layout = bloom.Classic }, `layout is "blocked", want "classic"`},
		{"another secret", path, func(o *Options) { o.Key[7]++ }, "key fingerprint is "},
		{"another kind", path, func(o *Options) { o.Exact = true }, `kind is "bloom", want "exact"`},
		{"days", path, func(o *Options) { o.Segments = days.Segments }, `kind is "bloom", want "bloom, 3 days by the arrival"`},
		{"grown, where it may not", large, func(*Options) {}, "capacity of orders is 2000, want 1000"},
		{"no file", path + "none", func(*Options) {}, "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			changed := opts
			tc.change(&changed)
			f := mustNew(t, changed)
			_, err := f.ReadSnapshot(t.Context(), tc.path, "sources")
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), tc.path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tc.want)
			}
			// As if there had been none.
			if state, _ := f.State(); state != StateLoading || f.Count() != 0 {
				t.Errorf("state %s, %d IDs", state, f.Count())
			}
			mustLoad(t, f, numbers(10))
			mustBe(t, f, "5", presence.Maybe)
		})
	}
	t.Run("another name", func(t *testing.T) {
		f, err := New("others", opts)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadSnapshot(t.Context(), path, "sources"); err == nil || !strings.Contains(err.Error(), `name is "orders", want "others"`) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("other sources", func(t *testing.T) {
		for _, sources := range []string{"", "others"} {
			if _, err := mustNew(t, opts).ReadSnapshot(t.Context(), path, sources); !errors.Is(err, ErrSourcesChanged) {
				t.Errorf("sources %q: %v", sources, err)
			}
		}
		unknown := filepath.Join(t.TempDir(), "a")
		if _, err := mustLoad(t, mustNew(t, opts)).WriteSnapshot(t.Context(), unknown, nil, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := mustNew(t, opts).ReadSnapshot(t.Context(), unknown, ""); !errors.Is(err, ErrSourcesChanged) {
			t.Errorf("sources that could not be told: %v", err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(data); at += 11 {
			data[at] ^= 4
			broken := filepath.Join(t.TempDir(), "broken.snap")
			if err := os.WriteFile(broken, data, 0o600); err != nil {
				t.Fatal(err)
			}
			f := mustNew(t, opts)
			_, err := f.ReadSnapshot(t.Context(), broken, "sources")
			_, damage := errors.AsType[*snapshot.DamageError](err)
			_, mismatch := errors.AsType[*snapshot.MismatchError](err)
			if !damage && !mismatch || f.Count() != 0 {
				t.Errorf("byte %d: %v, %d IDs", at, err, f.Count())
			}
			data[at] ^= 4
		}
	})
}

// TestSnapshotOnlyOfAWholeFilter has no file of one that may lack IDs.
func TestSnapshotOnlyOfAWholeFilter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	failing := sourceFunc(func(context.Context, func(string) error) error { return errors.New("no such file") })
	for name, f := range map[string]*Filter{
		"loading": mustNew(t, Options{}),
		"failed":  func() *Filter { f := mustNew(t, Options{}); _ = f.Load(t.Context(), failing); return f }(),
		"tainted": func() *Filter { f := mustLoad(t, mustNew(t, Options{})); f.Taint("an order is lost"); return f }(),
		"doubted": func() *Filter {
			f := mustLoad(t, mustNew(t, Options{}))
			f.Doubt(Doubt{Reason: "the log is lost"})
			return f
		}(),
	} {
		if _, err := f.WriteSnapshot(t.Context(), path, nil, "s"); !errors.Is(err, ErrNotReady) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a file: %v", name, err)
		}
	}
	loaded := mustLoad(t, mustNew(t, Options{Key: testSecret}), numbers(3))
	if _, err := loaded.ReadSnapshot(t.Context(), save(t, loaded), "sources"); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("into a filter that was loaded: %v", err)
	}
	added := mustNew(t, Options{Key: testSecret})
	added.Add("mine")
	if _, err := added.ReadSnapshot(t.Context(), save(t, loaded), "sources"); err == nil || !strings.Contains(err.Error(), "no change log") {
		t.Errorf("into a filter with IDs that nobody else knows: %v", err)
	}
	mustBe(t, mustLoad(t, added), "mine", presence.Maybe)
}

func TestSnapshotFails(t *testing.T) {
	f := mustLoad(t, mustNew(t, Options{Key: testSecret}), numbers(10))
	path := save(t, f)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.WriteSnapshot(canceled, path, nil, "")
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "writing snapshot "+path) {
		t.Errorf("error %v", err)
	}
	f.NoteUnsaved(err)
	if state, reason := f.State(); state != StateReady || reason != err.Error() {
		t.Errorf("%s, %q", state, reason)
	}
	mustBe(t, f, "unknown", presence.Absent)
	restore(t, path, Options{Key: testSecret})
	f.NoteUnsaved(nil)
	if state, reason := f.State(); state != StateReady || reason != "" {
		t.Errorf("%s, %q", state, reason)
	}
}

// learnAndSave has eight writers learn orders while a filter is written to a file and
// grows, as begin has it do, and loses none of what the log does not have behind the
// position in the file.
func learnAndSave(t *testing.T, opts Options, begin func(f *Filter)) {
	t.Helper()
	const writers, each = 8, 4000
	log := &sharedLog{}
	opts.Key, opts.Appender = testSecret, log
	f := mustLoad(t, mustNew(t, opts), numbers(100))
	var wg sync.WaitGroup
	defer wg.Wait()
	var told atomic.Int64 // beyond the sources
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprintf("%d%06d", w+1, i)
				if err := f.Learn(t.Context(), id); err != nil {
					t.Error(err)
				}
				told.Add(1)
			}
		})
	}
	if begin != nil {
		wg.Go(func() { begin(f) })
	}
	path := filepath.Join(t.TempDir(), "orders.snap")
	position := 0
	for rounds := 0; told.Load() < writers*each || rounds == 0; rounds++ {
		// As who follows the log does: that an order is in the log says nothing of where
		// it was added before.
		for _, id := range log.since(position) {
			f.Add(id)
			position++
		}
		if _, err := f.WriteSnapshot(t.Context(), path, []byte(strconv.Itoa(position)), "sources"); err != nil {
			t.Fatal(err)
		}
		known := log.since(0)
		g := mustNew(t, opts)
		info, err := g.ReadSnapshot(t.Context(), path, "sources")
		if err != nil {
			t.Fatal(err)
		}
		if from, err := strconv.Atoi(string(info.Position)); err != nil || from != position {
			t.Fatalf("position %q, want %d", info.Position, position)
		}
		for _, id := range known[position:] { // what the log has behind it
			g.Add(id)
		}
		for _, id := range known {
			if got := g.MayContain(id); got != presence.Maybe {
				t.Fatalf("order %s is %v after restart %d from position %d", id, got, rounds, position)
			}
		}
		for i := range 100 {
			mustBe(t, g, strconv.Itoa(i), presence.Maybe)
		}
	}
}

func TestSnapshotWhileOrdersAreLearned(t *testing.T) {
	for name, opts := range map[string]Options{
		"bloom":  {Capacity: 50_000},
		"exact":  {Capacity: 50_000, Exact: true},
		"layers": {Capacity: 500, Growth: &Growth{AtFill: 0.8, By: 2}},
		"days":   {Capacity: 500_000, Segments: &Segments{Keep: 3, Older: presence.Absent}},
	} {
		t.Run(name, func(t *testing.T) { learnAndSave(t, opts, nil) })
	}
}

// TestSnapshotWhileRebuilt has snapshots before, during and after an expansion.
func TestSnapshotWhileRebuilt(t *testing.T) {
	var f *Filter
	opts := Options{Capacity: 1000, Growth: &Growth{AtFill: 0.8, By: 4, Rescan: func(_ context.Context, add func(string) error) error {
		for i := range 100 {
			if err := add(strconv.Itoa(i)); err != nil {
				return err
			}
		}
		for _, id := range f.opts.Appender.(*sharedLog).since(0) {
			if err := add(id); err != nil {
				return err
			}
		}
		return nil
	}}}
	learnAndSave(t, opts, func(grows *Filter) {
		f = grows
		for range 3 {
			if err := grows.Expand(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
	if e := f.Expansion(); e.Generation < 2 {
		t.Errorf("it never grew: %+v", e)
	}
}

// TestSnapshotReadWhileOrdersAreLearned loses neither what is in the file nor what is
// pending, learned while Redis is away.
func TestSnapshotReadWhileOrdersAreLearned(t *testing.T) {
	path := save(t, mustLoad(t, mustNew(t, Options{Key: testSecret, Capacity: 500_000}), numbers(100_000)))
	away := &flaky{down: true}
	f := mustNew(t, Options{Key: testSecret, Capacity: 500_000, Appender: away, MaxPending: 1 << 20})
	mustFailToLearn(t, f, "early")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var learned [8][]string
	for w := range learned {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				id := fmt.Sprintf("w%d-%d", w, i)
				_ = f.Learn(t.Context(), id) // its error is another test's
				learned[w] = append(learned[w], id)
			}
		})
	}
	if _, err := f.ReadSnapshot(t.Context(), path, "sources"); err != nil {
		t.Error(err)
	}
	close(stop)
	wg.Wait()
	mustBe(t, f, "early", presence.Maybe)
	for _, ids := range learned {
		for _, id := range ids {
			mustBe(t, f, id, presence.Maybe)
		}
	}
	for i := range 100_000 {
		mustBe(t, f, strconv.Itoa(i), presence.Maybe)
	}
}

func TestSnapshotOfDays(t *testing.T) {
	for name, byID := range map[string]bool{"by the ID": true, "by arrival": false} {
		t.Run(name, func(t *testing.T) {
			s := Segments{Keep: 3, Older: presence.Unknown}
			if byID {
				s.Day = dateOf
			} else {
				s.Older = presence.Absent
			}
			f, c := withDays(t, s)
			opts := f.opts
			ids := map[int]string{} // by the day, from the last
			for by := -2; by <= 0; by++ {
				c.next(f, 1)
				ids[by] = c.id(0)
				f.Add(ids[by])
			}
			f.Add("no-date")
			today := c.now()
			path := save(t, f)

			g := restore(t, path, opts)
			for by, id := range ids {
				if got := g.MayContain(id); got != presence.Maybe {
					t.Errorf("day %d: %v", by, got)
				}
			}
			mustBe(t, g, "no-date", presence.Maybe)

			// Two days later the oldest are kept no more.
			c.set(today.Add(2 * 24 * time.Hour))
			g = restore(t, path, opts)
			older := presence.Absent
			if byID {
				older = presence.Unknown
			}
			mustBe(t, g, ids[-2], older)
			mustBe(t, g, ids[-1], presence.Maybe) // the guard day
			mustBe(t, g, ids[0], presence.Maybe)
			if byID {
				mustBe(t, g, "no-date", presence.Maybe) // kept for ever
			}
			if dropped := len(g.memory.current().parts()); byID && dropped != 3 || !byID && dropped != 2 {
				t.Errorf("%d parts", dropped)
			}

			// A clock that went back by a week knows no such days.
			c.set(today.Add(-7 * 24 * time.Hour))
			if _, err := mustNew(t, opts).ReadSnapshot(t.Context(), path, "sources"); err == nil || !strings.Contains(err.Error(), "tomorrow by the clock") {
				t.Errorf("with a clock that went back: %v", err)
			}
		})
	}
}

// BenchmarkStartFromSnapshot is from the making of a filter to its readiness. It takes
// SOAK=1: 360 MB of memory and of disk, twice.
func BenchmarkStartFromSnapshot(b *testing.B) {
	if os.Getenv("SOAK") == "" {
		b.Skip("takes long: set SOAK=1")
	}
	opts := Options{Capacity: 200_000_000, Key: [16]byte{1}}
	f, err := New("orders", opts)
	if err != nil {
		b.Fatal(err)
	}
	// Half of the bits, as at capacity, without the minutes that it takes to add IDs.
	set, noise := (*f.memory.current().parts()[0].layers.Load())[0].(*bloom.Filter), make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	for at := uint64(0); at < set.SizeBytes(); at += uint64(len(noise)) {
		noise = noise[:min(uint64(len(noise)), set.SizeBytes()-at)]
		_, _ = random.Read(noise)
		if err := set.MergeChunk(noise, at); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "orders.snap")
	info, err := f.WriteSnapshot(b.Context(), path, nil, "s")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(info.Bytes))
	for b.Loop() {
		again, err := New("orders", opts)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := again.ReadSnapshot(b.Context(), path, "s"); err != nil {
			b.Fatal(err)
		}
		if state, _ := again.State(); state != StateReady {
			b.Fatal(state)
		}
	}
	b.ReportMetric(info.Took.Seconds(), "s/write")
}
