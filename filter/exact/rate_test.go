//go:build !race

// Without the race detector, which makes every question ten times as dear.

package exact

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// TestNothingAbsentPasses is the false positive rate of an exact set, measured at a
// million IDs, and at ten million with SOAK: every absent number between those that
// are there, and a million anywhere.
func TestNothingAbsentPasses(t *testing.T) {
	n := uint64(1_000_000)
	if os.Getenv("SOAK") != "" {
		n = 10_000_000
	}
	for name, apart := range map[string]uint64{"close together": 3, "far apart": 1_000_003} {
		t.Run(name, func(t *testing.T) {
			s := New()
			for i := range n {
				mustAdd(t, s, i*apart)
			}
			ask := func(number uint64) {
				want := number%apart == 0 && number/apart < n
				if in, ok := s.MayContain(strconv.FormatUint(number, 10)); in != want || !ok {
					t.Fatalf("%d: %v, %v; want %v", number, in, ok, want)
				}
			}
			for i := range n {
				ask(i * apart)
				ask(i*apart + 1)
				ask(i*apart + apart - 1)
			}
			random := rand.New(rand.NewPCG(1, 2))
			for range 500_000 {
				ask(random.Uint64N(2 * n * apart))
				ask(random.Uint64())
			}
			if s.Count() != n {
				t.Errorf("%d IDs are counted as %d", n, s.Count())
			}
		})
	}
}
