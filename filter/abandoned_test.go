package filter

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
)

// told is an appender that has when each doubt about abandoned calls was told of, and since
// when its orders may be there.
type told struct {
	sharedLog
	err error

	mu    sync.Mutex
	at    []time.Time
	since []time.Time
}

func (l *told) AppendAbandoned(_ context.Context, _ string, since time.Time) (Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.since = append(l.at, time.Now()), append(l.since, since)
	return Entry{}, l.err
}

// TestAbandonedShareADoubt has a client abandon many calls: the first is told of at once,
// the others together.
func TestAbandonedShareADoubt(t *testing.T) {
	for _, fails := range []error{nil, errAway} {
		synctest.Test(t, func(t *testing.T) {
			log := &told{err: fails}
			f := mustLoad(t, mustNew(t, Options{Appender: log}))
			start := time.Now()
			var calls sync.WaitGroup
			for n := range 300 { // in 3 s
				calls.Go(func() {
					began := start.Add(-time.Minute)
					if n == 20 {
						began = time.Time{}
					}
					if err := f.Abandoned(t.Context(), "no answer", began); !errors.Is(err, fails) {
						t.Errorf("call %d: %v, want %v", n, err, fails)
					}
				})
				time.Sleep(10 * time.Millisecond)
			}
			calls.Wait()
			if len(log.at) != 7 {
				t.Fatalf("%d doubts, want 7", len(log.at))
			}
			for i, at := range log.at {
				if want := start.Add(time.Duration(i) * abandonedEvery); !at.Equal(want) {
					t.Errorf("doubt %d was told of %v late", i, at.Sub(want))
				}
				if known := !log.since[i].IsZero(); known != (i != 1) {
					t.Errorf("doubt %d is about orders since %v", i, log.since[i])
				}
			}
			if got := f.MayContain("any"); got != presence.Unknown {
				t.Errorf("%v, want unknown", got)
			}
		})
	}
}

// TestAbandonedWithoutPatience ends the contexts of calls that wait for their doubt.
func TestAbandonedWithoutPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &told{}
		f := mustLoad(t, mustNew(t, Options{Appender: log}))
		if err := f.Abandoned(t.Context(), "no answer", time.Time{}); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { _ = f.Abandoned(ctx, "no answer", time.Time{}) })
		}
		calls.Wait()
		if time.Since(log.at[0]) > time.Millisecond || len(log.at) != 2 {
			t.Errorf("%d doubts after %v, want two", len(log.at), time.Since(log.at[0]))
		}
	})
}
