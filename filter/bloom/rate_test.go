//go:build !race

// Without the race detector, which makes every question ten times as dear.

package bloom

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"testing"
)

// TestRates fills filters to their capacity, and beyond, and asks for absent IDs.
// IDs and key are always the same, and so is the outcome.
func TestRates(t *testing.T) {
	// For 600 false positives and more: 10% is 2.5 standard deviations and more.
	type testCase struct {
		capacity int
		rate     float64
		asks     int
	}
	cases := []testCase{{1e6, 0.01, 300_000}, {1e5, 0.001, 600_000}}
	if os.Getenv("SOAK") != "" {
		for _, capacity := range []int{1e6, 1e7} {
			cases = append(cases, testCase{capacity, 0.1, 300_000}, testCase{capacity, 0.01, 1_000_000},
				testCase{capacity, 0.001, 4_000_000}, testCase{capacity, 0.0001, 20_000_000})
		}
	}
	perLayout(t, func(t *testing.T, layout Layout) {
		for _, tc := range cases {
			t.Run(fmt.Sprintf("%.0e at %g", float64(tc.capacity), tc.rate), func(t *testing.T) {
				f := mustNew(t, params(layout, uint64(tc.capacity), tc.rate))
				next := 0
				fill := func(upTo int) {
					ids := make([]string, 1000)
					for ; next < upTo; next += len(ids) {
						for i := range ids {
							ids[i] = strconv.Itoa(next + i)
						}
						f.AddAll(ids)
					}
				}
				fill(tc.capacity * 3 / 4)
				checkRate(t, f, uint64(next), tc.asks/4)
				fill(tc.capacity)
				checkRate(t, f, uint64(next), tc.asks)
			})
		}
	})
}

func checkRate(t *testing.T, f *Filter, n uint64, asks int) {
	passed := 0
	for i := range asks {
		if f.MayContain("other-" + strconv.Itoa(i)) {
			passed++
		}
	}
	measured := float64(passed) / float64(asks)
	formula := f.Size().RateAt(n)
	// A rate measured has an error of its own, which 10% has no room for where few pass.
	noise := 3 / math.Sqrt(formula*float64(asks))
	t.Logf("%d of %d IDs: measured %.6f, by the formula %.6f", n, f.Capacity(), measured, formula)
	if off := measured/formula - 1; math.Abs(off) > max(0.1, noise) {
		t.Errorf("%d IDs: measured %g, the formula says %g", n, measured, formula)
	}
	got := f.Measure()
	if off := got.FalsePositiveRate/formula - 1; math.Abs(off) > 0.03 {
		t.Errorf("%d IDs: estimated %g from the bits, the formula says %g", n, got.FalsePositiveRate, formula)
	}
	if off := got.IDs/float64(n) - 1; math.Abs(off) > 0.003 {
		t.Errorf("%d IDs: estimated %g from the bits", n, got.IDs)
	}
	if n == f.Capacity() && math.Abs(formula/f.Params().FalsePositiveRate-1) > 0.005 {
		t.Errorf("the formula says %g at capacity, %g is promised", formula, f.Params().FalsePositiveRate)
	}
	if c := f.Count(); c > n || float64(c) < float64(n)*0.96 {
		t.Errorf("count %d of %d distinct IDs", c, n)
	}
}
