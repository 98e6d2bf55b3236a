package fprate

import (
	"math"
	"testing"
	"time"
)

func TestSampleRate(t *testing.T) {
	for _, tc := range []struct {
		name  string
		r     sample
		rate  float64 // NaN: unknown
		least float64 // worked out apart
	}{
		{"no answers", sample{stopped: 900, passed: 100}, math.NaN(), 0},
		{"too few", sample{stopped: 99, hasAnswers: true}, math.NaN(), 0},
		{"none passed", sample{stopped: 100, hasAnswers: true}, 0, 0},
		{"one in ten", sample{stopped: 900, passed: 100, hasAnswers: true}, 0.1, 0.07436},
		{"one in a thousand", sample{stopped: 99_900, passed: 100, hasAnswers: true}, 0.001, 0.00073516},
		{"all", sample{passed: 100, hasAnswers: true}, 1, 0.91284},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rate := tc.r.rate()
			if math.IsNaN(rate) != math.IsNaN(tc.rate) || !math.IsNaN(rate) && math.Abs(rate-tc.rate) > 1e-9 {
				t.Errorf("rate %g, want %g", rate, tc.rate)
			}
			if math.IsNaN(rate) {
				return
			}
			if got := tc.r.lowerBound(); math.Abs(got-tc.least) > 1e-4*tc.least {
				t.Errorf("at least %g, want %g", got, tc.least)
			}
		})
	}
}

// TestAlarm passes an hour or more in a few samples.
func TestAlarm(t *testing.T) {
	type moment struct {
		after           time.Duration // the one before
		stopped, passed uint64
		on, changed     bool
		grows           bool
	}
	for _, tc := range []struct {
		name    string
		moments []moment
	}{
		{"a low rate is left alone", []moment{{0, 100_000, 100, false, false, false}}},
		{"at the threshold", []moment{{0, 9900, 100, false, false, false}}},
		{"above it, not for certain", []moment{{0, 900, 12, false, false, false}}},
		{"few IDs", []moment{{0, 10, 80, false, false, false}}},
		{"one ID is no rate", []moment{{0, 300, 9, false, false, false}}},
		{"growth helps", []moment{
			{0, 900, 100, true, true, true},
			{time.Second, 910, 100, true, false, false}, // it is growing
			{time.Minute, 0, 0, true, false, false},     // other bits: the rate is unknown
			{time.Minute, 2000, 2, false, true, false},
		}},
		{"growth does not help", []moment{
			{0, 900, 100, true, true, true},
			{59 * time.Minute, 900, 100, true, false, false},
			{time.Minute, 900, 90, true, false, false},
			{2 * time.Hour, 900, 20, true, false, false}, // and it is not tried again
		}},
		{"growing again", []moment{
			{0, 900, 100, true, true, true},
			{time.Hour, 950, 40, true, false, true},
			{2 * time.Hour, 950, 39, true, false, false},
		}},
		{"growing again after a good rate", []moment{
			{0, 900, 100, true, true, true},
			{time.Hour, 900, 100, true, false, false},
			{time.Hour, 9000, 9, false, true, false},
			{time.Hour, 9000, 900, true, true, true},
		}},
		{"no lookups any more", []moment{
			{0, 900, 100, true, true, true},
			{time.Hour, 0, 0, true, false, false},
			{59 * time.Minute, 20, 2, true, false, false},
			{time.Minute, 20, 2, false, true, false},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := alarm{threshold: 0.01}
			now := time.Unix(0, 0)
			for i, m := range tc.moments {
				now = now.Add(m.after)
				r := sample{stopped: m.stopped, passed: m.passed, hasAnswers: true}
				changed := a.update(r, now)
				if grows := a.requestGrowth(r, now); changed != m.changed || a.on != m.on || grows != m.grows {
					t.Errorf("moment %d: on %v, changed %v, grows %v; want %v, %v, %v", i, a.on, changed, grows, m.on, m.changed, m.grows)
				}
			}
		})
	}
}
