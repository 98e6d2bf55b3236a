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

func (l *sharedLog) Append(_ context.Context, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ids = append(l.ids, id)
	return nil
}

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
				if there.MayContain(t.Context(), id) == Absent {
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
	if got := f.MayContain(t.Context(), "1001"); got != Maybe {
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
}

func (a *flaky) Append(_ context.Context, id string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tries++
	if a.down {
		return errAway
	}
	a.ids = append(a.ids, id)
	return nil
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
			if got := f.MayContain(ctx, id); got != Maybe {
				t.Errorf("ID %s: %v here, want maybe", id, got)
			}
		}
		time.Sleep(10*time.Second + time.Millisecond) // of synctest's clock
		if ids, tries := a.appended(); len(ids) != 0 || tries != 14 || f.Pending() != 3 {
			t.Errorf("IDs %v, %d tries, %d pending; want 3 tries, and 11 of the first ID", ids, tries, f.Pending())
		}
		a.set(false)
		time.Sleep(time.Second)
		if ids, _ := a.appended(); !slices.Equal(ids, []string{"1", "2", "3"}) || f.Pending() != 0 {
			t.Errorf("IDs %v, %d pending", ids, f.Pending())
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

func TestTooManyUnacknowledged(t *testing.T) {
	a := &flaky{down: true}
	f := mustLoad(t, mustNew(t, Options{Appender: a, MaxPending: 2}))
	for _, id := range []string{"1", "2"} {
		mustFailToLearn(t, f, id)
	}
	if got := f.MayContain(t.Context(), "new"); got != Absent {
		t.Errorf("%v with room left, want absent", got)
	}
	mustFailToLearn(t, f, "3")
	if got := f.MayContain(t.Context(), "new"); got != Unknown {
		t.Errorf("%v, want unknown", got)
	}
	if _, reason := f.State(); !strings.Contains(reason, "more than 2 new orders") {
		t.Errorf("reason %q", reason)
	}
	if f.Pending() != 2 || f.MayContain(t.Context(), "3") != Maybe {
		t.Error("the queue grew, or the ID is unknown here")
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
