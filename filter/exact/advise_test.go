package exact

import (
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// heapOf returns the bytes of heap that build leaves behind.
func heapOf(build func() *Set) uint64 {
	inUse := func() uint64 {
		// Twice: what the first finds to be garbage may be freed only by the second.
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := inUse()
	s := build()
	after := inUse()
	runtime.KeepAlive(s)
	return after - before
}

// TestAdvice holds the advice from a sample against the heap of a set of all.
func TestAdvice(t *testing.T) {
	empty := heapOf(New)
	random := rand.New(rand.NewPCG(1, 2))
	for _, tc := range []struct {
		name string
		id   func(i uint64) uint64
		fits bool // rather than a Bloom filter at 1 in 1,000, of 1.94 bytes an ID
	}{
		{"one after the other, with gaps", func(i uint64) uint64 { return 7_000_000_000 + i + i/50 }, true},
		{"every third", func(i uint64) uint64 { return 3 * i }, true},
		{"every tenth or so", func(i uint64) uint64 { return 10*i + random.Uint64N(10) }, true},
		{"a hundred to a container", func(i uint64) uint64 { return i*655 + random.Uint64N(655) }, false},
		{"far apart", func(i uint64) uint64 { return i * 1_000_000 }, false},
		{"at random", func(uint64) uint64 { return random.Uint64() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// So many that the containers that are not full yet do not matter.
			total := 200_000
			if tc.fits {
				total = 500_000
			}
			ids := make([]uint64, total)
			for i := range ids {
				ids[i] = tc.id(uint64(i))
			}
			heap := heapOf(func() *Set {
				s := New()
				for _, n := range ids {
					mustAdd(t, s, n)
				}
				return s
			})
			var sample []string
			for range 10_000 {
				sample = append(sample, strconv.FormatUint(ids[random.IntN(total)], 10))
			}
			got, err := Advise(sample, uint64(total), 0.001)
			if err != nil {
				t.Fatal(err)
			}
			// Growing slices have up to twice the room they need. The shards themselves
			// are no cost of an ID, and neither is half of each that the last are in.
			actual := float64(heap-empty) / float64(total)
			t.Logf("advised %.3f, takes %.3f, bloom %.3f", got.Exact, actual, got.Bloom)
			if got.Exact > actual*1.25 || got.Exact < actual/2 {
				t.Errorf("advised %.3f bytes an ID, it takes %.3f", got.Exact, actual)
			}
			if got.ExactFits() != tc.fits {
				t.Errorf("exact fits: %v, want %v (%+v)", got.ExactFits(), tc.fits, got)
			}
			if math.Abs(got.Bloom-1.943) > 0.01 {
				t.Errorf("a Bloom filter takes %.3f", got.Bloom)
			}
		})
	}
}

func TestAdviceRefused(t *testing.T) {
	if got, err := Advise([]string{"1", "2", "x"}, 1000, 0.001); err != nil || got.NotNumeric != 1 || got.ExactFits() || got.Bloom == 0 {
		t.Errorf("an ID with a letter: %+v, %v", got, err)
	}
	few := strings.Split("1 2 3 4 5 6 7 8 8 8 8", " ")
	if _, err := Advise(few, 1000, 0.001); err == nil || !strings.Contains(err.Error(), "8 distinct IDs") {
		t.Errorf("a small sample: %v", err)
	}
	if _, err := Advise(append(few, "9"), 1000, 2); err == nil || !strings.Contains(err.Error(), "rate 2 is outside") {
		t.Errorf("a rate of 2: %v", err)
	}
}
