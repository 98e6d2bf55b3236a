package filter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sharedLog is a change log in memory: every follower reads it only when its
// barrier is waited for.
type sharedLog struct {
	mu  sync.Mutex
	ids []string
}

func (l *sharedLog) Append(_ context.Context, ids ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, ids...)
	return nil
}

func (l *sharedLog) Record(ctx context.Context, ids ...string) error { return l.Append(ctx, ids...) }

func (l *sharedLog) Missed(context.Context, string, time.Time) (Entry, error) { return Entry{}, nil }
func (l *sharedLog) Abandoned(context.Context, string, time.Time) (Entry, error) {
	return Entry{}, nil
}
func (l *sharedLog) Withdraw(context.Context) error { return nil }

// since returns the entries behind the first n.
func (l *sharedLog) since(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ids[n:len(l.ids):len(l.ids)]
}

// follower applies a log to a filter.
type follower struct {
	log *sharedLog
	add func(string)
	mu  sync.Mutex
	pos int
}

func (f *follower) Wait(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.mu.Lock()
	fresh := f.log.ids[f.pos:]
	f.log.mu.Unlock()
	for _, id := range fresh {
		f.add(id)
	}
	f.pos += len(fresh)
	return nil
}

// learnHereLookThere creates orders at one filter and looks each up at another as
// soon as Learn returned, and returns how often that said Absent.
func learnHereLookThere(t *testing.T, barrier bool) int64 {
	log := &sharedLog{}
	var there *Filter
	opts := Options{}
	if barrier {
		opts.Barrier = &follower{log: log, add: func(id string) { there.Add(id) }}
	}
	there = mustLoad(t, mustNew(t, opts))
	here := mustLoad(t, mustNew(t, Options{Appender: log}))
	var absent atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := range 500 {
				id := fmt.Sprintf("%d-%d", w, n)
				if err := here.Learn(t.Context(), id); err != nil {
					t.Error(err)
				}
				if there.MayContain(id) == Absent {
					absent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return absent.Load()
}

func TestLearnedIsNeverAbsentElsewhere(t *testing.T) {
	if n := learnHereLookThere(t, true); n != 0 {
		t.Errorf("%d learned IDs were absent at another filter", n)
	}
	// The same without a barrier fails, so the check is worth something.
	if n := learnHereLookThere(t, false); n == 0 {
		t.Error("nothing was absent without a barrier: this test shows nothing")
	}
}

func TestLearnWithoutAppender(t *testing.T) {
	f := mustLoad(t, mustNew(t, Options{}))
	if err := f.Learn(t.Context(), "1001"); err != nil {
		t.Fatal(err)
	}
	if got := f.MayContain("1001"); got != Maybe {
		t.Errorf("%v, want maybe", got)
	}
}

func TestLearnRefusesWhatTheLogCannotHold(t *testing.T) {
	for _, id := range []string{"", strings.Repeat("x", MaxIDBytes+1)} {
		f := mustLoad(t, mustNew(t, Options{Appender: &sharedLog{}}))
		if err := f.Learn(t.Context(), id); err == nil {
			t.Errorf("an ID of %d bytes was learned", len(id))
		}
		if state, reason := f.State(); state != StateUnknown || !strings.Contains(reason, fmt.Sprint(len(id))) {
			t.Errorf("state %q, reason %q", state, reason)
		}
		if f.Pending() != 0 {
			t.Error("it is tried again")
		}
	}
}

var errAway = errors.New("redis is away")

// flaky is an appender that can be switched off.
type flaky struct {
	mu    sync.Mutex
	down  bool
	tries int
	ids   []string
	// missed are the doubts that were told of; withdrawn counts calls of Withdraw, which
	// returns what cannot says.
	missed    []string
	withdrawn int
	cannot    error
}

func (a *flaky) Append(_ context.Context, ids ...string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries++
	if a.down {
		return errAway
	}
	a.ids = append(a.ids, ids...)
	return nil
}

func (a *flaky) Record(ctx context.Context, ids ...string) error { return a.Append(ctx, ids...) }

func (a *flaky) Missed(_ context.Context, reason string, _ time.Time) (Entry, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		return Entry{}, errAway
	}
	a.missed = append(a.missed, reason)
	return Entry{"a", uint64(len(a.missed))}, nil
}

func (a *flaky) Abandoned(ctx context.Context, reason string, _ time.Time) (Entry, error) {
	return a.Missed(ctx, "abandoned: "+reason, time.Time{})
}

func (a *flaky) Withdraw(context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.withdrawn++
	return a.cannot
}

func (a *flaky) set(down bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = down
}

func (a *flaky) appended() ([]string, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.ids), a.tries
}

func mustFailToLearn(t *testing.T, f *Filter, id string) {
	t.Helper()
	if err := f.Learn(t.Context(), id); !errors.Is(err, errAway) {
		t.Errorf("Learn = %v, want the appender's error", err)
	}
}

func TestUnacknowledgedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &flaky{down: true}
		f := mustLoad(t, mustNew(t, Options{Appender: a, RetryEvery: time.Second}))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()

		for _, id := range []string{"1", "2", "3"} {
			mustFailToLearn(t, f, id)
			if got := f.MayContain(id); got != Maybe {
				t.Errorf("ID %s: %v here, want maybe", id, got)
			}
		}
		time.Sleep(10*time.Second + time.Millisecond) // of synctest's clock
		if ids, tries := a.appended(); len(ids) != 0 || tries != 14 || f.Pending() != 3 {
			t.Errorf("IDs %v, %d tries, %d pending; want 3 tries, and 11 of all of them", ids, tries, f.Pending())
		}
		a.set(false)
		time.Sleep(time.Second)
		if ids, tries := a.appended(); !slices.Equal(ids, []string{"1", "2", "3"}) || tries != 15 || f.Pending() != 0 {
			t.Errorf("IDs %v, %d tries, %d pending; want all in one append", ids, tries, f.Pending())
		}
		// It goes on after that.
		a.set(true)
		mustFailToLearn(t, f, "4")
		a.set(false)
		time.Sleep(time.Second + time.Millisecond) // Run may have tried before set
		if ids, _ := a.appended(); len(ids) != 4 {
			t.Errorf("IDs %v, want four", ids)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTooManyUnacknowledged has one doubt take the place of what there is no room for.
func TestTooManyUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &flaky{down: true}
		f := mustLoad(t, mustNew(t, Options{Appender: a, MaxPending: 2, RetryEvery: time.Second}))
		for _, id := range []string{"1", "2", "3", "4"} {
			mustFailToLearn(t, f, id)
			if f.MayContain(id) != Maybe {
				t.Errorf("ID %s is not known here", id)
			}
		}
		if err := f.Abandoned(t.Context(), "no answer", time.Time{}); !errors.Is(err, errAway) {
			t.Error(err)
		}
		if f.Pending() != 3 {
			t.Errorf("%d pending, want two IDs and a doubt", f.Pending())
		}
		a.set(false)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		synctest.Wait()
		if ids, _ := a.appended(); !slices.Equal(ids, []string{"1", "2"}) || len(a.missed) != 1 || !strings.HasPrefix(a.missed[0], "abandoned: more than 2 new orders") {
			t.Errorf("IDs %v, doubts %q", ids, a.missed)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestLearnWithdraws: an answer may be passed on once nobody relies on the log any
// more, and not before; and the error says if that could not be had.
func TestLearnWithdraws(t *testing.T) {
	barrier := barrierFunc(func(context.Context) error { return nil })
	for _, tc := range []struct {
		name    string
		opts    Options
		cannot  error
		exposed bool
		calls   int
	}{
		{"withdrawn", Options{Barrier: barrier}, nil, false, 1},
		{"cannot withdraw", Options{Barrier: barrier}, errors.New("never a member"), true, 1},
		{"nobody waits for anything", Options{}, nil, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &flaky{down: true, cannot: tc.cannot}
			tc.opts.Appender = a
			f := mustLoad(t, mustNew(t, tc.opts))
			for _, learn := range []func() error{
				func() error { return f.Learn(t.Context(), "1") },
				func() error { return f.Missed(t.Context(), "no ID in the answer", time.Time{}) },
				func() error { return f.Abandoned(t.Context(), "no answer", time.Time{}) },
			} {
				a.withdrawn = 0
				if err := learn(); !errors.Is(err, errAway) || errors.Is(err, ErrExposed) != tc.exposed || a.withdrawn != tc.calls {
					t.Errorf("%v after %d calls of Withdraw", err, a.withdrawn)
				}
			}
			a.set(false)
			if err := f.Learn(t.Context(), "2"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunTriesOnceMoreAtTheEnd(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprintf("down %v", down), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &flaky{down: true}
				f := mustLoad(t, mustNew(t, Options{Appender: a, RetryEvery: time.Hour}))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- f.Run(ctx) }()
				mustFailToLearn(t, f, "1")
				synctest.Wait() // Run tried, and pauses
				a.set(down)
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				ids, _ := a.appended()
				if down && f.Pending() != 1 || !down && !slices.Equal(ids, []string{"1"}) {
					t.Errorf("IDs %v, %d pending", ids, f.Pending())
				}
			})
		})
	}
}
