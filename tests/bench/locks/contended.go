package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// holdings is the record of who held a lock that all want. It is safe for
// concurrent use.
type holdings struct {
	mu       sync.Mutex
	inside   int
	broken   bool // two were inside
	grants   int
	held     time.Duration // in all
	released time.Time     // when the last holder began to give it up
	gaps     []time.Duration
	passed   chan struct{} // closed at the next grant
}

// enter records a grant. The channel is closed when the next caller is granted
// the lock.
func (h *holdings) enter() <-chan struct{} {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inside++
	h.broken = h.broken || h.inside > 1
	h.grants++
	if !h.released.IsZero() {
		h.gaps = append(h.gaps, now.Sub(h.released))
	}
	if h.passed != nil {
		close(h.passed)
	}
	h.passed = make(chan struct{})
	return h.passed
}

// leave records that a holder is about to give the lock up.
func (h *holdings) leave(since time.Time) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inside--
	h.held += now.Sub(since)
	h.released = now
}

// errTwoInside says that a candidate granted a lock twice at a time.
var errTwoInside = errors.New("two callers held one lock at the same time")

// add puts what is on record into a sample, of a round that took so long.
func (h *holdings) add(s benchmark.Sample, took time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken {
		return errTwoInside
	}
	s[granted] = float64(h.grants)
	s[grants] = float64(h.grants) / took.Seconds()
	s[inUse] = 100 * float64(h.held) / float64(took)
	if h.grants > 0 {
		s[hold] = millis(h.held) / float64(h.grants)
	}
	slices.Sort(h.gaps)
	s[gap] = millis(benchmark.Percentile(h.gaps, 50))
	return nil
}

// gaveUp reports whether an error of lock only means that the caller waited in
// vain. Some clients tell of a deadline a moment before the context does.
func gaveUp(ctx context.Context, err error) bool {
	return errors.Is(err, errBusy) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
}
