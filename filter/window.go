package filter

import (
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/filter/hll"
)

const (
	// measured is how far back a rate is measured: long enough that a service with a
	// few hundred absent lookups an hour gets one, short enough to show what a new
	// release has changed.
	measured = time.Hour
	// steps is in how many steps old lookups are forgotten.
	steps    = 6
	eachStep = measured / steps
)

// window knows how many different absent IDs were asked for lately, and how many of
// them passed. It takes 200 KiB. Its methods are safe for concurrent use, but for
// advance, restart and count, which one goroutine calls.
type window struct {
	parts [steps]struct{ stopped, passed hll.Sketch }
	at    atomic.Int32 // the part that takes what comes
	next  time.Time    // when the next part does

	changed       atomic.Bool // since they were counted
	stops, passes uint64
}

// stop notes an absent ID that the bits know nothing of, by its hash.
func (w *window) stop(hash uint64) {
	if w.parts[w.at.Load()].stopped.Add(hash) {
		w.changed.Store(true)
	}
}

// pass notes one that they take for known.
func (w *window) pass(hash uint64) {
	if w.parts[w.at.Load()].passed.Add(hash) {
		w.changed.Store(true)
	}
}

// advance forgets what is too old.
func (w *window) advance(now time.Time) {
	if now.Sub(w.next) > measured { // nobody called for long
		w.restart(now)
	}
	for !now.Before(w.next) {
		next := (w.at.Load() + 1) % steps
		w.parts[next].stopped.Reset()
		w.parts[next].passed.Reset()
		w.at.Store(next)
		w.next = w.next.Add(eachStep)
		w.changed.Store(true)
	}
}

// restart forgets everything.
func (w *window) restart(now time.Time) {
	for i := range w.parts {
		w.parts[i].stopped.Reset()
		w.parts[i].passed.Reset()
	}
	w.next = now.Add(eachStep)
	w.changed.Store(true)
}

// count returns how many different IDs were stopped and have passed: one that was
// asked for a thousand times counts once.
func (w *window) count() (stopped, passed uint64) {
	if !w.changed.Swap(false) {
		return w.stops, w.passes
	}
	var allStopped, allPassed hll.Sketch
	for i := range w.parts {
		allStopped.Merge(&w.parts[i].stopped)
		allPassed.Merge(&w.parts[i].passed)
	}
	w.stops, w.passes = allStopped.Count(), allPassed.Count()
	return w.stops, w.passes
}
