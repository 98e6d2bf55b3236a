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

	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// windowFunc and sourceFunc are what a test wants them to be.
type (
	windowFunc func() bool
	sourceFunc func(ctx context.Context, yield func(string) error) error
)

func (w windowFunc) Holds() bool                                             { return w() }
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

// open, over and none are for [Options.Window]: one that holds, one that does not, and that none was
// opened; closed is what a change log returns that has opened none.
func open() Window   { return windowFunc(func() bool { return true }) }
func over() Window   { return windowFunc(func() bool { return false }) }
func none() Window   { return nil }
func closed() Window { return (*lasting)(nil) }

// lasting is a window that holds unless it is nil.
type lasting struct{}

func (w *lasting) Holds() bool { return w != nil }

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
	unread := sourceFunc(func(context.Context, func(string) error) error { return errors.New("reading ids.csv: no such file") })
	for _, tc := range []struct {
		name       string
		window     func() Window
		sources    []Source // nil: not loaded
		taint      string
		known, new presence.Answer
		state      string
		reason     string
	}{
		{"loading", open, nil, "", presence.Maybe, presence.Unknown, StateLoading, "have not been read"},
		{"loading, without windows", nil, nil, "", presence.Maybe, presence.Unknown, StateLoading, "have not been read"},
		{"ready", open, []Source{these()}, "", presence.Maybe, presence.Absent, StateReady, ""},
		{"ready, without windows", nil, []Source{these()}, "", presence.Maybe, presence.Absent, StateReady, ""},
		{"the window is over", over, []Source{these()}, "", presence.Maybe, presence.Unknown, StateUnknown, "redis is away"},
		{"no window was opened", none, []Source{these()}, "", presence.Maybe, presence.Unknown, StateUnknown, "redis is away"},
		{"no window is open", closed, []Source{these()}, "", presence.Maybe, presence.Unknown, StateUnknown, "redis is away"},
		{"source missing", open, []Source{these("x"), unread}, "", presence.Maybe, presence.Unknown, StateUnknown, "reading ids.csv: no such file"},
		{"tainted", open, []Source{these()}, "no ID in an answer", presence.Maybe, presence.Unknown, StateUnknown, "no ID in an answer"},
		{"tainted, without windows", nil, []Source{these()}, "no ID in an answer", presence.Maybe, presence.Unknown, StateUnknown, "no ID in an answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			opts := Options{Window: tc.window}
			if tc.window != nil {
				opts.WindowErr = func() error {
					if w := tc.window(); w == nil || !w.Holds() {
						return down
					}
					return nil
				}
			}
			f := mustNew(t, opts)
			f.Add("known")
			if tc.sources != nil {
				_ = f.Load(t.Context(), tc.sources...) // what it returns is another test's
			}
			if tc.taint != "" {
				f.Taint(tc.taint)
			}
			for id, want := range map[string]presence.Answer{"known": tc.known, "new": tc.new} {
				if got := f.MayContain(id); got != want {
					t.Errorf("%s ID: %v, want %v", id, got, want)
				}
				if got := f.Query(t.Context(), id); got != want { // nothing is elsewhere
					t.Errorf("%s ID: asked, %v, want %v", id, got, want)
				}
			}
			state, reason := f.State()
			if state != tc.state || !strings.Contains(reason, tc.reason) || (tc.reason == "") != (reason == "") {
				t.Errorf("state %q, reason %q; want %q, %q", state, reason, tc.state, tc.reason)
			}
		})
	}
}

func TestPositiveNeedsNoWindow(t *testing.T) {
	f := mustNew(t, Options{Window: func() Window {
		return windowFunc(func() bool {
			t.Error("a positive depends on a window")
			return false
		})
	}})
	mustLoad(t, f, these("1001"))
	if got := f.MayContain("1001"); got != presence.Maybe {
		t.Errorf("%v, want maybe", got)
	}
}

// TestWindowIsLoadedFirst has the log bring something at each step of a lookup that can be met:
// what is brought before a window is opened counts for whoever looks by that window.
func TestWindowIsLoadedFirst(t *testing.T) {
	for _, tc := range []struct {
		name string
		// The window that is there brings something as it is loaded, or as it is asked whether it
		// holds: then the one that it returns is opened.
		loaded func(f *Filter)
		asked  func(f *Filter) (next func() Window)
		holds  bool // the one that is there
		want   presence.Answer
		next   presence.Answer // to the same question again
	}{
		{name: "nothing", holds: true, want: presence.Absent, next: presence.Absent},
		{name: "the ID, then the window is opened", loaded: func(f *Filter) { f.Add("1001") }, holds: true, want: presence.Maybe, next: presence.Maybe},
		{name: "a doubt, then the window is opened", loaded: func(f *Filter) { f.Doubt(Doubt{Reason: "lost"}) }, holds: true, want: presence.Unknown, next: presence.Unknown},
		{name: "a fault, then the window is opened", loaded: func(f *Filter) { f.Taint("an ID that could not be read") }, holds: true, want: presence.Unknown, next: presence.Unknown},
		{
			name: "the ID, and another window is opened as this one is over", want: presence.Unknown, next: presence.Maybe,
			asked: func(f *Filter) func() Window { f.Add("1001"); return open },
		},
		{
			name: "a doubt, and another window is opened as this one is over", want: presence.Unknown, next: presence.Unknown,
			asked: func(f *Filter) func() Window { f.Doubt(Doubt{Reason: "lost"}); return open },
		},
		{name: "nothing, and another window is opened as this one is over", want: presence.Unknown, next: presence.Absent, asked: func(*Filter) func() Window { return open }},
		// No client was told of it yet: the window holds.
		{name: "the ID, while the window holds", holds: true, want: presence.Absent, next: presence.Maybe, asked: func(f *Filter) func() Window { f.Add("1001"); return open }},
		{name: "the end of all windows, while this one holds", holds: true, want: presence.Absent, next: presence.Unknown, asked: func(*Filter) func() Window { return none }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f *Filter
			var next func() Window
			f = mustNew(t, Options{Window: func() Window {
				if next != nil {
					return next()
				}
				if tc.loaded != nil {
					tc.loaded(f)
				}
				return windowFunc(func() bool {
					if tc.asked != nil {
						next = tc.asked(f)
					}
					return tc.holds
				})
			}})
			mustLoad(t, f)
			if got := f.MayContain("1001"); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
			if got := f.MayContain("1001"); got != tc.next {
				t.Errorf("%v after it, want %v", got, tc.next)
			}
		})
	}
}

// TestWindowIsLoadedOnce has the log bring the ID, and another window be opened, after the look.
func TestWindowIsLoadedOnce(t *testing.T) {
	for name, remote := range map[string]Remote{"memory": nil, "a set that lost it": newRemoteSet()} {
		var f *Filter
		loaded := 0
		f = mustLoad(t, mustNew(t, Options{Remote: remote, Appender: &sharedLog{}, Window: func() Window {
			if loaded++; loaded == 1 {
				return over()
			}
			f.Add("1001")
			return open()
		}}))
		if got := f.Query(t.Context(), "1001"); got != presence.Unknown {
			t.Errorf("%s: %v, want unknown", name, got)
		}
		if got := f.Query(t.Context(), "1001"); got != presence.Maybe {
			t.Errorf("%s: %v after it, want maybe", name, got)
		}
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
		Window:    func() Window { return windowFunc(func() bool { return behind() == nil }) },
		WindowErr: behind,
	}))
	for _, is := range []bool{false, true, false} {
		down.Store(is)
		want, answer := StateReady, presence.Absent
		if is {
			want, answer = StateUnknown, presence.Unknown
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
	times := 3000
	if bedtest.Race {
		times = 300
	}
	for range times {
		f := mustNew(t, Options{Capacity: 10})
		var wg sync.WaitGroup
		wg.Go(func() { mustLoad(t, f, these("1001")) })
		for {
			answer := f.MayContain("1001")
			if answer == presence.Absent {
				t.Fatal("absent, though the source has it")
			}
			if answer == presence.Maybe {
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
		if got := f.MayContain(fmt.Sprint(i)); got != presence.Maybe {
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
	for answer, want := range map[presence.Answer]string{presence.Unknown: "unknown", presence.Maybe: "maybe", presence.Absent: "absent", presence.NotInMemory: "elsewhere", 7: "answer(7)"} {
		if got := answer.String(); got != want {
			t.Errorf("%d: %q, want %q", int8(answer), got, want)
		}
	}
	if new(presence.Answer).String() != "unknown" {
		t.Error("the zero value is not unknown")
	}
}

func TestNoAllocations(t *testing.T) {
	now := &lasting{}
	for _, tc := range []struct {
		name   string
		window func() Window
		remote Remote
		id     string
		want   presence.Answer
	}{
		{"positive", open, nil, "known", presence.Maybe},
		{"positive without windows", nil, nil, "known", presence.Maybe},
		{"positive in an outage", over, nil, "known", presence.Maybe},
		{"negative without windows", nil, nil, "new", presence.Absent},
		{"negative", open, nil, "new", presence.Absent},
		{"negative by a change log", func() Window { return now }, nil, "new", presence.Absent},
		{"negative in an outage", over, nil, "new", presence.Unknown},
		{"negative in an outage from the start", none, nil, "new", presence.Unknown},
		{"negative by a change log that opened none", closed, nil, "new", presence.Unknown},
		{"positive beside a set", open, untouched{t}, "known", presence.Maybe},
		{"elsewhere", open, untouched{t}, "new", presence.NotInMemory},
		{"elsewhere in an outage", over, untouched{t}, "new", presence.NotInMemory},
	} {
		opts := Options{Window: tc.window, Remote: tc.remote}
		if tc.remote != nil {
			opts.Appender = &sharedLog{}
		}
		f := mustLoad(t, mustNew(t, opts), these("known"))
		var got presence.Answer
		if n := testing.AllocsPerRun(100, func() { got = f.MayContain(tc.id) }); n != 0 || got != tc.want {
			t.Errorf("%s: %v with %g allocations, want %v with none", tc.name, got, n, tc.want)
		}
	}
}

// untouched is a Remote that is asked for nothing: that would block.
type untouched struct{ t *testing.T }

func (u untouched) Query(context.Context, string) (presence.Answer, error) {
	u.t.Error("a lookup that must not block asked the set")
	return presence.Unknown, nil
}
func (untouched) Add(context.Context, ...string) error { return nil }
func (untouched) State() (state, reason string)        { return StateReady, "" }
func (untouched) EverComplete() bool                   { return true }
func (untouched) Expand(context.Context) error         { return nil }
func (untouched) AtMax() bool                          { return false }
func (untouched) Size() RemoteSize                     { return RemoteSize{} }

// TestStale has what is known of the change log grow old.
func TestStale(t *testing.T) {
	var read atomic.Pointer[time.Time]
	read.Store(&time.Time{})
	f := mustLoad(t, mustNew(t, Options{LastRead: func() time.Time { return *read.Load() }, StaleAfter: time.Minute}))
	f.Add("1001")
	for _, tc := range []struct {
		at            time.Time
		want          presence.Answer
		state, reason string
	}{
		{time.Time{}, presence.Unknown, StateUnknown, "the change log was not read to its end yet"},
		{time.Now(), presence.Absent, StateReady, ""},
		{time.Now().Add(-2 * time.Minute), presence.Unknown, StateUnknown, "stale: the change log was read to its end 2m0s ago"},
	} {
		read.Store(&tc.at)
		if got := f.MayContain("7"); got != tc.want {
			t.Errorf("read at %v: %v, want %v", tc.at, got, tc.want)
		}
		if got := f.MayContain("1001"); got != presence.Maybe {
			t.Errorf("read at %v: one that exists is %v", tc.at, got)
		}
		if state, reason := f.State(); state != tc.state || reason != tc.reason {
			t.Errorf("read at %v: %s, %q", tc.at, state, reason)
		}
	}
}
