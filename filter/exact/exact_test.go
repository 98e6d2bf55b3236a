package exact

import (
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

func mustAdd(tb testing.TB, s *Set, n uint64) {
	tb.Helper()
	if _, err := s.Add(strconv.FormatUint(n, 10)); err != nil {
		tb.Fatal(err)
	}
}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		id string
		n  uint64
		ok bool
	}{
		{"0", 0, true},
		{"7", 7, true},
		{"1000000000000000001", 1000000000000000001, true},
		{"10000000000000000000", 10000000000000000000, true},
		{"18446744073709551615", math.MaxUint64, true},
		{"18446744073709551616", 0, false},
		{"18446744073709551620", 0, false},
		{"27446744073709551615", 0, false},
		{"99999999999999999999", 0, false},
		{"100000000000000000000", 0, false},
		{"", 0, false},
		{"00", 0, false},
		{"01", 0, false},
		{"+1", 0, false},
		{"-1", 0, false},
		{" 1", 0, false},
		{"1\n", 0, false},
		{"1_000", 0, false},
		{"0x1", 0, false},
		{"١", 0, false},
		{"1a", 0, false},
	} {
		if n, ok := Parse(tc.id); n != tc.n || ok != tc.ok {
			t.Errorf("%q: %d, %v; want %d, %v", tc.id, n, ok, tc.n, tc.ok)
		}
	}
}

// FuzzParse compares with the standard library, which takes more.
func FuzzParse(f *testing.F) {
	for _, id := range []string{"0", "01", "18446744073709551615", "18446744073709551616", "+1", "٣"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		n, ok := Parse(id)
		std, err := strconv.ParseUint(id, 10, 64)
		canonical := err == nil && strconv.FormatUint(std, 10) == id
		if ok != canonical || ok && n != std {
			t.Errorf("%q: %d, %v; the standard library says %d, %v", id, n, ok, std, err)
		}
	})
}

// TestIsAMap compares with a map, with numbers that meet in containers.
func TestIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Custom(func(t *rapid.T) uint64 {
			base := rapid.SampledFrom([]uint64{0, 1 << 16, 1 << 24, 1 << 32, 1<<48 + 5, math.MaxUint64 - 70_000}).Draw(t, "base")
			return base + rapid.Uint64Range(0, 70_000).Draw(t, "more")
		})
		s, want := New(), map[uint64]bool{}
		for _, n := range rapid.SliceOf(number).Draw(t, "added") {
			changed, err := s.Add(strconv.FormatUint(n, 10))
			if err != nil || changed == want[n] {
				t.Fatalf("adding %d: %v, %v", n, changed, err)
			}
			want[n] = true
		}
		for _, n := range rapid.SliceOf(number).Draw(t, "asked") {
			if in, ok := s.MayContain(strconv.FormatUint(n, 10)); !ok || in != want[n] {
				t.Fatalf("%d: %v, %v; want %v", n, in, ok, want[n])
			}
		}
		if s.Count() != uint64(len(want)) {
			t.Fatalf("count %d of %d", s.Count(), len(want))
		}
	})
}

func TestNotNumeric(t *testing.T) {
	s := New()
	for _, id := range []string{"", "abc", "01", "18446744073709551616"} {
		if changed, err := s.Add(id); changed || !errors.Is(err, ErrNotNumeric) {
			t.Errorf("adding %q: %v, %v", id, changed, err)
		}
		if in, ok := s.MayContain(id); in || ok {
			t.Errorf("asking for %q: %v, %v", id, in, ok)
		}
	}
	if s.Count() != 0 {
		t.Errorf("count %d", s.Count())
	}
}

func TestNoFalseNegativeUnderConcurrentAdds(t *testing.T) {
	const adders, each = 8, 10_000
	s := New()
	var done [adders]atomic.Int64
	var wg sync.WaitGroup
	// All in the same containers.
	id := func(adder, i int) string { return strconv.Itoa(i*adders + adder) }
	for a := range adders {
		wg.Go(func() {
			for i := range each {
				if changed, err := s.Add(id(a, i)); !changed || err != nil {
					t.Errorf("adding %s: %v, %v", id(a, i), changed, err)
				}
				done[a].Store(int64(i + 1))
			}
		})
		wg.Go(func() {
			of := (a + 1) % adders
			for i := 0; i < each; {
				for now := int(done[of].Load()); i < now; i++ {
					if in, ok := s.MayContain(id(of, i)); !in || !ok {
						t.Errorf("ID %s is gone right after it was added", id(of, i))
						return
					}
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	if s.Count() != adders*each {
		t.Errorf("count %d of %d", s.Count(), adders*each)
	}
}

func TestNoAllocations(t *testing.T) {
	s := New()
	mustAdd(t, s, 1001)
	if n := testing.AllocsPerRun(100, func() { s.MayContain("1001"); s.MayContain("1002"); s.MayContain("x") }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkMayContain(b *testing.B) {
	const n = 10_000_000
	s := New()
	for i := range uint64(n) {
		mustAdd(b, s, 1_000_000_000+i)
	}
	ids := make([]string, 65_536)
	for i := range ids {
		ids[i] = strconv.Itoa(1_000_000_000 + rand.IntN(2*n))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s.MayContain(ids[i%len(ids)])
		i++
	}
}
