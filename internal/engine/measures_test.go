package engine

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/fprate"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/probes"
)

// newMeasured is a gate's filter with its measures, which nobody runs.
func newMeasured(tb testing.TB) gateFilter {
	tb.Helper()
	f, err := filter.New("orders", filter.Options{Capacity: 1000})
	if err == nil {
		err = f.Load(tb.Context())
	}
	if err != nil {
		tb.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // asked by nobody
	tb.Cleanup(func() { _ = client.Close() })
	return gateFilter{Filter: f, measures: &measures{
		meter:  fprate.New(f, fprate.Options{}),
		probes: probes.New(client, "orders", probes.Options{}),
	}, verify: &verifier{oneIn: 10}}
}

// TestMeasuringDoesNotAllocate is on the way of each refused lookup.
func TestMeasuringDoesNotAllocate(t *testing.T) {
	f := newMeasured(t)
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	i := 0
	if n := testing.AllocsPerRun(len(ids)-1, func() {
		if f.MayContain(ids[i]) != presence.Absent {
			t.Error("not absent")
		}
		i++
	}); n != 0 {
		t.Errorf("%g allocations", n)
	}
	if n := f.measures.probes.Today(); n < 980 || n > 1020 {
		t.Errorf("counted %d", n)
	}
}

// TestAnswers has each answer of a filter come to the gate, and the absent ones be counted.
func TestAnswers(t *testing.T) {
	f := newMeasured(t)
	for _, a := range []presence.Answer{presence.Unknown, presence.Maybe, presence.Absent, presence.NotInMemory} {
		before := f.measures.probes.Today()
		if got := f.answer(a.String(), a); got != a {
			t.Errorf("%v is %v", a, got)
		}
		if counted := f.measures.probes.Today() > before; counted != (a == presence.Absent) {
			t.Errorf("%v is counted as absent: %t", a, counted)
		}
	}
	if got := f.Query(t.Context(), "7"); got != presence.Absent {
		t.Errorf("asked: %d", got)
	}
}

// BenchmarkAbsent is what an absent ID costs the filter, without a window, and with
// its measures.
func BenchmarkAbsent(b *testing.B) {
	ids := make([]string, 1<<16)
	for i := range ids {
		ids[i] = fmt.Sprintf("%019d", i)
	}
	b.Run("bare", func(b *testing.B) {
		f := newMeasured(b)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f.Filter.MayContain(ids[i&(1<<16-1)])
		}
	})
	b.Run("measured", func(b *testing.B) {
		f := newMeasured(b)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f.MayContain(ids[i&(1<<16-1)])
		}
	})
}
