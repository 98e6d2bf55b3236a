package redisbf

import (
	"fmt"
	"math"
	"math/bits"
	"testing"
)

// TestLayout checks the memory against the formula of an ordinary Bloom filter, and
// the rate by IDs.
func TestLayout(t *testing.T) {
	for _, test := range []struct {
		rate  float64
		n     int
		words int
	}{{0.05, 50_000, 2}, {0.01, 50_000, 3}, {0.001, 50_000, 5}, {0.0001, 50_000, 7}} {
		t.Run(fmt.Sprint(test.rate), func(t *testing.T) {
			words, perID := layout(test.rate)
			more := perID/bitsPerID(test.rate) - 1
			t.Logf("%d words, %.3f bits an ID: %.2f%% more", words, perID, 100*more)
			if words != test.words || more < 0 || more > 0.02 {
				t.Errorf("%d words, %.2f%% more memory; want %d and at most 2%%", words, 100*more, test.words)
			}
			h := newHasher(Options{Secret: secret, Shards: 1})
			size := uint64(math.Ceil(float64(test.n) * perID / wordBits))
			set := make([]uint64, size)
			for i := range test.n {
				for _, s := range h.spots(nil, fmt.Sprint("order-", i), size, words) {
					set[s.at/wordBits] |= uint64(s.bits)
				}
			}
			n := 0
			for _, word := range set {
				n += bits.OnesCount64(word)
			}
			load := loadOf(float64(n) / float64(size*wordBits))
			if got := load * float64(size) / float64(words); math.Abs(got/float64(test.n)-1) > 0.01 {
				t.Errorf("%d IDs are counted as %.0f", test.n, got)
			}
			passed, probes := 0, int(min(2000/test.rate, 5e5))
			var spots []spot
			for i := range probes {
				in := true
				spots = h.spots(spots[:0], fmt.Sprint("nobody-", i), size, words)
				for _, s := range spots {
					in = in && set[s.at/wordBits]&uint64(s.bits) == uint64(s.bits)
				}
				if in {
					passed++
				}
			}
			// The IDs are the same each time, and so is the outcome.
			most := max(0.1, 3/math.Sqrt(test.rate*float64(probes)))
			if got := float64(passed) / float64(probes); math.Abs(got/test.rate-1) > most {
				t.Errorf("the rate is %.6f, want %g", got, test.rate)
			} else {
				t.Logf("the rate is %.6f", got)
			}
		})
	}
}

func TestPair(t *testing.T) {
	var seen [wordBits][wordBits]int
	for i := range uint64(400_000) {
		first, second := pair(mix(i))
		seen[first][second]++
	}
	for first := range wordBits {
		for second := range wordBits {
			// 99 on average, give or take six times the root.
			if n := seen[first][second]; first == second && n > 0 || first != second && (n < 39 || n > 159) {
				t.Errorf("%d and %d were chosen %d times", first, second, n)
			}
		}
	}
	s := spot{at: 640, bits: math.MinInt64 | 1}
	if first, second := s.positions(); first != 640 || second != 703 {
		t.Errorf("positions are %d and %d, want 640 and 703", first, second)
	}
}
