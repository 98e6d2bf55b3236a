package bloom

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

var testKey = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

func mustNew(tb testing.TB, capacity uint64, rate float64, key [16]byte) *Filter {
	tb.Helper()
	f, err := New(capacity, rate, key)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		name     string
		capacity uint64
		rate     float64
		want     string
	}{
		{"no capacity", 0, 0.01, "capacity is 0"},
		{"rate of zero", 10, 0, "rate 0 is outside"},
		{"negative rate", 10, -1, "rate -1 is outside"},
		{"rate of one", 10, 1, "rate 1 is outside"},
		{"rate too low to size", 10, 1e-300, "rate 1e-300 is outside"},
		{"not a number", 10, math.NaN(), "rate NaN is outside"},
		{"infinite", 10, math.Inf(1), "rate +Inf is outside"},
		{"more than a tebibyte", 1 << 40, 0.001, "needs more than 1 TiB"},
		{"bits beyond 64", 1 << 62, 0.001, "needs more than 1 TiB"},
		{"largest capacity", math.MaxUint64, 1e-12, "needs more than 1 TiB"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, err := New(tc.capacity, tc.rate, testKey)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("New(%d, %g) = %v, %v; want an error with %q", tc.capacity, tc.rate, f, err, tc.want)
			}
		})
	}
}

func TestNewSizes(t *testing.T) {
	for _, tc := range []struct {
		name         string
		capacity     uint64
		rate         float64
		bits, hashes uint64
	}{
		{"one ID, nearly no filter", 1, 0.99, 64, 1},
		{"one ID", 1, 0.5, 64, 2},
		{"a million at a thousandth", 1e6, 0.001, 14_377_600, 10},
		{"lowest rate", 1000, 1e-12, 57_536, 40},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := mustNew(t, tc.capacity, tc.rate, testKey)
			if f.Bits() != tc.bits || f.Hashes() != tc.hashes || f.SizeBytes() != tc.bits/8 || f.Capacity() != tc.capacity {
				t.Errorf("bits %d, hashes %d, bytes %d, capacity %d; want bits %d, hashes %d",
					f.Bits(), f.Hashes(), f.SizeBytes(), f.Capacity(), tc.bits, tc.hashes)
			}
		})
	}
}

func TestNoFalseNegativeUnderConcurrentAdds(t *testing.T) {
	const adders, each = 8, 25_000
	// A fifth of the room, so that the adders meet in the same words.
	f := mustNew(t, adders*each/5, 0.01, testKey)
	var wg sync.WaitGroup
	for a := range adders {
		wg.Go(func() {
			for i := range each {
				id := strconv.Itoa(a*each + i)
				f.Add(id)
				if !f.MayContain(id) {
					t.Errorf("ID %s is gone right after it was added", id)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range adders * each {
		if !f.MayContain(strconv.Itoa(i)) {
			t.Fatalf("ID %d is gone", i)
		}
	}
}

func TestNoFalseNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, err := New(rapid.Uint64Range(1, 2000).Draw(t, "capacity"), rapid.Float64Range(1e-9, 0.9).Draw(t, "rate"), testKey)
		if err != nil {
			t.Fatal(err)
		}
		ids := rapid.SliceOf(rapid.String()).Draw(t, "ids")
		for _, id := range ids {
			known := f.MayContain(id)
			if changed := f.Add(id); changed == known {
				t.Fatalf("Add(%q) changed %v, but the ID was known %v", id, changed, known)
			}
		}
		for _, id := range ids {
			if !f.MayContain(id) {
				t.Fatalf("ID %q is gone", id)
			}
			if f.Add(id) {
				t.Fatalf("adding %q again changed something", id)
			}
		}
	})
}

func TestFalsePositiveRateAtCapacity(t *testing.T) {
	for _, tc := range []struct {
		rate           float64
		capacity, asks int
	}{
		{0.1, 50_000, 100_000},
		{0.01, 50_000, 400_000},
		{0.001, 50_000, 2_000_000},
	} {
		t.Run(fmt.Sprint(tc.rate), func(t *testing.T) {
			f := mustNew(t, uint64(tc.capacity), tc.rate, testKey)
			for i := range tc.capacity {
				f.Add(strconv.Itoa(i))
			}
			passed := 0
			for i := range tc.asks {
				if f.MayContain("other-" + strconv.Itoa(i)) {
					passed++
				}
			}
			got := float64(passed) / float64(tc.asks)
			// The lower bound catches a filter that is larger than it says.
			if got > tc.rate*1.3 || got < tc.rate*0.5 {
				t.Errorf("measured %g, want about %g", got, tc.rate)
			}
			if est := f.EstimatedFalsePositiveRate(); est > got*1.3 || est < got*0.7 {
				t.Errorf("estimated %g, measured %g", est, got)
			}
			if fill := f.FillRatio(); fill < 0.4 || fill > 0.6 {
				t.Errorf("fill ratio %g at capacity, want about a half", fill)
			}
			if n := f.Count(); n > uint64(tc.capacity) || float64(n) < float64(tc.capacity)*0.97 {
				t.Errorf("count %d of %d distinct IDs", n, tc.capacity)
			}
		})
	}
}

func TestKeyDecidesPositions(t *testing.T) {
	other := testKey
	for i := range other {
		other[i] ^= 1
		a, b := mustNew(t, 1000, 0.001, testKey), mustNew(t, 1000, 0.001, other)
		a.Add("1001")
		b.Add("1001")
		same := 0
		for w := range a.words {
			for set := a.words[w] & b.words[w]; set != 0; set &= set - 1 {
				same++
			}
		}
		// 10 of 14,400 bits each: two shared ones happen once in 50,000 keys.
		if same > 2 {
			t.Errorf("keys that differ in byte %d share %d of %d positions", i, same, a.Hashes())
		}
		other[i] ^= 1
	}
}

func TestNoAllocations(t *testing.T) {
	f := mustNew(t, 1000, 0.001, testKey)
	f.Add("known")
	id := strings.Repeat("9", 40)
	for _, tc := range []struct {
		name string
		do   func()
	}{
		{"hit", func() { f.MayContain("known") }},
		{"miss", func() { f.MayContain(id) }},
		{"empty", func() { f.MayContain("") }},
		{"add", func() { f.Add(id) }},
	} {
		if n := testing.AllocsPerRun(100, tc.do); n != 0 {
			t.Errorf("%s: %g allocations", tc.name, n)
		}
	}
}

func BenchmarkMayContain(b *testing.B) {
	for _, n := range []int{1e6, 1e7} {
		f := mustNew(b, uint64(n), 0.001, testKey)
		for i := range n {
			f.Add("order-" + strconv.Itoa(i))
		}
		// IDs made beforehand: making them would be measured too. A prime count,
		// spread over the whole range.
		const asked = 65_537
		for _, kind := range []string{"order-", "other-"} {
			ids := make([]string, asked)
			for i := range ids {
				ids[i] = kind + strconv.Itoa(i*(n/asked))
			}
			name := map[string]string{"order-": "hit", "other-": "miss"}[kind]
			b.Run(fmt.Sprintf("%s/%.0e", name, float64(n)), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					f.MayContain(ids[i])
					if i++; i == asked {
						i = 0
					}
				}
			})
		}
	}
}
