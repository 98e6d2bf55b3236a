package filter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// barrierFunc and sourceFunc are what a test wants them to be.
type (
	barrierFunc func(ctx context.Context) error
	sourceFunc  func(ctx context.Context, yield func(string) error) error
)

func (b barrierFunc) Wait(ctx context.Context) error                         { return b(ctx) }
func (s sourceFunc) IDs(ctx context.Context, yield func(string) error) error { return s(ctx, yield) }

// these is a source of a few IDs.
func these(ids ...string) Source {
	return sourceFunc(func(_ context.Context, yield func(string) error) error {
		for _, id := range ids {
			if err := yield(id); err != nil {
				return err
			}
		}
		return nil
	})
}

func mustNew(t testing.TB, opts Options) *Filter {
	t.Helper()
	if opts.Capacity == 0 {
		opts.Capacity = 10_000
	}
	f, err := New("orders", opts)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustLoad(t testing.TB, f *Filter, sources ...Source) *Filter {
	t.Helper()
	if err := f.Load(t.Context(), sources...); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestMayContain(t *testing.T) {
	down := errors.New("redis is away")
	fresh := barrierFunc(func(context.Context) error { return nil })
	failing := barrierFunc(func(context.Context) error { return down })
	unread := sourceFunc(func(context.Context, func(string) error) error { return errors.New("reading ids.csv: no such file") })
	for _, tc := range []struct {
		name       string
		barrier    Barrier
		sources    []Source // nil: not loaded
		taint      string
		known, new Answer
		state      string
		reason     string
	}{
		{"loading", fresh, nil, "", Maybe, Unknown, StateLoading, "have not been read"},
		{"loading, no barrier", nil, nil, "", Maybe, Unknown, StateLoading, "have not been read"},
		{"ready", fresh, []Source{these()}, "", Maybe, Absent, StateReady, ""},
		{"ready, no barrier", nil, []Source{these()}, "", Maybe, Absent, StateReady, ""},
		{"barrier fails", failing, []Source{these()}, "", Maybe, Unknown, StateUnknown, "redis is away"},
		{"source missing", fresh, []Source{these("x"), unread}, "", Maybe, Unknown, StateUnknown, "reading ids.csv: no such file"},
		{"tainted", fresh, []Source{these()}, "no ID in an answer", Maybe, Unknown, StateUnknown, "no ID in an answer"},
		{"tainted, no barrier", nil, []Source{these()}, "no ID in an answer", Maybe, Unknown, StateUnknown, "no ID in an answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := Options{Barrier: tc.barrier}
			if tc.barrier != nil {
				opts.Behind = func() error { return tc.barrier.Wait(t.Context()) }
			}
			f := mustNew(t, opts)
			f.Add("known")
			if tc.sources != nil {
				_ = f.Load(t.Context(), tc.sources...) // what it returns is another test's
			}
			if tc.taint != "" {
				f.Taint(tc.taint)
			}
			if got := f.MayContain("known"); got != tc.known {
				t.Errorf("known ID: %v, want %v", got, tc.known)
			}
			if got := f.MayContain("new"); got != tc.new {
				t.Errorf("new ID: %v, want %v", got, tc.new)
			}
			state, reason := f.State()
			if state != tc.state || !strings.Contains(reason, tc.reason) || (tc.reason == "") != (reason == "") {
				t.Errorf("state %q, reason %q; want %q, %q", state, reason, tc.state, tc.reason)
			}
		})
	}
}

func TestPositiveNeverWaits(t *testing.T) {
	f := mustNew(t, Options{Barrier: barrierFunc(func(context.Context) error {
		t.Error("a positive waited")
		return nil
	})})
	mustLoad(t, f, these("1001"))
	if got := f.MayContain("1001"); got != Maybe {
		t.Errorf("%v, want maybe", got)
	}
}

func TestBarrierBringsTheID(t *testing.T) {
	var f *Filter
	f = mustNew(t, Options{Barrier: barrierFunc(func(context.Context) error {
		f.Add("1001")
		return nil
	})})
	mustLoad(t, f)
	if got := f.MayContain("1001"); got != Maybe {
		t.Errorf("%v, want maybe: the barrier brought the ID", got)
	}
}

func TestTaintDuringTheWait(t *testing.T) {
	var f *Filter
	f = mustNew(t, Options{Barrier: barrierFunc(func(context.Context) error {
		f.Taint("an ID that could not be read")
		return nil
	})})
	mustLoad(t, f)
	if got := f.MayContain("1001"); got != Unknown {
		t.Errorf("%v, want unknown", got)
	}
}

// TestStateWithoutLookups has the state follow what keeps the filter up to date, whether
// anybody asks for an ID or not.
func TestStateWithoutLookups(t *testing.T) {
	var down atomic.Bool
	behind := func() error {
		if down.Load() {
			return errors.New("redis is away")
		}
		return nil
	}
	f := mustLoad(t, mustNew(t, Options{
		Barrier: barrierFunc(func(ctx context.Context) error { return errors.Join(ctx.Err(), behind()) }),
		Behind:  behind,
	}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.MayContain(ended, "x"); got != Unknown {
		t.Errorf("ended caller: %v, want unknown", got)
	}
	for _, is := range []bool{false, true, false} {
		down.Store(is)
		want, answer := StateReady, Absent
		if is {
			want, answer = StateUnknown, Unknown
		}
		if state, reason := f.State(); state != want {
			t.Errorf("down %v: state %s, %s", is, state, reason)
		}
		if got := f.MayContain("x"); got != answer {
			t.Errorf("down %v: %v, want %v", is, got, answer)
		}
	}
}

// A load that ends between a lookup's steps must not make it Absent.
func TestLoadedIDIsNeverAbsent(t *testing.T) {
	for range 3000 {
		f := mustNew(t, Options{Capacity: 10})
		var wg sync.WaitGroup
		wg.Go(func() { mustLoad(t, f, these("1001")) })
		for {
			answer := f.MayContain("1001")
			if answer == Absent {
				t.Fatal("absent, though the source has it")
			}
			if answer == Maybe {
				break
			}
		}
		wg.Wait()
	}
}

func TestLoadAgain(t *testing.T) {
	f := mustNew(t, Options{})
	gone := errors.New("reading ids.csv: no such file")
	err := f.Load(t.Context(), these("1"), sourceFunc(func(context.Context, func(string) error) error { return gone }))
	if !errors.Is(err, gone) || !strings.Contains(err.Error(), "filter orders") {
		t.Fatalf("Load = %v", err)
	}
	mustLoad(t, f, these("1", "2"))
	if state, reason := f.State(); state != StateReady || reason != "" {
		t.Errorf("state %q, reason %q", state, reason)
	}
	if f.Count() != 2 {
		t.Errorf("count %d, want 2", f.Count())
	}
	f.Taint("lost")
	mustLoad(t, f)
	if state, reason := f.State(); state != StateUnknown || reason != "lost" {
		t.Errorf("a load mended a tainted filter: %q, %q", state, reason)
	}
	f.Taint("later")
	if _, reason := f.State(); reason != "lost" {
		t.Errorf("reason %q, want the first", reason)
	}
}

func TestOverCapacity(t *testing.T) {
	var out strings.Builder
	f := mustNew(t, Options{Capacity: 100, FalsePositiveRate: 0.01, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	mustLoad(t, f)
	for i := range 1000 {
		f.Add(fmt.Sprint(i))
	}
	for i := range 1000 {
		if got := f.MayContain(fmt.Sprint(i)); got != Maybe {
			t.Fatalf("ID %d: %v", i, got)
		}
	}
	if state, reason := f.State(); state != StateReady || !strings.Contains(reason, "over capacity") {
		t.Errorf("state %q, reason %q", state, reason)
	}
	if n := strings.Count(out.String(), "over its capacity"); n != 1 {
		t.Errorf("%d lines in the log, want 1", n)
	}
	if f.EstimatedFalsePositiveRate() < 0.1 || f.FillRatio() < 0.8 {
		t.Errorf("rate %g, fill %g: not what ten times the capacity does", f.EstimatedFalsePositiveRate(), f.FillRatio())
	}
}

func TestNewRefusesSizes(t *testing.T) {
	if _, err := New("orders", Options{Capacity: 1 << 60}); err == nil || !strings.Contains(err.Error(), "filter orders") {
		t.Errorf("New = %v", err)
	}
}

func TestAnswerString(t *testing.T) {
	for answer, want := range map[Answer]string{Unknown: "unknown", Maybe: "maybe", Absent: "absent", 7: "answer(7)"} {
		if got := answer.String(); got != want {
			t.Errorf("%d: %q, want %q", int8(answer), got, want)
		}
	}
	if new(Answer).String() != "unknown" {
		t.Error("the zero value is not unknown")
	}
}

func TestNoAllocations(t *testing.T) {
	fresh := barrierFunc(func(context.Context) error { return nil })
	down := errors.New("away")
	failing := barrierFunc(func(context.Context) error { return down })
	ctx := t.Context()
	for _, tc := range []struct {
		name    string
		barrier Barrier
		id      string
		want    Answer
	}{
		{"positive", fresh, "known", Maybe},
		{"negative without a barrier", nil, "new", Absent},
		{"negative", fresh, "new", Absent},
		{"negative in an outage", failing, "new", Unknown},
	} {
		f := mustLoad(t, mustNew(t, Options{Barrier: tc.barrier}), these("known"))
		var got Answer
		if n := testing.AllocsPerRun(100, func() { got = f.MayContain(tc.id) }); n != 0 || got != tc.want {
			t.Errorf("%s: %v with %g allocations, want %v with none", tc.name, got, n, tc.want)
		}
	}
}

// TestStale has what is known of the change log grow old.
func TestStale(t *testing.T) {
	var read atomic.Pointer[time.Time]
	read.Store(&time.Time{})
	f := mustLoad(t, mustNew(t, Options{LastRead: func() time.Time { return *read.Load() }, StaleAfter: time.Minute}))
	f.Add("1001")
	for _, tc := range []struct {
		at            time.Time
		want          Answer
		state, reason string
	}{
		{time.Time{}, Unknown, StateUnknown, "the change log was not read to its end yet"},
		{time.Now(), Absent, StateReady, ""},
		{time.Now().Add(-2 * time.Minute), Unknown, StateUnknown, "stale: the change log was read to its end 2m0s ago"},
	} {
		read.Store(&tc.at)
		if got := f.MayContain("7"); got != tc.want {
			t.Errorf("read at %v: %v, want %v", tc.at, got, tc.want)
		}
		if got := f.MayContain("1001"); got != Maybe {
			t.Errorf("read at %v: one that exists is %v", tc.at, got)
		}
		if state, reason := f.State(); state != tc.state || reason != tc.reason {
			t.Errorf("read at %v: %s, %q", tc.at, state, reason)
		}
	}
}
