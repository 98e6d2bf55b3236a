package fprate

import (
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/filter/hll"
)

const (
	// windowLength is the time over which a rate is measured. A service with a few hundred
	// absent lookups an hour gets a rate, and a new release shows its effect soon.
	windowLength = time.Hour
	// slots is the number of steps in which old lookups leave the window.
	slots      = 6
	slotLength = windowLength / slots
)

// slidingWindow counts the different absent IDs of recent lookups, and those of them that
// passed. It takes 200 KiB. Its methods are safe for concurrent use, except advance, reset
// and counts, which one goroutine calls.
type slidingWindow struct {
	slots    [slots]struct{ stopped, passed hll.Sketch }
	current  atomic.Int32 // the slot that new IDs go to
	nextSlot time.Time    // start of the next slot

	changed         atomic.Bool // since the last counts
	stopped, passed uint64      // the last counts
}

// addStopped adds the hash of an absent ID that is not in the bits.
func (w *slidingWindow) addStopped(hash uint64) {
	if w.slots[w.current.Load()].stopped.Add(hash) {
		w.changed.Store(true)
	}
}

// addPassed adds the hash of an absent ID that the bits contain.
func (w *slidingWindow) addPassed(hash uint64) {
	if w.slots[w.current.Load()].passed.Add(hash) {
		w.changed.Store(true)
	}
}

// advance removes the lookups that are too old.
func (w *slidingWindow) advance(now time.Time) {
	if now.Sub(w.nextSlot) > windowLength { // no call for a long time
		w.reset(now)
	}
	for !now.Before(w.nextSlot) {
		next := (w.current.Load() + 1) % slots
		w.slots[next].stopped.Reset()
		w.slots[next].passed.Reset()
		w.current.Store(next)
		w.nextSlot = w.nextSlot.Add(slotLength)
		w.changed.Store(true)
	}
}

// reset removes everything.
func (w *slidingWindow) reset(now time.Time) {
	for i := range w.slots {
		w.slots[i].stopped.Reset()
		w.slots[i].passed.Reset()
	}
	w.nextSlot = now.Add(slotLength)
	w.changed.Store(true)
}

// counts returns how many different IDs were stopped and how many passed. An ID of a
// thousand lookups counts once.
func (w *slidingWindow) counts() (stopped, passed uint64) {
	if !w.changed.Swap(false) {
		return w.stopped, w.passed
	}
	var allStopped, allPassed hll.Sketch
	for i := range w.slots {
		allStopped.Merge(&w.slots[i].stopped)
		allPassed.Merge(&w.slots[i].passed)
	}
	w.stopped, w.passed = allStopped.Count(), allPassed.Count()
	return w.stopped, w.passed
}
