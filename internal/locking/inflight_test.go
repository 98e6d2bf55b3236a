package locking

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// The rules of these tests, by how many calls there may be, and of one client that is alone.
const (
	two      = "two"       // 2 and 1
	one      = "one"       // 1 and 1
	three    = "three"     // 3 and 1
	twoOfAll = "two of 4"  // 4 and 2
	tenOfAll = "10 of 100" // 100 and 10
	half     = "half"      // 100 and 50
	all      = "all"       // 100 and 100
)

func newInFlight() *inFlight {
	f := new(inFlight)
	f.setLimits(map[string]flightLimits{
		two: {2, 1}, one: {1, 1}, three: {3, 1}, twoOfAll: {4, 2}, tenOfAll: {100, 10}, half: {100, 50}, all: {100, 100},
	})
	return f
}

// mustBegin begins a call.
func mustBegin(t *testing.T, f *inFlight, client string) *flightSlot {
	t.Helper()
	p := f.begin(two, client, false)
	if p == nil {
		t.Fatal("a call may not begin")
	}
	return p
}

func isFull(f *inFlight, rule, client string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isFull(rule, client)
}

// await is inFlight.await for a caller that blocks.
func await(ctx context.Context, f *inFlight, rule string, until time.Time, client string) (slot *flightSlot, err error) {
	done := make(chan struct{})
	f.await(ctx, rule, until, client, func(got *flightSlot, failed error) {
		slot, err = got, failed
		close(done)
	})
	<-done
	return slot, err
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
		f := newInFlight()
		first := mustBegin(t, f, "a")
		mustBegin(t, f, "b")
		if f.begin(two, "c", false) != nil || !isFull(f, two, "c") {
			t.Error("a third call may begin")
		}
		if f.begin(two, "c", true) == nil { // the outer call waits for it
			t.Error("a call within another may not begin")
		}
		wantCounts(t, f, 3, 0)
		time.AfterFunc(time.Second, first.end)
		began := time.Now()
		if _, err := await(t.Context(), f, two, time.Now().Add(3*time.Second), "c"); !errors.Is(err, gate.ErrOverloaded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v, want an error at the end of the wait", err, time.Since(began))
		}
		wantCounts(t, f, 2, 0)
		first.end() // twice is once
		wantCounts(t, f, 2, 0)
	})
}

// TestInFlightInTurn has the first to wait be the first to go on.
func TestInFlightInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		running := mustBegin(t, f, "a")
		mustBegin(t, f, "b")
		got := make(chan string, 2)
		var waiting sync.WaitGroup
		for _, name := range []string{"first", "second"} {
			waiting.Go(func() {
				if p, err := await(t.Context(), f, two, time.Now().Add(time.Minute), name); err != nil {
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
		f := newInFlight()
		mustBegin(t, f, "a")
		mustBegin(t, f, "b")
		var waiting sync.WaitGroup
		for range waitersPerCall * 2 {
			waiting.Go(func() { _, _ = await(t.Context(), f, two, time.Now().Add(time.Minute), "") })
		}
		synctest.Wait()
		began := time.Now()
		if _, err := await(t.Context(), f, two, began.Add(time.Minute), "c"); !errors.Is(err, gate.ErrOverloaded) || time.Since(began) > 0 {
			t.Errorf("%v after %v, want a refusal at once", err, time.Since(began))
		}
		waiting.Wait()
	})
}

// TestInFlightAbandoned has a waiter leave at the moment when it gets its slot.
func TestInFlightAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 100 { // select takes either
			f := newInFlight()
			running := mustBegin(t, f, "a")
			mustBegin(t, f, "b")
			ctx, leave := context.WithCancel(t.Context())
			done := make(chan *flightSlot)
			go func() {
				p, _ := await(ctx, f, two, time.Now().Add(time.Minute), "c")
				done <- p
			}()
			synctest.Wait()
			running.end()
			leave()
			if p := <-done; p != nil {
				p.end()
			}
			wantCounts(t, f, 1, 0)
		}
	})
}

// TestInFlightHeld has a call end without an answer: it counts until its hold has ended, and
// against its client.
func TestInFlightHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		p := mustBegin(t, f, "a")
		p.holdFor(time.Minute)
		p.end() // once Redis has the hold
		wantCounts(t, f, 1, 1)
		if f.begin(two, "a", false) != nil {
			t.Error("the client's next call may begin")
		}
		if _, err := await(t.Context(), f, two, time.Now().Add(time.Hour), "a"); !errors.Is(err, gate.ErrOverloaded) {
			t.Errorf("the client waits: %v", err)
		}
		mustBegin(t, f, "b").end()
		unknown := mustBegin(t, f, "")
		unknown.holdFor(time.Minute)
		if isFull(f, three, "") {
			t.Error("calls of unknown clients count against one another")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		wantCounts(t, f, 0, 0)
		if mustBegin(t, f, "a").end(); len(f.of) != 0 {
			t.Errorf("clients are remembered: %v", f.of)
		}
	})
}

// TestInFlightOfOneClient has a client begin as many calls as it may, and leave them all:
// others still have their slots.
func TestInFlightOfOneClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		var rude []*flightSlot
		for p := f.begin(twoOfAll, "rude", false); p != nil; p = f.begin(twoOfAll, "rude", false) {
			rude = append(rude, p)
		}
		var waiting sync.WaitGroup
		for range waitersPerCall * 2 {
			waiting.Go(func() {
				if p, err := await(t.Context(), f, twoOfAll, time.Now().Add(time.Second), "rude"); p != nil || !errors.Is(err, gate.ErrOverloaded) {
					t.Errorf("%v, %v: a client has more than its share", p, err)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if _, err := await(t.Context(), f, twoOfAll, began.Add(time.Second), "rude"); !errors.Is(err, gate.ErrOverloaded) || time.Since(began) > 0 {
			t.Errorf("%v after %v: a client has more than its share of the queue", err, time.Since(began))
		}
		for _, p := range rude {
			p.holdFor(time.Minute)
		}
		if isFull(f, twoOfAll, "other") {
			t.Errorf("one client has all %d slots", len(rude))
		}
		f.begin(twoOfAll, "other", false).end() // wakes nobody: those who wait have their share
		waiting.Wait()
		wantCounts(t, f, 2, 2)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantCounts(t, f, 0, 0)
		if len(f.of) != 0 {
			t.Errorf("clients are remembered: %v", f.of)
		}
	})
}

// TestInFlightOfSeveralRules has a caller wait under a rule that allows less than another.
func TestInFlightOfSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		running := mustBegin(t, f, "a")
		got := make(chan *flightSlot)
		go func() {
			p, _ := await(t.Context(), f, one, time.Now().Add(time.Minute), "b")
			got <- p
		}()
		synctest.Wait()
		if isFull(f, two, "c") {
			t.Error("a caller waits behind one whose rule allows less")
		}
		mustBegin(t, f, "c").end()
		running.end()
		if (<-got) == nil {
			t.Error("the caller has no slot in the end")
		}
		wantCounts(t, f, 1, 0)
	})
}

// beginAll begins as many calls as a client may.
func beginAll(f *inFlight, rule, client string) (slots []*flightSlot) {
	for p := f.begin(rule, client, false); p != nil; p = f.begin(rule, client, false) {
		slots = append(slots, p)
	}
	return slots
}

// TestInFlightShares has clients begin as many calls as they may, one client after the other.
func TestInFlightShares(t *testing.T) {
	for _, tt := range []struct {
		rule string
		want []int
	}{
		{all, []int{100, 0}},
		{half, []int{50, 25, 13, 6, 3, 2, 1, 0}},
		{tenOfAll, []int{10, 9, 9, 8, 7, 6, 6, 5}},
	} {
		f := newInFlight()
		for client, want := range tt.want {
			if got := len(beginAll(f, tt.rule, string(rune('a'+client)))); got != want {
				t.Errorf("%s: client %d has %d slots, want %d", tt.rule, client, got, want)
			}
		}
	}
}

// TestInFlightRude has clients abandon as many calls as they may, for hours. Each has the same
// part in the end, and a customer who settles an order now and then finds a slot.
func TestInFlightRude(t *testing.T) {
	for _, rude := range []int{1, 2, 5, 10, 30} {
		synctest.Test(t, func(t *testing.T) {
			f := newInFlight()
			end := time.Now().Add(2 * time.Hour)
			for time.Now().Before(end) {
				for client := range rude {
					for _, p := range beginAll(f, half, string(rune('A'+client))) {
						p.holdFor(time.Minute + time.Duration(client)*time.Second)
					}
				}
				if time.Until(end) < time.Hour && isFull(f, half, "customer") {
					t.Fatalf("beside %d clients who leave their calls, others find no slot", rude)
				}
				time.Sleep(time.Second)
				synctest.Wait()
			}
			_, held, _ := f.counts()
			t.Logf("%d clients keep %d slots", rude, held)
			time.Sleep(time.Hour)
		})
	}
}

// TestInFlightFewestFirst gives a slot to the client that has the fewest.
func TestInFlightFewestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		var slots []*flightSlot
		for _, client := range []string{"a", "a", "a", "a", "b"} {
			slots = append(slots, f.begin(all, client, false))
		}
		f.setLimits(map[string]flightLimits{all: {5, 5}})
		got := make(chan string, 3)
		var waiting sync.WaitGroup
		for _, client := range []string{"a", "b", "c"} {
			waiting.Go(func() {
				if _, err := await(t.Context(), f, all, time.Now().Add(time.Minute), client); err != nil {
					t.Error(err)
				}
				got <- client
			})
			synctest.Wait()
		}
		for i, want := range []string{"c", "b", "a"} {
			slots[i].end()
			if client := <-got; client != want {
				t.Errorf("%s has slot %d, want %s", client, i, want)
			}
		}
		waiting.Wait()
	})
}

// TestInFlightMoreSlots has a reload make room for a caller who waits.
func TestInFlightMoreSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		mustBegin(t, f, "a")
		done := make(chan *flightSlot)
		go func() {
			p, _ := await(t.Context(), f, two, time.Now().Add(time.Minute), "a")
			done <- p
		}()
		synctest.Wait()
		f.setLimits(map[string]flightLimits{"another": {1, 1}})
		synctest.Wait()
		wantCounts(t, f, 1, 0)
		f.setLimits(map[string]flightLimits{two: {2, 2}})
		if <-done == nil {
			t.Error("the caller has no slot")
		}
		wantCounts(t, f, 2, 0)
	})
}

// TestInFlightNoWait refuses a caller at once who would not wait.
func TestInFlightNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newInFlight()
		mustBegin(t, f, "a")
		began := time.Now()
		if _, err := await(t.Context(), f, two, began, "a"); !errors.Is(err, gate.ErrOverloaded) || time.Since(began) > 0 {
			t.Errorf("%v after %v, want a refusal at once", err, time.Since(began))
		}
	})
}
