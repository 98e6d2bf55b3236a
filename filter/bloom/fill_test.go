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
