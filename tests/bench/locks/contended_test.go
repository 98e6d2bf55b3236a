package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

func TestHoldings(t *testing.T) {
	h, got := &holdings{}, benchmark.Sample{}
	for range 2 {
		passed := h.enter()
		h.leave(time.Now().Add(-3 * time.Millisecond))
		select {
		case <-passed:
			t.Fatal("nobody has had the lock since")
		default:
		}
		h.enter()
		<-passed
		h.leave(time.Now().Add(-3 * time.Millisecond))
	}
	if err := h.add(got, 24*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got[granted] != 4 || got[hold] < 3 || got[inUse] < 50 || got[grants] < 166 || got[grants] > 167 {
		t.Errorf("got %v, want 4 holds of 3 ms in 24 ms", got)
	}
	if len(h.gaps) != 3 {
		t.Errorf("%d gaps between 4 holds", len(h.gaps))
	}
}

// anyone grants a lock to whoever asks.
type anyone struct{}

func (anyone) caller() caller                     { return anyone{} }
func (anyone) close()                             {}
func (anyone) lock(context.Context, string) error { return nil }
func (anyone) unlock(context.Context) error       { return nil }

// nothing is a meter that measures nothing.
type nothing struct{}

func (nothing) start(context.Context) error                       { return nil }
func (nothing) stop(context.Context, int, benchmark.Sample) error { return nil }

// TestNoLock shows that a lock which does not exclude is found out.
func TestNoLock(t *testing.T) {
	broken := candidate{"broken", func(string, patience) (instance, error) { return anyone{}, nil }}
	for _, s := range []section{relay(), storm(), tries()} {
		_, err := s.round(t.Context(), turn{broken, "", 100 * time.Millisecond, nothing{}})
		if !errors.Is(err, errTwoInside) {
			t.Errorf("%s: error %v, want errTwoInside", s.name, err)
		}
	}
}

// failing is a candidate whose Redis is away.
type failing struct {
	anyone
	err error
}

func (f failing) caller() caller                     { return f }
func (f failing) lock(context.Context, string) error { return f.err }

func TestFailingLock(t *testing.T) {
	cause := errors.New("no answer")
	broken := candidate{"broken", func(string, patience) (instance, error) { return failing{err: cause}, nil }}
	for _, s := range sections() {
		_, err := s.round(t.Context(), turn{broken, "", 100 * time.Millisecond, nothing{}})
		if !errors.Is(err, cause) {
			t.Errorf("%s: error %v, want its cause", s.name, err)
		}
	}
}
