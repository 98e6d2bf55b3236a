package filter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/presence"
)

// learnHereLookThere creates orders at one filter and looks each up at another as
// soon as Learn returned, and returns how often that said Absent.
func learnHereLookThere(t *testing.T, windows, spreads bool) int64 {
	log := &sharedLog{}
	var there *Filter
	opts := Options{}
	reader := &follower{log: log, add: func(id string) { there.Add(id) }}
	if windows {
		log.followers = append(log.followers, reader)
		opts.Window = func() Window { return reader.window.Load() }
	}
	there = mustLoad(t, mustNew(t, opts))
	var appender Appender = log
	if !spreads {
		appender = hasty{log}
	}
	here := mustLoad(t, mustNew(t, Options{Appender: appender}))
	if windows {
		ctx, cancel := context.WithCancel(t.Context())
		var follows sync.WaitGroup
		follows.Go(func() { reader.follow(ctx) })
		defer func() {
			// It refuses what nobody has created, or the test would show nothing.
			for deadline := time.Now().Add(20 * time.Second); there.MayContain("nobody") != presence.Absent; runtime.Gosched() {
				if time.Now().After(deadline) {
					t.Error("nothing is absent")
					break
				}
			}
			cancel()
			follows.Wait()
		}()
	}
	var absent atomic.Int64
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for n := range 500 {
				id := fmt.Sprintf("%d-%d", w, n)
				if err := here.Learn(t.Context(), id); err != nil {
					t.Error(err)
				}
				if there.MayContain(id) == presence.Absent {
					absent.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return absent.Load()
}

func TestLearnedIsNeverAbsentElsewhere(t *testing.T) {
	if n := learnHereLookThere(t, true, true); n != 0 {
		t.Errorf("%d learned IDs were absent at another filter", n)
	}
	// The same is absent sometimes without windows, or if Learn does not wait for their end, so
	// the check is worth something.
	sometimes := func(windows, spreads bool) bool {
		for range 100 {
			if learnHereLookThere(t, windows, spreads) != 0 {
				return true
			}
		}
		return false
	}
	if !sometimes(false, true) {
		t.Error("nothing was absent without windows: this test shows nothing")
	}
	if !sometimes(true, false) {
		t.Error("nothing was absent though windows held: this test shows nothing")
	}
}

func TestLearnWithoutAppender(t *testing.T) {
	f := mustLoad(t, mustNew(t, Options{}))
	if err := f.Learn(t.Context(), "1001"); err != nil {
		t.Fatal(err)
	}
	if got := f.MayContain("1001"); got != presence.Maybe {
		t.Errorf("%v, want maybe", got)
	}
}

func TestLearnRefusesWhatTheLogCannotHold(t *testing.T) {
	for _, id := range []string{"", strings.Repeat("x", orderid.MaxBytes+1)} {
		f := mustLoad(t, mustNew(t, Options{Appender: &sharedLog{}}))
		if err := f.Learn(t.Context(), id); err == nil {
			t.Errorf("an ID of %d bytes was learned", len(id))
		}
		if state, reason := f.State(); state != StateUnknown || !strings.Contains(reason, orderid.Check(id)) {
			t.Errorf("state %q, reason %q", state, reason)
		}
		if f.Pending() != 0 {
			t.Error("it is tried again")
		}
	}
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
			if got := f.MayContain(id); got != presence.Maybe {
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
			if f.MayContain(id) != presence.Maybe {
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
	for _, tc := range []struct {
		name    string
		opts    Options
		cannot  error
		exposed bool
		calls   int
	}{
		{"withdrawn", Options{Window: open}, nil, false, 1},
		{"cannot withdraw", Options{Window: open}, errors.New("never a member"), true, 1},
		{"nobody waits for anything", Options{}, nil, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &flaky{down: true, cannot: tc.cannot}
			tc.opts.Appender = a
			f := mustLoad(t, mustNew(t, tc.opts))
			for _, learn := range []func() error{
				func() error { return f.Learn(t.Context(), "1") },
				func() error { return f.MarkIncomplete(t.Context(), "no ID in the answer", time.Time{}) },
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

// TestLearnSpreads: an answer may be passed on once no window holds anywhere that does not include
// what was appended. What was not appended is withdrawn; and nobody waits for a retry.
func TestLearnSpreads(t *testing.T) {
	errFar := errors.New("others may not have it")
	learn := func(f *Filter) error { return f.Learn(t.Context(), "1") }
	tooLong := func(f *Filter) error { return f.Learn(t.Context(), strings.Repeat("x", orderid.MaxBytes+1)) }
	missed := func(f *Filter) error { return f.MarkIncomplete(t.Context(), "no ID in the answer", time.Time{}) }
	abandoned := func(f *Filter) error { return f.Abandoned(t.Context(), "no answer", time.Time{}) }
	all := func(f *Filter) error { return f.LearnAll(t.Context(), []string{"1", "2"}) }
	retry := func(f *Filter) error { return f.appendPending(t.Context()) }
	for _, tc := range []struct {
		name     string
		do       func(*Filter) error
		window   func() Window
		down     bool
		unspread error
		did      string
		want     []error
		not      error
		pending  int
	}{
		{"learned", learn, open, false, nil, "append spread", nil, ErrExposed, 0},
		{"learned, without windows", learn, nil, false, nil, "append spread", nil, ErrExposed, 0},
		{"missed", missed, open, false, nil, "missed spread", nil, ErrExposed, 0},
		{"abandoned", abandoned, open, false, nil, "missed spread", nil, ErrExposed, 0},
		{"all learned", all, open, false, nil, "append spread", nil, ErrExposed, 0},
		{"learned, not spread", learn, open, false, errFar, "append spread", []error{ErrExposed, errFar}, nil, 0},
		{"learned, without windows, not spread", learn, nil, false, errFar, "append spread", []error{ErrExposed, errFar}, nil, 0},
		{"missed, not spread", missed, open, false, errFar, "missed spread", []error{ErrExposed, errFar}, nil, 0},
		{"abandoned, not spread", abandoned, open, false, errFar, "missed spread", []error{ErrExposed, errFar}, nil, 0},
		{"too long, not spread", tooLong, open, false, errFar, "missed spread", []error{ErrExposed, errFar}, nil, 0},
		{"all learned, not spread", all, open, false, errFar, "append spread", []error{errFar}, nil, 0},
		{"not learned", learn, open, true, nil, "append withdraw", []error{errAway}, ErrExposed, 1},
		{"not learned, without windows", learn, nil, true, nil, "append", []error{errAway, ErrExposed}, nil, 1},
		{"not missed", missed, open, true, nil, "missed withdraw", []error{errAway}, ErrExposed, 1},
		{"not abandoned", abandoned, open, true, nil, "missed withdraw", []error{errAway}, ErrExposed, 1},
		{"not all learned", all, open, true, nil, "append", []error{errAway}, nil, 0},
		{"tried again", retry, open, false, errFar, "append", nil, errFar, 0},
		{"tried again in vain", retry, open, true, nil, "append", []error{errAway}, nil, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &flaky{unspread: tc.unspread}
			f := mustLoad(t, mustNew(t, Options{Appender: a, Window: tc.window}))
			if strings.HasPrefix(tc.name, "tried again") {
				a.set(true)
				mustFailToLearn(t, f, "0")
				a.calls()
			}
			a.set(tc.down)
			err := tc.do(f)
			for _, want := range tc.want {
				if !errors.Is(err, want) {
					t.Errorf("%v, want %v", err, want)
				}
			}
			if tc.want == nil && err != nil || tc.not != nil && errors.Is(err, tc.not) {
				t.Error(err)
			}
			if did := a.calls(); did != tc.did {
				t.Errorf("did %q, want %q", did, tc.did)
			}
			if n := f.Pending(); n != tc.pending {
				t.Errorf("%d pending, want %d", n, tc.pending)
			}
		})
	}
}

// TestLearnTakes as long as Append, Spread and Withdraw do: only the first has a limit of its
// own.
func TestLearnTakes(t *testing.T) {
	const s = time.Second
	learn := func(ctx context.Context, f *Filter) error { return f.Learn(ctx, "1") }
	all := func(ctx context.Context, f *Filter) error { return f.LearnAll(ctx, []string{"1"}) }
	for _, tc := range []struct {
		name  string
		learn func(context.Context, *Filter) error
		log   *patient
		takes time.Duration
		err   error // nil: none
		not   error
	}{
		{"spread", learn, &patient{append: s, spread: 9 * s}, 10 * s, nil, ErrExposed},
		{"all spread", all, &patient{append: s, spread: 9 * s}, 10 * s, nil, ErrExposed},
		{"spread too late", learn, &patient{append: s, spread: time.Hour}, time.Minute, ErrExposed, nil},
		{"all spread too late", all, &patient{append: s, spread: time.Hour}, time.Minute, context.DeadlineExceeded, nil},
		{"withdrawn", learn, &patient{append: time.Hour, spread: time.Hour, withdraw: 9 * s}, 12 * s, context.DeadlineExceeded, ErrExposed},
		{"withdrawn too late", learn, &patient{append: time.Hour, spread: time.Hour, withdraw: time.Hour}, time.Minute, ErrExposed, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := mustLoad(t, mustNew(t, Options{Appender: tc.log, Window: open, AppendTimeout: 3 * s}))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				start := time.Now()
				if err := tc.learn(ctx, f); !errors.Is(err, tc.err) || tc.not != nil && errors.Is(err, tc.not) {
					t.Errorf("%v, want %v", err, tc.err)
				}
				if took := time.Since(start); took != tc.takes {
					t.Errorf("it took %v, want %v", took, tc.takes)
				}
			})
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
