package fprate

import (
	"math"
	"time"
)

// The least data that a measured rate needs.
const (
	// minIDs is the number of different absent IDs in the lookups.
	minIDs = 100
	// minPassed is the number of them that passed, for an alarm. One deleted order that a
	// client still looks up is no rate. The number also keeps the bound below in the range
	// in which it is accurate.
	minPassed = 10
	// certainty is the number of standard deviations of a one-sided error of one in
	// a thousand.
	certainty = 3.09
)

// sample is the content of a window at one moment.
type sample struct {
	stopped, passed uint64 // different absent IDs
	hasAnswers      bool   // the proxy reports the orders that the backend does not have
}

func (r sample) ids() uint64 { return r.stopped + r.passed }

// rate returns the share of absent IDs that pass, NaN when it is unknown.
func (r sample) rate() float64 {
	if !r.hasAnswers || r.ids() < minIDs {
		return math.NaN()
	}
	return float64(r.passed) / float64(r.ids())
}

// lowerBound returns the lower end of the confidence interval of the rate (E. B. Wilson,
// "Probable inference, the law of succession, and statistical inference", 1927).
func (r sample) lowerBound() float64 {
	n, p := float64(r.ids()), float64(r.passed)/float64(r.ids())
	const z2 = certainty * certainty
	spread := certainty * math.Sqrt(p*(1-p)/n+z2/(4*n*n))
	return (p + z2/(2*n) - spread) / (1 + z2/n)
}

// exceeds reports whether the rate is above a threshold beyond reasonable doubt.
func (r sample) exceeds(threshold float64) bool {
	return r.hasAnswers && r.ids() >= minIDs && r.passed >= minPassed && r.lowerBound() > threshold
}

// alarm decides when a filter passes too many absent IDs, and when growth may reduce
// them. The zero value, but for the threshold, is off.
type alarm struct {
	threshold    float64
	on           bool
	unknownSince time.Time // start of the time with too little data; zero: there is enough

	grewAt     time.Time // last growth that the alarm requested, zero: none
	rateBefore float64   // the rate before that growth
	futile     bool      // that growth did not help
}

// update evaluates a sample and reports whether the alarm went on or off. It goes on
// when the rate certainly exceeds the threshold. It goes off when the rate does not
// exceed the threshold, or after a whole window with too little data.
func (a *alarm) update(r sample, now time.Time) (changed bool) {
	rate := r.rate()
	if math.IsNaN(rate) {
		if a.unknownSince.IsZero() {
			a.unknownSince = now
		}
		if a.on && now.Sub(a.unknownSince) >= windowLength {
			a.on = false
			return true
		}
		return false
	}
	a.unknownSince = time.Time{}
	was := a.on
	if rate <= a.threshold { // a later alarm may request growth again
		a.on, a.futile, a.rateBefore = false, false, math.Inf(1)
	} else if r.exceeds(a.threshold) {
		a.on = true
	}
	return a.on != was
}

// requestGrowth reports whether the filter is to grow now, after update with the same
// sample. It does so at most once in a window, and only if the last growth has at least
// halved the rate.
func (a *alarm) requestGrowth(r sample, now time.Time) bool {
	if !a.on || a.futile || !r.exceeds(a.threshold) {
		return false
	}
	if !a.grewAt.IsZero() {
		if now.Sub(a.grewAt) < windowLength {
			return false
		}
		if r.rate() > a.rateBefore/2 {
			a.futile = true
			return false
		}
	}
	a.grewAt, a.rateBefore = now, r.rate()
	return true
}
