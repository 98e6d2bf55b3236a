package filter

import (
	"math"
	"time"
)

// What a measured rate has to rest on.
const (
	// leastIDs is how many different absent IDs have to have been asked for.
	leastIDs = 100
	// leastPassed is how many of them have to have passed, for an alarm: one ID that
	// is in nobody's database any more, and that a client asks for all the same, is
	// no rate. It also keeps the bound below in the range in which it is good.
	leastPassed = 10
	// certainty is the number of standard deviations of a one-sided error of one in
	// a thousand.
	certainty = 3.09
)

// reading is what a window shows.
type reading struct {
	stopped, passed uint64 // different absent IDs
	heard           bool   // somebody tells which orders the backend does not have
}

func (r reading) ids() uint64 { return r.stopped + r.passed }

// rate returns the share of absent IDs that pass, NaN when it cannot be told.
func (r reading) rate() float64 {
	if !r.heard || r.ids() < leastIDs {
		return math.NaN()
	}
	return float64(r.passed) / float64(r.ids())
}

// least returns the lower end of the interval in which the rate is, that of E. B.
// Wilson, "Probable inference, the law of succession, and statistical inference"
// (1927).
func (r reading) least() float64 {
	n, p := float64(r.ids()), float64(r.passed)/float64(r.ids())
	const z2 = certainty * certainty
	spread := certainty * math.Sqrt(p*(1-p)/n+z2/(4*n*n))
	return (p + z2/(2*n) - spread) / (1 + z2/n)
}

// exceeds reports whether the rate is above a threshold beyond reasonable doubt.
func (r reading) exceeds(threshold float64) bool {
	return r.heard && r.ids() >= leastIDs && r.passed >= leastPassed && r.least() > threshold
}

// alarm decides when a filter lets too many absent IDs pass, and when growing may
// mend that. The zero value, but for the threshold, is at rest.
type alarm struct {
	threshold float64
	on        bool
	quiet     time.Time // since when too little is known; zero: it is enough

	grew   time.Time // when it last had the filter grow, zero: never
	before float64   // the rate that it had then
	futile bool      // and that was of no use
}

// judge looks at a reading and reports whether the alarm went on or off. It goes on
// when the rate exceeds the threshold for certain, and off when it does not exceed
// it at all, or when nothing has been known for a whole window.
func (a *alarm) judge(r reading, now time.Time) (changed bool) {
	rate := r.rate()
	if math.IsNaN(rate) {
		if a.quiet.IsZero() {
			a.quiet = now
		}
		if a.on && now.Sub(a.quiet) >= measured {
			a.on = false
			return true
		}
		return false
	}
	a.quiet = time.Time{}
	was := a.on
	if rate <= a.threshold { // what comes after that is another matter
		a.on, a.futile, a.before = false, false, math.Inf(1)
	} else if r.exceeds(a.threshold) {
		a.on = true
	}
	return a.on != was
}

// grow reports whether the filter is to grow now, because of a reading that was
// judged. It is once in a window at most, and only if the last time has at least
// halved the rate.
func (a *alarm) grow(r reading, now time.Time) bool {
	if !a.on || a.futile || !r.exceeds(a.threshold) {
		return false
	}
	if !a.grew.IsZero() {
		if now.Sub(a.grew) < measured {
			return false
		}
		if r.rate() > a.before/2 {
			a.futile = true
			return false
		}
	}
	a.grew, a.before = now, r.rate()
	return true
}
