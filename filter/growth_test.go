package filter

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
)

// again makes a Growth that reads n IDs again, "1" and so on.
func again(n int) func(context.Context, func(string) error) error {
	return func(_ context.Context, add func(string) error) error {
		for i := range n {
			if err := add(strconv.Itoa(i)); err != nil {
				return err
			}
		}
		return nil
	}
}

func numbers(n int) Source { return sourceFunc(again(n)) }

func TestExpandByAnotherLayer(t *testing.T) {
	var grew []uint64
	f := mustNew(t, Options{Capacity: 1000, Growth: &Growth{AtFill: 0.8, By: 2, OnGrown: func(c uint64) { grew = append(grew, c) }}})
	mustLoad(t, f, numbers(900))
	for range 3 {
		if err := f.Expand(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if f.Capacity() != 8000 || fmt.Sprint(grew) != "[2000 4000 8000]" {
		t.Errorf("capacity %d after %v", f.Capacity(), grew)
	}
	if e := f.Expansion(); e.Generation != 4 || e.Running || e.From != 4000 || e.To != 8000 || e.Err != "" {
		t.Errorf("%+v", e)
	}
	for i := range 900 {
		mustBe(t, f, strconv.Itoa(i), presence.Maybe)
	}
	if n := f.Count(); n < 895 || n > 900 {
		t.Errorf("%d IDs", n)
	}
	if rate := f.EstimatedFalsePositiveRate(); rate > 0.002 {
		t.Errorf("rate %g: more than twice what was promised", rate)
	}
}

func mustBe(t *testing.T, f *Filter, id string, want presence.Answer) {
	t.Helper()
	if got := f.MayContain(id); got != want {
		t.Errorf("ID %s: %v, want %v", id, got, want)
	}
}

// TestExpandWhileInUse has eight goroutines add and look up all the time.
func TestExpandWhileInUse(t *testing.T) {
	for _, tc := range []struct {
		name    string
		rebuild bool
	}{{"layers", false}, {"rebuild", true}} {
		t.Run(tc.name, func(t *testing.T) {
			const workers, each = 8, 4_000
			var mu sync.Mutex // of the log
			var log []string
			g := &Growth{AtFill: 0.8, By: 1.5}
			if tc.rebuild {
				// Every ID is in the log before the filter has it, or right after, as
				// with one that is learned.
				g.Rescan = func(_ context.Context, add func(string) error) error {
					for i := 0; ; i++ {
						mu.Lock()
						if i >= len(log) {
							mu.Unlock()
							return nil
						}
						id := log[i]
						mu.Unlock()
						if err := add(id); err != nil {
							return err
						}
					}
				}
			}
			f := mustLoad(t, mustNew(t, Options{Capacity: 1000, FalsePositiveRate: 0.001, Growth: g}))
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { _ = f.Run(ctx) })
			var work sync.WaitGroup
			for w := range workers {
				work.Go(func() {
					for i := range each {
						id := strconv.Itoa(w*each + i)
						if w%2 == 0 {
							f.Add(id)
						}
						mu.Lock()
						log = append(log, id)
						mu.Unlock()
						f.Add(id) // as Learn does
						if f.MayContain(id) != presence.Maybe || f.MayContain(strconv.Itoa(w*each+i/2)) != presence.Maybe {
							t.Errorf("ID %s is gone", id)
							return
						}
					}
				})
			}
			work.Wait()
			for i := range workers * each {
				mustBe(t, f, strconv.Itoa(i), presence.Maybe)
			}
			cancel()
			run.Wait()
			if err := f.Expand(t.Context()); err != nil {
				t.Error(err)
			}
			for i := range workers * each {
				mustBe(t, f, strconv.Itoa(i), presence.Maybe)
			}
			e := f.Expansion()
			if e.Generation < 2 || f.Capacity() < 5_000 {
				t.Errorf("%d IDs, made for %d: %+v", f.Count(), f.Capacity(), e)
			}
		})
	}
}

func TestExpandFails(t *testing.T) {
	away := errors.New("the database is away")
	for _, tc := range []struct {
		name  string
		again func(context.Context, func(string) error) error
		turn  error
		want  string
	}{
		{"the source breaks off", func(_ context.Context, add func(string) error) error {
			return errors.Join(add("1"), away)
		}, nil, "the database is away"},
		{"no turn", again(100), away, "waiting for the leader lock: the database is away"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over := false
			f := mustNew(t, Options{Capacity: 120, FalsePositiveRate: 1e-6, Growth: &Growth{
				AtFill: 0.9, By: 2, Rescan: tc.again,
				LeaderLock: func(ctx context.Context) (context.Context, func(), error) {
					return ctx, func() { over = true }, tc.turn
				},
			}})
			mustLoad(t, f, numbers(100))
			err := f.Expand(t.Context())
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want %q", err, tc.want)
			}
			if e := f.Expansion(); e.Running || e.Generation != 1 || !strings.Contains(e.Err, tc.want) || f.Capacity() != 120 {
				t.Errorf("%+v, capacity %d", e, f.Capacity())
			}
			if over != (tc.turn == nil) {
				t.Errorf("its turn is over: %v", over)
			}
			for i := range 100 {
				mustBe(t, f, strconv.Itoa(i), presence.Maybe)
			}
			if v := f.memory.view.Load(); v.next != nil {
				t.Error("the set that was given up is still added to")
			}
		})
	}
}

// TestExpandWithoutSomeIDs has a rescan that misses one ID: the old bits stay, below one more layer.
func TestExpandWithoutSomeIDs(t *testing.T) {
	f := mustNew(t, Options{Capacity: 120, FalsePositiveRate: 1e-6, Growth: &Growth{AtFill: 0.9, By: 2, Rescan: again(99)}})
	mustLoad(t, f, numbers(100))
	if err := f.Expand(t.Context()); err != nil || f.Capacity() != 240 {
		t.Errorf("%v, capacity %d", err, f.Capacity())
	}
	for i := range 100 {
		mustBe(t, f, strconv.Itoa(i), presence.Maybe)
	}
}

// TestExpandWhenTheTurnIsLost: whoever has the turn now reads the sources too.
func TestExpandWhenTheTurnIsLost(t *testing.T) {
	lost := errors.New("the lease was lost")
	f := mustNew(t, Options{Capacity: 100, Growth: &Growth{
		AtFill: 0.9, By: 2, Rescan: again(100),
		LeaderLock: func(ctx context.Context) (context.Context, func(), error) {
			ctx, cancel := context.WithCancelCause(ctx)
			cancel(lost)
			return ctx, func() {}, nil
		},
	}})
	mustLoad(t, f, numbers(100))
	if err := f.Expand(t.Context()); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
}

func TestExpandKeepsWhatIsPending(t *testing.T) {
	f := mustNew(t, Options{Capacity: 100, Appender: &flaky{down: true}, Growth: &Growth{AtFill: 0.9, By: 2, Rescan: again(50)}})
	mustLoad(t, f, numbers(50))
	mustFailToLearn(t, f, "learned")
	if err := f.Expand(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBe(t, f, "learned", presence.Maybe)
}

// TestGrowsByItself has a filter grow as soon as it is too full, and try again
// when that came to nothing.
func TestGrowsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var attempts atomic.Int32
		f := mustNew(t, Options{Capacity: 100, Growth: &Growth{AtFill: 0.8, By: 4, Rescan: func(ctx context.Context, add func(string) error) error {
			if attempts.Add(1) == 1 {
				return errors.New("not now")
			}
			return again(100)(ctx, add)
		}}})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = f.Run(ctx) }()
		mustLoad(t, f, numbers(79))
		synctest.Wait()
		if n := attempts.Load(); n != 0 {
			t.Errorf("%d attempts below the fill", n)
		}
		f.Add("90")
		f.Add("91")
		synctest.Wait()
		if n, e := attempts.Load(), f.Expansion(); n != 1 || e.Err == "" {
			t.Errorf("%d attempts, %+v", n, e)
		}
		time.Sleep(growthRetryAfter + growthCheckEvery)
		synctest.Wait()
		if n := attempts.Load(); n != 2 || f.Capacity() != 400 {
			t.Errorf("%d attempts, capacity %d", n, f.Capacity())
		}
		cancel()
		synctest.Wait()
	})
}

func TestGrowsWhileItLoads(t *testing.T) {
	f := mustNew(t, Options{Capacity: 100, Growth: &Growth{AtFill: 0.8, By: 2, Rescan: again(0)}})
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = f.Run(ctx) })
	mustLoad(t, f, sourceFunc(func(_ context.Context, yield func(string) error) error {
		for i := 0; i < 100_000 || f.Capacity() < 50_000; i++ {
			if err := yield(strconv.Itoa(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	cancel()
	run.Wait()
	for i := range 100_000 {
		mustBe(t, f, strconv.Itoa(i), presence.Maybe)
	}
}

func TestGrowthRefused(t *testing.T) {
	for _, g := range []Growth{{AtFill: 0, By: 2}, {AtFill: 1.1, By: 2}, {AtFill: 0.8, By: 1}, {AtFill: 0.8, By: 17}} {
		if _, err := New("orders", Options{Growth: &g}); err == nil {
			t.Errorf("%+v was taken", g)
		}
	}
	if err := mustNew(t, Options{}).Expand(t.Context()); !errors.Is(err, ErrNoGrowth) {
		t.Errorf("%v", err)
	}
}

func TestReserve(t *testing.T) {
	f := mustNew(t, Options{Capacity: 1000})
	for _, tc := range []struct{ ask, want uint64 }{{500, 1000}, {3000, 3000}, {2000, 3000}} {
		if err := f.Reserve(tc.ask); err != nil || f.Capacity() != tc.want {
			t.Errorf("reserving %d: room for %d, want %d (%v)", tc.ask, f.Capacity(), tc.want, err)
		}
	}
	f.Add("1001")
	if err := f.Reserve(9000); err != nil || f.Capacity() != 3000 || f.MayContain("1001") != presence.Maybe {
		t.Errorf("a filter in use has room for %d (%v)", f.Capacity(), err)
	}
}
