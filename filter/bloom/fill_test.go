package bloom

import (
	"math"
	"strconv"
	"testing"
)

func addRange(f *Filter, from, to int) {
	for i := from; i < to; i++ {
		f.Add(strconv.Itoa(i))
	}
}

func TestFillOfTheEmptyAndTheFull(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		f := mustNew(t, params(layout, 100, 0.01))
		if got := f.Measure(); got != (Fill{}) {
			t.Errorf("empty: %+v", got)
		}
		if got := f.Size().RateAt(0); got != 0 {
			t.Errorf("the formula lets %g pass an empty filter", got)
		}
		for i := range f.words {
			f.words[i] = math.MaxUint64
		}
		if got, want := f.Measure(), (Fill{1, 1, math.Inf(1)}); got != want {
			t.Errorf("full: %+v", got)
		}
		if got := f.Size().RateAt(math.MaxUint64); math.Abs(got-1) > 1e-9 {
			t.Errorf("the formula lets %g pass a filter of every ID", got)
		}
	})
}

// TestSample allows six standard deviations, of which Sample promises four.
func TestSample(t *testing.T) {
	perLayout(t, func(t *testing.T, layout Layout) {
		f := mustNew(t, params(layout, 2_000_000, 0.001)) // 60,000 blocks
		for _, upTo := range []int{1_000_000, 2_000_000} {
			rate := 0.06
			if upTo < 2_000_000 { // there are more IDs in some blocks than in others
				rate = 0.12
			}
			addRange(f, upTo-1_000_000, upTo)
			exact := f.Measure()
			for range 5 {
				got := f.Sample()
				if math.Abs(got.Ratio-exact.Ratio) > 0.003 ||
					math.Abs(got.FalsePositiveRate/exact.FalsePositiveRate-1) > rate ||
					math.Abs(got.IDs/exact.IDs-1) > 0.01 {
					t.Errorf("%d IDs: sampled %+v of %+v", upTo, got, exact)
				}
				if got == exact {
					t.Errorf("%d IDs: the sample was not one", upTo)
				}
			}
		}
		small := mustNew(t, params(layout, 1000, 0.001))
		addRange(small, 0, 1000)
		if small.Sample() != small.Measure() {
			t.Error("a small filter was not measured")
		}
	})
}
