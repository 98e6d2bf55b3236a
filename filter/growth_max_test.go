package filter

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ordergate/ordergate/internal/presence"
)

// TestGrowthEndsAtMax grows to the most that is allowed, by an operator and by itself, and
// no further.
func TestGrowthEndsAtMax(t *testing.T) {
	for name, growth := range map[string]Growth{
		"layers":  {AtFill: 0.8, By: 2, Max: 3000},
		"rebuild": {AtFill: 0.8, By: 2, Max: 3000, Rescan: again(900)},
	} {
		t.Run(name, func(t *testing.T) {
			f := mustNew(t, Options{Capacity: 1000, Growth: &growth})
			mustLoad(t, f, numbers(900))
			for _, want := range []uint64{2000, 3000} {
				if err := f.Expand(t.Context()); err != nil || f.Capacity() != want {
					t.Fatalf("capacity %d, want %d: %v", f.Capacity(), want, err)
				}
			}
			if f.AtMax() {
				t.Error("it is not full, and says that it is")
			}
			for range 2 {
				if err := f.Expand(t.Context()); !errors.Is(err, ErrAtMax) || err.Error() != "filter orders: the filter has the greatest capacity that expand.max allows: 3000 IDs" {
					t.Errorf("expanding past it: %v", err)
				}
			}
			if e := f.Expansion(); e.Generation != 3 || e.Running || e.To != 3000 || e.Err != "" {
				t.Errorf("%+v", e)
			}
			for i := range 10_000 {
				f.Add(strconv.Itoa(i))
			}
			if !f.AtMax() || f.Capacity() != 3000 {
				t.Errorf("full: %v, capacity %d", f.AtMax(), f.Capacity())
			}
			for i := range 10_000 {
				mustBe(t, f, strconv.Itoa(i), presence.Maybe)
			}
		})
	}
}

// TestGrowthByFillEndsAtMax has the filter in use, with what it does in the background.
func TestGrowthByFillEndsAtMax(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mustNew(t, Options{Capacity: 1000, Growth: &Growth{AtFill: 0.8, By: 1.5, Max: 2500, Rescan: again(10_000)}})
		mustLoad(t, f, numbers(10))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = f.Run(ctx) }()
		for i := range 10_000 {
			f.Add(strconv.Itoa(i))
			if i%500 == 0 {
				time.Sleep(time.Minute)
			}
		}
		time.Sleep(time.Hour)
		if !f.AtMax() || f.Capacity() > 2500 {
			t.Errorf("full: %v, capacity %d", f.AtMax(), f.Capacity())
		}
		stop()
		<-done
	})
}

// TestReserveEndsAtMax begins with what others have grown to, as far as that is allowed.
func TestReserveEndsAtMax(t *testing.T) {
	f := mustNew(t, Options{Capacity: 1000, Growth: &Growth{AtFill: 0.8, By: 2, Max: 3000}})
	if err := f.Reserve(50_000); err != nil || f.Capacity() != 3000 {
		t.Errorf("capacity %d: %v", f.Capacity(), err)
	}
}

// TestSegmentsEndAtMax has one day take the room of all days. It may grow again once days
// with their room are gone.
func TestSegmentsEndAtMax(t *testing.T) {
	c := &calendar{}
	c.set(noon)
	f := mustNew(t, Options{
		Capacity: 3000, Segments: &Segments{Keep: 3, Day: dateOf, Older: presence.Unknown}, Now: c.now,
		Growth: &Growth{AtFill: 0.8, By: 2, Max: 12_000},
	})
	mustLoad(t, f)
	fill := func() {
		for i := range 20_000 {
			f.Add(c.id(0) + strconv.Itoa(i))
		}
	}
	if fill(); !f.AtMax() || f.Capacity() != 12_000 {
		t.Errorf("full: %v, capacity %d", f.AtMax(), f.Capacity())
	}
	if c.next(f, 10); f.AtMax() {
		t.Errorf("full with a capacity of %d", f.Capacity())
	}
	if fill(); !f.AtMax() || f.Capacity() != 12_000 {
		t.Errorf("full again: %v, capacity %d", f.AtMax(), f.Capacity())
	}
}
