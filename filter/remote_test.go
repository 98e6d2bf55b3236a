package filter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
)

// remoteSet is a Remote in memory, which counts its questions and can be away.
type remoteSet struct {
	mu    sync.Mutex
	ids   map[string]bool
	asked int
	err   error
	whole bool
}

func (r *remoteSet) Query(ctx context.Context, id string) (presence.Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	switch {
	case ctx.Err() != nil:
		return presence.Unknown, ctx.Err()
	case r.err != nil:
		return presence.Unknown, r.err
	case r.ids[id]:
		return presence.Maybe, nil
	case !r.whole:
		return presence.Unknown, nil
	}
	return presence.Absent, nil
}

func (r *remoteSet) Add(_ context.Context, ids ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for _, id := range ids {
		r.ids[id] = true
	}
	return nil
}

func (r *remoteSet) set(err error, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.whole = err, whole
}

func (r *remoteSet) questions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func (r *remoteSet) State() (state, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return StateUnknown, r.err.Error()
	}
	return StateReady, ""
}

func (r *remoteSet) EverComplete() bool           { return true }
func (r *remoteSet) Expand(context.Context) error { return nil }
func (r *remoteSet) AtMax() bool                  { return false }
func (r *remoteSet) Size() RemoteSize {
	return RemoteSize{Count: 7, Capacity: 10, Bytes: 5, FillRatio: 0.25, FalsePositiveRate: 0.5}
}

func newRemoteSet() *remoteSet { return &remoteSet{ids: map[string]bool{"1": true}, whole: true} }

func mustAnswer(t *testing.T, f *Filter, id string, want presence.Answer) {
	t.Helper()
	if got := f.Query(t.Context(), id); got != want {
		t.Errorf("%s is %v, want %v", id, got, want)
	}
}

// mustGlance has memory alone tell.
func mustGlance(t *testing.T, f *Filter, id string, want presence.Answer) {
	t.Helper()
	if got := f.MayContain(id); got != want {
		t.Errorf("%s is %v by memory, want %v", id, got, want)
	}
}

func TestRemote(t *testing.T) {
	remote := newRemoteSet()
	var f *Filter
	window, brings := open, ""
	f = mustNew(t, Options{Remote: remote, Appender: &sharedLog{}, Window: func() Window {
		if brings != "" {
			f.Add(brings)
		}
		return window()
	}})
	// Memory was never loaded: it is never why an ID is absent.
	mustGlance(t, f, "1", presence.NotInMemory)
	mustGlance(t, f, "2", presence.NotInMemory)
	if n := remote.questions(); n != 0 {
		t.Errorf("%d questions by somebody who must not block", n)
	}
	mustAnswer(t, f, "1", presence.Maybe)
	mustAnswer(t, f, "2", presence.Absent)
	asked := remote.questions()
	mustAnswer(t, f, "1", presence.Maybe)
	mustGlance(t, f, "1", presence.Maybe)
	mustGlance(t, f, "2", presence.NotInMemory) // it may be there by now
	if n := remote.questions(); n != asked {
		t.Errorf("%d questions about an ID that was found a moment ago", n-asked)
	}
	// Learned elsewhere, and lost by the set: the log has brought it before the window was opened.
	mustGlance(t, f, "3", presence.NotInMemory)
	brings = "3"
	mustAnswer(t, f, "3", presence.Maybe)
	mustGlance(t, f, "3", presence.Maybe)
	brings = ""
	for _, w := range []func() Window{over, none, closed} {
		window = w
		mustGlance(t, f, "4", presence.NotInMemory)
		mustAnswer(t, f, "4", presence.Unknown)
		mustAnswer(t, f, "1", presence.Maybe)
	}
	window = func() Window { // over after the look, when another is opened that has brought the ID
		return windowFunc(func() bool { f.Add("5"); window = open; return false })
	}
	mustAnswer(t, f, "5", presence.Unknown)
	mustAnswer(t, f, "5", presence.Maybe)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.Query(ended, "4"); got != presence.Unknown {
		t.Errorf("%v of one that has left", got)
	}
	remote.set(nil, false)
	mustAnswer(t, f, "4", presence.Unknown)
	remote.set(errors.New("away"), true)
	mustAnswer(t, f, "4", presence.Unknown)
	if state, reason := f.State(); state != StateUnknown || reason != "away" {
		t.Errorf("%s, %q", state, reason)
	}
	remote.set(nil, true)
	if state, reason := f.State(); state != StateReady || reason != "" {
		t.Errorf("%s, %q", state, reason)
	}
	mustAnswer(t, f, "4", presence.Absent)
	window = func() Window { // what it has brought counts
		if err := f.MarkIncomplete(t.Context(), "no ID", time.Time{}); err != nil {
			t.Error(err)
		}
		return open()
	}
	mustAnswer(t, f, "4", presence.Unknown)
	window = open
	mustGlance(t, f, "4", presence.Unknown) // nothing that the set says would count
	if err := f.CatchUp(t.Context(), func(context.Context, func(string) error) error { return nil }); err != nil {
		t.Fatal(err)
	}
	mustAnswer(t, f, "4", presence.Absent)
	f.Taint("an order was missed")
	asked = remote.questions()
	mustGlance(t, f, "4", presence.Unknown)
	mustAnswer(t, f, "4", presence.Unknown)
	if n := remote.questions(); n != asked {
		t.Errorf("%d questions whose answer cannot count", n-asked)
	}
	mustAnswer(t, f, "1", presence.Maybe)
	if f.Count() != 7 || f.Capacity() != 10 || f.FillRatio() != 0.25 || f.EstimatedFalsePositiveRate() < 0.5 {
		t.Errorf("%+v", f.Info())
	}
	if _, err := New("orders", Options{Remote: remote}); err == nil {
		t.Error("a remote set without a change log was accepted")
	}
}

// TestRemoteWithoutWindows believes the set for as long as the log is read now and then.
func TestRemoteWithoutWindows(t *testing.T) {
	read := time.Now()
	f := mustNew(t, Options{
		Remote: newRemoteSet(), Appender: &sharedLog{}, StaleAfter: time.Minute, LastRead: func() time.Time { return read },
	})
	mustAnswer(t, f, "2", presence.Absent)
	read = read.Add(-time.Hour)
	mustGlance(t, f, "2", presence.NotInMemory)
	mustAnswer(t, f, "2", presence.Unknown)
	mustAnswer(t, f, "1", presence.Maybe)
}

// TestRemoteLearn learns while the set cannot be written: with windows nobody
// misses the ID, and the set gets it later.
func TestRemoteLearn(t *testing.T) {
	for _, windows := range []bool{true, false} {
		remote, log := newRemoteSet(), &flaky{}
		opts := Options{Remote: remote, Appender: log, MaxPending: 2}
		did := "append"
		if windows {
			opts.Window, did = open, "append spread"
		}
		f := mustNew(t, opts)
		if err := f.Learn(t.Context(), "3"); err != nil || !remote.ids["3"] || log.calls() != "append spread" {
			t.Errorf("learned: %v, %v, %v", err, remote.ids, log.ids)
		}
		away := errors.New("away")
		remote.set(away, true)
		for i := range 4 {
			err := f.Learn(t.Context(), fmt.Sprint("new-", i))
			if windows && err != nil || !windows && (!errors.Is(err, away) || !errors.Is(err, ErrExposed) || !strings.Contains(err.Error(), "not in the filter in Redis")) {
				t.Errorf("windows %v: %v", windows, err)
			}
			if got := log.calls(); got != did {
				t.Errorf("windows %v: did %q, want %q", windows, got, did)
			}
		}
		// Without windows two are lost to the others: a doubt is to tell them.
		if want := map[bool]int{true: 2, false: 3}[windows]; len(log.ids) != 5 || f.Pending() != want {
			t.Errorf("windows %v: %d in the log, %d pending", windows, len(log.ids), f.Pending())
		}
		// Several at once: whoever loads them tells nobody before.
		if err := f.LearnAll(t.Context(), []string{"a", "b"}); windows != (err == nil) || err != nil && !errors.Is(err, away) {
			t.Errorf("windows %v: %v", windows, err)
		}
		if got := log.calls(); got != did {
			t.Errorf("windows %v: did %q, want %q", windows, got, did)
		}
		remote.set(nil, true)
		if got := f.Query(t.Context(), "nobody"); got != presence.Absent { // the filter in memory has all IDs
			t.Errorf("windows %v: nobody is %v", windows, got)
		}
		if err := f.appendPending(t.Context()); err != nil || !remote.ids["new-0"] || !remote.ids["new-1"] || f.Pending() != 0 {
			t.Errorf("pending: %v, %v", err, remote.ids)
		}
	}
}

// TestRemoteMemoryMakesRoom follows far more IDs than there was room for.
func TestRemoteMemoryMakesRoom(t *testing.T) {
	f := mustNew(t, Options{Remote: newRemoteSet(), Appender: &sharedLog{}, Capacity: 100})
	for i := range 10_000 {
		f.Add(fmt.Sprint("log-", i))
	}
	for i := range 10_000 {
		mustAnswer(t, f, fmt.Sprint("log-", i), presence.Maybe)
	}
	passed := 0
	for i := range 10_000 {
		if f.Query(t.Context(), fmt.Sprint("nobody-", i)) == presence.Maybe {
			passed++
		}
	}
	if passed > 40 { // 0.1%, twice that with layers
		t.Errorf("%d of 10,000 pass", passed)
	}
}

func TestRecent(t *testing.T) {
	r := newRecent([16]byte{1})
	for i := range recentSlots / 4 {
		r.add(fmt.Sprint(i))
	}
	kept := 0
	for i := range recentSlots / 4 {
		if r.has(fmt.Sprint(i)) {
			kept++
		}
	}
	if kept < recentSlots/4*85/100 { // by the formula 1-e^-x of x thrown, 88%
		t.Errorf("%d of %d are remembered", kept, recentSlots/4)
	}
	for i := range recentSlots {
		if r.has(fmt.Sprint("other-", i)) {
			t.Fatalf("other-%d is taken for another", i)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { r.add("1001"); r.has("1001") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
