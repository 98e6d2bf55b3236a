package follow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBatchIsWhole runs transactions and crashes against a batch. What was emitted before the
// stored checkpoint, and again after it, is all that was committed.
func TestBatchIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(990, 1010), rapid.IntRange(1999, 2001)), 1, 5).Draw(t, "transactions")
		// The number of calls of emit until it fails: the crash.
		crash := rapid.IntRange(0, 12).Draw(t, "crash")
		stored, emitted := 0, map[string]bool{}
		ctx := t.Context()
		play := func(from, crash int) error {
			at, calls := from, 0
			b := NewBatch(func(_ context.Context, ids []string, checkpoint string) error {
				if calls++; calls > crash {
					return errors.New("crashed")
				}
				if len(ids) > MaxChunk {
					t.Fatalf("%d IDs in one call", len(ids))
				}
				for _, id := range ids {
					emitted[id] = true
				}
				if _, err := fmt.Sscan(checkpoint, &stored); err != nil {
					t.Fatal(err)
				}
				return nil
			}, func() string { return fmt.Sprint(at) }, fmt.Sprint(from))
			for n := from; n < len(sizes); n++ {
				for i := range sizes[n] {
					if err := b.Add(ctx, fmt.Sprintf("%d-%d", n, i)); err != nil {
						return err
					}
				}
				at = n + 1
				b.Commit()
				if err := b.Flush(ctx, rapid.Bool().Draw(t, "more")); err != nil {
					return err
				}
			}
			if err := b.Advance(ctx); err != nil {
				return err
			}
			if !b.Flushed() || b.LastEmitted() != fmt.Sprint(len(sizes)) {
				t.Fatalf("at the end: %v, checkpoint %s", b.Flushed(), b.LastEmitted())
			}
			return nil
		}
		if play(0, crash) != nil {
			for n := range stored {
				for i := range sizes[n] {
					if !emitted[fmt.Sprintf("%d-%d", n, i)] {
						t.Fatalf("checkpoint %d was kept, but %d-%d was not emitted", stored, n, i)
					}
				}
			}
			if err := play(stored, 1000); err != nil {
				t.Fatal(err)
			}
		}
		for n, size := range sizes {
			for i := range size {
				if !emitted[fmt.Sprintf("%d-%d", n, i)] {
					t.Fatalf("%d-%d was never emitted", n, i)
				}
			}
		}
	})
}

func TestBatchHoldsBackBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var emitted []string
		at := 0
		b := NewBatch(func(_ context.Context, ids []string, checkpoint string) error {
			emitted = append(emitted, strings.Join(ids, "+")+"@"+checkpoint)
			return nil
		}, func() string { return fmt.Sprint(at) }, "")
		step := func(id string, more bool) {
			t.Helper()
			if id != "" {
				if err := b.Add(t.Context(), id); err != nil {
					t.Fatal(err)
				}
				at++
				b.Commit()
			}
			if err := b.Flush(t.Context(), more); err != nil {
				t.Fatal(err)
			}
		}
		step("a", false) // at once
		step("b", true)
		step("c", true)
		step("d", false) // with those before it
		step("e", true)
		time.Sleep(maxHoldBack) // of the bubble's clock
		step("", true)          // the wait ends
		step("f", true)
		b.Discard()
		step("", false)
		if diff := cmp.Diff([]string{"a@1", "b+c+d@4", "e@5"}, emitted); diff != "" {
			t.Errorf("emitted (-want +got):\n%s", diff)
		}
		at = 9
		if err := b.Advance(t.Context()); err != nil || emitted[3] != "@9" {
			t.Errorf("a checkpoint without IDs: %q, %v", emitted, err)
		}
		if err := b.Advance(t.Context()); err != nil || len(emitted) != 4 {
			t.Errorf("the same checkpoint again: %q, %v", emitted, err)
		}
	})
}

func TestSplitTable(t *testing.T) {
	for table, want := range map[string][2]string{"orders": {"", "orders"}, "shop.orders": {"shop", "orders"}, "my table": {"", "my table"}} {
		schema, name, err := SplitTable(table)
		if got := [2]string{schema, name}; got != want || err != nil {
			t.Errorf("%s: %q, %v", table, got, err)
		}
	}
	for _, table := range []string{"", ".", "a.", ".b", "a.b.c", "a\n"} {
		if _, _, err := SplitTable(table); err == nil {
			t.Errorf("%q is a table", table)
		}
	}
}

func TestLogEnds(t *testing.T) {
	now := time.Now()
	var m LogEnds[int]
	if _, ok := m.First(); ok {
		t.Error("there is a first of none")
	}
	reached := func(at, want int, ok bool) {
		t.Helper()
		asked, got := m.PopReached(func(end int) bool { return end <= at })
		if got != ok || ok && !asked.Equal(now.Add(time.Duration(want))) {
			t.Errorf("at %d: %v %v, want that of %d", at, asked.Sub(now), got, want)
		}
	}
	for i := 1; i <= 3; i++ {
		m.Add(LogEnd[int]{now.Add(time.Duration(i)), 10 * i})
	}
	reached(9, 0, false)
	reached(10, 1, true)
	reached(10, 0, false)
	reached(35, 3, true)
	for i := range 2 * maxLogEnds {
		m.Add(LogEnd[int]{now.Add(time.Duration(i)), i})
	}
	// One that always lags by less than the bound reaches the ends all the same.
	reached(2*maxLogEnds, maxLogEnds-1, true)
}

func TestPollLogEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		calls := 0
		to, failed := make(chan LogEnd[int]), make(chan error, 9)
		now, done := make(chan struct{}, 1), make(chan struct{})
		go func() {
			defer close(done)
			PollLogEnd(ctx, time.Second, 3*time.Second, now, func(ctx context.Context) (int, error) {
				switch calls++; calls {
				case 2:
					return 0, errors.New("no")
				case 3:
					<-ctx.Done() // longer than the timeout
					return 0, ctx.Err()
				}
				time.Sleep(100 * time.Millisecond) // of the bubble's clock
				return calls, nil
			}, to, func(err error) { failed <- err })
		}()
		want := func(end int, asked time.Duration) {
			t.Helper()
			if m := <-to; m.End != end || m.Requested.Sub(began) != asked {
				t.Errorf("received %d requested at %v, want %d at %v", m.End, m.Requested.Sub(began), end, asked)
			}
		}
		want(1, 0) // requested before the result, at once
		want(4, 5*time.Second)
		if len(failed) != 2 {
			t.Errorf("%d failures", len(failed))
		}
		time.Sleep(1900 * time.Millisecond) // a result that is not received
		want(6, 7*time.Second)
		time.Sleep(100 * time.Millisecond)
		now <- struct{}{}
		want(7, 7*time.Second+200*time.Millisecond)
		cancel()
		<-done
		if len(failed) != 2 {
			t.Errorf("the end of the context counts as a failure")
		}
	})
}

func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		lost := 0
		began := time.Now()
		var at []time.Duration
		fatal := errors.New("fatal")
		busy := 0
		err := Retry(t.Context(), Options{Logger: logger, OnDisconnect: func(error) { lost++ }, OnBusy: func(error) { busy++ }}, func(context.Context) error {
			at = append(at, time.Since(began))
			switch n := len(at); {
			case n == 11:
				time.Sleep(stableAfter + 1) // of the bubble's clock
			case n > 13:
				return fmt.Errorf("and %w", Permanent(fatal))
			case n > 11:
				return fmt.Errorf("in use: %w", ErrBusy)
			}
			return errors.New("two\nlines")
		})
		if !errors.Is(err, fatal) || err.Error() != "and fatal" {
			t.Errorf("error %v", err)
		}
		if strings.Contains(log.String(), `\n`) || strings.Count(log.String(), "\n") != 13 {
			t.Errorf("log: %s", &log)
		}
		if lost != 11 || busy != 2 { // and a permanent error
			t.Errorf("%d losses and %d waits reported, want 11 and 2", lost, busy)
		}
		gap := func(i int) time.Duration { return at[i] - at[i-1] }
		if gap(1) > firstPause || gap(10) < lastPause/2 || gap(10) > lastPause || gap(11) > stableAfter+1+firstPause || gap(13) > busyPause {
			t.Errorf("tried at %v", at)
		}

		stopped := errors.New("stopped")
		ctx, cancel := context.WithCancelCause(t.Context())
		err = Retry(ctx, Options{Logger: logger, OnDisconnect: func(error) {}}, func(context.Context) error {
			time.AfterFunc(time.Millisecond, func() { cancel(stopped) })
			return errors.New("again")
		})
		if !errors.Is(err, stopped) {
			t.Errorf("error %v, want the context's", err)
		}
		if Permanent(nil) != nil || OneLine(nil) != "" {
			t.Error("no error is one")
		}
	})
}

func TestOptions(t *testing.T) {
	o := Options{DSN: "d", Table: "t", IDColumn: "c"}
	var bad []string
	o.OnBadRow = func(reason string) { bad = append(bad, reason) }
	o.EnsureDefaults()
	o.OnBadRow("x")
	if o.PollEvery != 200*time.Millisecond || o.Advance != 10*time.Second || o.Logger == nil || !slices.Equal(bad, []string{"x"}) {
		t.Errorf("%+v, %q", o, bad)
	}
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}
