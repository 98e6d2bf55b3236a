package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

var two = flightLimits{calls: 2, perClient: 1}

// mustBegin begins a call.
func mustBegin(t *testing.T, f *inFlight, client string) *flightPlace {
	t.Helper()
	p := f.begin(two, client, false)
	if p == nil {
		t.Fatal("a call may not begin")
	}
	return p
}

func wantCounts(t *testing.T, f *inFlight, calls, held int) {
	t.Helper()
	if c, h, _ := f.counts(); c != calls || h != held {
		t.Errorf("%d calls in flight and %d held, want %d and %d", c, h, calls, held)
	}
}

// TestInFlight has one call more than there may be. It waits until one has ended.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		first := mustBegin(t, &f, "a")
		mustBegin(t, &f, "b")
		if f.begin(two, "c", false) != nil || !f.crowded(two, "c") {
			t.Error("a third call may begin")
		}
		if f.begin(two, "c", true) == nil { // the outer call waits for it
			t.Error("a call within another may not begin")
		}
		wantCounts(t, &f, 3, 0)
		time.AfterFunc(time.Second, first.end)
		began := time.Now()
		if _, err := f.await(t.Context(), two, time.Now().Add(3*time.Second), "c"); !errors.Is(err, gate.ErrOverloaded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v, want an error at the end of the wait", err, time.Since(began))
		}
		wantCounts(t, &f, 2, 0)
		first.end() // twice is once
		wantCounts(t, &f, 2, 0)
	})
}

// TestInFlightInTurn has the first to wait be the first to go on.
func TestInFlightInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		running := mustBegin(t, &f, "a")
		mustBegin(t, &f, "b")
		got := make(chan string, 2)
		var waiting sync.WaitGroup
		for _, name := range []string{"first", "second"} {
			waiting.Go(func() {
				if p, err := f.await(t.Context(), two, time.Now().Add(time.Minute), name); err != nil {
					t.Error(err)
				} else {
					got <- name
					time.Sleep(time.Second)
					p.end()
				}
			})
			synctest.Wait()
		}
		running.end()
		if one, other := <-got, <-got; one != "first" || other != "second" {
			t.Errorf("%s, then %s", one, other)
		}
		waiting.Wait()
	})
}

// TestInFlightQueueIsBounded has more wait than may.
func TestInFlightQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		mustBegin(t, &f, "a")
		mustBegin(t, &f, "b")
		var waiting sync.WaitGroup
		for range waitersPerCall * two.calls {
			waiting.Go(func() { _, _ = f.await(t.Context(), two, time.Now().Add(time.Minute), "") })
		}
		synctest.Wait()
		began := time.Now()
		if _, err := f.await(t.Context(), two, began.Add(time.Minute), "c"); !errors.Is(err, gate.ErrOverloaded) || time.Since(began) > 0 {
			t.Errorf("%v after %v, want a refusal at once", err, time.Since(began))
		}
		waiting.Wait()
	})
}

// TestInFlightAbandoned has a waiter leave at the moment when it gets its place.
func TestInFlightAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // select takes either
			var f inFlight
			running := mustBegin(t, &f, "a")
			mustBegin(t, &f, "b")
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan *flightPlace)
			go func() {
				p, _ := f.await(ctx, two, time.Now().Add(time.Minute), "c")
				done <- p
			}()
			synctest.Wait()
			running.end()
			leave()
			if p := <-done; p != nil {
				p.end()
			}
			wantCounts(t, &f, 1, 0)
		}
	})
}

// TestInFlightHeld has a call end without an answer: it counts until its hold has ended, and
// against its client.
func TestInFlightHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		p := mustBegin(t, &f, "a")
		p.keep(time.Minute)
		p.end() // once Redis has the hold
		wantCounts(t, &f, 1, 1)
		if f.begin(two, "a", false) != nil {
			t.Error("the client's next call may begin")
		}
		if _, err := f.await(t.Context(), two, time.Now().Add(time.Hour), "a"); !errors.Is(err, gate.ErrOverloaded) {
			t.Errorf("the client waits: %v", err)
		}
		mustBegin(t, &f, "b").end()
		unknown := mustBegin(t, &f, "")
		unknown.keep(time.Minute)
		if f.crowded(flightLimits{calls: 3, perClient: 1}, "") {
			t.Error("calls of unknown clients count against one another")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		wantCounts(t, &f, 0, 0)
		if mustBegin(t, &f, "a").end(); len(f.of) != 0 {
			t.Errorf("clients are remembered: %v", f.of)
		}
	})
}

// TestInFlightOfOneClient has a client begin as many calls as it may, and leave them all:
// others still have their places.
func TestInFlightOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		limits := flightLimits{calls: 4, perClient: 2}
		var rude []*flightPlace
		for p := f.begin(limits, "rude", false); p != nil; p = f.begin(limits, "rude", false) {
			rude = append(rude, p)
		}
		var waiting sync.WaitGroup
		for range waitersPerCall * limits.perClient {
			waiting.Go(func() {
				if p, err := f.await(t.Context(), limits, time.Now().Add(time.Second), "rude"); p != nil || !errors.Is(err, gate.ErrOverloaded) {
					t.Errorf("%v, %v: a client has more than its share", p, err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if _, err := f.await(t.Context(), limits, began.Add(time.Second), "rude"); !errors.Is(err, gate.ErrOverloaded) || time.Since(began) > 0 {
			t.Errorf("%v after %v: a client has more than its share of the queue", err, time.Since(began))
		}
		for _, p := range rude {
			p.keep(time.Minute)
		}
		if f.crowded(limits, "other") {
			t.Errorf("one client has all %d places", len(rude))
		}
		f.begin(limits, "other", false).end() // wakes nobody: those who wait have their share
		waiting.Wait()
		wantCounts(t, &f, 2, 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantCounts(t, &f, 0, 0)
		if len(f.of) != 0 {
			t.Errorf("clients are remembered: %v", f.of)
		}
	})
}

// TestInFlightOfSeveralRules has a caller wait under a rule that allows less than another.
func TestInFlightOfSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f inFlight
		one := flightLimits{calls: 1, perClient: 1}
		running := mustBegin(t, &f, "a")
		got := make(chan *flightPlace)
		go func() {
			p, _ := f.await(t.Context(), one, time.Now().Add(time.Minute), "b")
			got <- p
		}()
		synctest.Wait()
		if f.crowded(two, "c") {
			t.Error("a caller waits behind one whose rule allows less")
		}
		mustBegin(t, &f, "c").end()
		running.end()
		if (<-got) == nil {
			t.Error("the caller has no place in the end")
		}
		wantCounts(t, &f, 1, 0)
	})
}
