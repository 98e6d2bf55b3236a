package filter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// remoteSet is a Remote in memory, which counts its questions and can be away.
type remoteSet struct {
	mu    sync.Mutex
	ids   map[string]bool
	asked int
	err   error
	whole bool
}

func (r *remoteSet) Ask(_ context.Context, id string) (Answer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	switch {
	case r.err != nil:
		return Unknown, r.err
	case r.ids[id]:
		return Maybe, nil
	case !r.whole:
		return Unknown, nil
	}
	return Absent, nil
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

func (r *remoteSet) EverWhole() bool              { return true }
func (r *remoteSet) Expand(context.Context) error { return nil }
func (r *remoteSet) AtMax() bool                  { return false }
func (r *remoteSet) Size() RemoteSize {
	return RemoteSize{Count: 7, Capacity: 10, Bytes: 5, FillRatio: 0.25, FalsePositiveRate: 0.5}
}

func newRemoteSet() *remoteSet { return &remoteSet{ids: map[string]bool{"1": true}, whole: true} }

func mustAnswer(t *testing.T, f *Filter, id string, want Answer) {
	t.Helper()
	if got := f.MayContain(id); got != want {
		t.Errorf("%s is %v, want %v", id, got, want)
	}
}

func TestRemote(t *testing.T) {
	remote, log := newRemoteSet(), &sharedLog{}
	var f *Filter
	barrier := &follower{log: log, add: func(id string) { f.Add(id) }}
	var broken error
	f = mustNew(t, Options{Remote: remote, Appender: log, Barrier: barrierFunc(func(ctx context.Context) error {
		if broken != nil {
			return broken
		}
		return barrier.Wait(ctx)
	})})
	// Memory was never loaded: it is never why an ID is absent.
	mustAnswer(t, f, "1", Maybe)
	mustAnswer(t, f, "2", Absent)
	asked := remote.questions()
	mustAnswer(t, f, "1", Maybe)
	if n := remote.questions(); n != asked {
		t.Errorf("%d questions about an ID that was found a moment ago", n-asked)
	}
	// Learned elsewhere, and lost by the set: the log has it.
	if err := log.Append(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	mustAnswer(t, f, "3", Maybe)
	remote.set(nil, false)
	mustAnswer(t, f, "4", Unknown)
	remote.set(errors.New("away"), true)
	mustAnswer(t, f, "4", Unknown)
	if state, reason := f.State(); state != StateUnknown || reason != "away" {
		t.Errorf("%s, %q", state, reason)
	}
	remote.set(nil, true)
	if state, reason := f.State(); state != StateReady || reason != "" {
		t.Errorf("%s, %q", state, reason)
	}
	mustAnswer(t, f, "4", Absent)
	broken = errors.New("the log is away")
	mustAnswer(t, f, "4", Unknown)
	broken = nil
	f.Taint("an order was missed")
	mustAnswer(t, f, "4", Unknown)
	mustAnswer(t, f, "1", Maybe)
	if f.Count() != 7 || f.Capacity() != 10 || f.FillRatio() != 0.25 || f.EstimatedFalsePositiveRate() < 0.5 {
		t.Errorf("%+v", f.Info())
	}
	if _, err := New("orders", Options{Remote: remote}); err == nil {
		t.Error("a remote set without a change log was accepted")
	}
}

// TestRemoteLearn learns while the set cannot be written: with a barrier nobody
// misses the ID, and the set gets it later.
func TestRemoteLearn(t *testing.T) {
	for _, barrier := range []bool{true, false} {
		remote, log := newRemoteSet(), &sharedLog{}
		opts := Options{Remote: remote, Appender: log, MaxPending: 2}
		if barrier {
			opts.Barrier = barrierFunc(func(context.Context) error { return nil })
		}
		f := mustNew(t, opts)
		if err := f.Learn(t.Context(), "3"); err != nil || !remote.ids["3"] || len(log.ids) != 1 {
			t.Errorf("learned: %v, %v, %v", err, remote.ids, log.ids)
		}
		away := errors.New("away")
		remote.set(away, true)
		for i := range 4 {
			err := f.Learn(t.Context(), fmt.Sprint("new-", i))
			if barrier && err != nil || !barrier && (!errors.Is(err, away) || !strings.Contains(err.Error(), "not in the shared set")) {
				t.Errorf("barrier %v: %v", barrier, err)
			}
		}
		// Without a barrier two are lost to the others: a doubt is to tell them.
		if want := map[bool]int{true: 2, false: 3}[barrier]; len(log.ids) != 5 || f.Pending() != want {
			t.Errorf("barrier %v: %d in the log, %d pending", barrier, len(log.ids), f.Pending())
		}
		remote.set(nil, true)
		if got := f.MayContain("nobody"); got != Absent { // all are known here
			t.Errorf("barrier %v: nobody is %v", barrier, got)
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
		mustAnswer(t, f, fmt.Sprint("log-", i), Maybe)
	}
	passed := 0
	for i := range 10_000 {
		if f.MayContain(fmt.Sprint("nobody-", i)) == Maybe {
			passed++
		}
	}
	if passed > 40 { // 0.1%, twice that with layers
		t.Errorf("%d of 10,000 pass", passed)
	}
}

func TestRecent(t *testing.T) {
	r := newRecent([16]byte{1})
	for i := range recentPlaces / 4 {
		r.add(fmt.Sprint(i))
	}
	kept := 0
	for i := range recentPlaces / 4 {
		if r.has(fmt.Sprint(i)) {
			kept++
		}
	}
	if kept < recentPlaces/4*85/100 { // by the formula 1-e^-x of x thrown, 88%
		t.Errorf("%d of %d are remembered", kept, recentPlaces/4)
	}
	for i := range recentPlaces {
		if r.has(fmt.Sprint("other-", i)) {
			t.Fatalf("other-%d is taken for another", i)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { r.add("1001"); r.has("1001") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
