//go:build !race

// Without the race detector, which makes every question ten times as dear.

package redisbf

import (
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/ordergate/ordergate/internal/presence"
)

// TestRates measures false positives of every variant against the formula. IDs and
// secret are fixed, so the outcome is the same each time. TestRatesAtSize does so
// with more IDs.
func TestRates(t *testing.T) {
	srv := single(t)
	const n, rate, probes = 50_000, 0.01, 100_000
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			opts := v.fill()
			opts.Capacity, opts.FalsePositiveRate = n, rate
			s := loaded(t, srv, opts, n)
			if there := count(t, s, ids("order", n), presence.Maybe); there != n {
				t.Errorf("%d of %d IDs are there", there, n)
			}
			passed := count(t, s, ids("nobody", probes), presence.Maybe)
			info, err := s.Info(t.Context())
			must(t, err)
			measured := float64(passed) / probes
			t.Logf("%d IDs: measured %.5f, estimated %.5f, promised %g; %.3f bytes an ID; counted %d",
				n, measured, info.EstimatedFalsePositiveRate, rate, float64(info.Bytes)/float64(n), info.IDs)
			most := 0.1
			if opts.Kind == Redisson {
				most = 1.1 // see there
			}
			if off := measured/info.EstimatedFalsePositiveRate - 1; off < -0.1 || off > most {
				t.Errorf("measured %.5f, estimated %.5f", measured, info.EstimatedFalsePositiveRate)
			}
			if off := measured/rate - 1; off > most || off < -0.1 && opts.Kind != Bloom { // which has some room to spare
				t.Errorf("measured %.5f, promised %g", measured, rate)
			}
			if off := float64(info.IDs)/float64(n) - 1; off < -0.01 || off > 0.01 {
				t.Errorf("%d IDs are counted as %d", n, info.IDs)
			}
			must(t, s.Drop(t.Context()))
		})
	}
}

// TestRatesAtSize measures false positives at 100,000 IDs, and at ten million with
// SOAK. IDs and secret are fixed, so the outcome is the same each time: what is
// left to chance is 2.5% for the standard deviation of one measurement.
func TestRatesAtSize(t *testing.T) {
	srv := single(t)
	n := 100_000
	if os.Getenv("SOAK") != "" {
		n = 10_000_000
	}
	const rate, probes = 0.01, 200_000
	for _, test := range []struct {
		kind    Kind
		formula func(*testing.T) float64
	}{
		{Bitmap, func(*testing.T) float64 { return rate }},
		// RedisBloom rounds the hashes up, so fewer pass than are allowed.
		{Bloom, func(*testing.T) float64 {
			perID := -math.Log(rate) / math.Ln2 / math.Ln2
			hashes := math.Ceil(perID * math.Ln2)
			return math.Pow(-math.Expm1(-hashes/perID), hashes)
		}},
		{Redisson, func(t *testing.T) float64 { return redissonRate(t, n, rate) }},
	} {
		t.Run(string(test.kind), func(t *testing.T) {
			opts := variant{opts: Options{Kind: test.kind}}.fill()
			opts.Capacity, opts.FalsePositiveRate = uint64(n), rate
			s := opened(t, srv, opts)
			must(t, s.Unmark(t.Context()))
			addMany(t, s, "order", n)
			must(t, s.MarkWhole(t.Context()))
			for from := 0; from < n; from += n / 10 { // not one of each tenth is missing
				list := numbered("order", from, 10_000)
				if there := count(t, s, list, presence.Maybe); there != len(list) {
					t.Errorf("%d of %d IDs are there", there, len(list))
				}
			}
			measured := float64(count(t, s, ids("nobody", probes), presence.Maybe)) / probes
			info, err := s.Info(t.Context())
			must(t, err)
			formula := test.formula(t)
			t.Logf("%d IDs: measured %.5f, by the formula %.5f, promised %g; Redis has %.3f bytes an ID",
				n, measured, formula, rate, float64(info.Bytes)/float64(n))
			if off := measured/formula - 1; math.Abs(off) > 0.1 {
				t.Errorf("measured %.5f, by the formula %.5f", measured, formula)
			}
			must(t, s.Drop(t.Context()))
		})
	}
}

// redissonRate returns what passes by Redisson's own algorithm, whose bits depend
// on each other in a way that has no simple formula: it fills a bitmap here with
// other IDs, and looks for more absent ones.
func redissonRate(t *testing.T, n int, rate float64) float64 {
	size := uint64(float64(n) * -math.Log(rate) / (math.Ln2 * math.Ln2))
	hashes := int(math.Round(float64(size) / float64(n) * math.Ln2))
	set := make([]uint64, size/64+1)
	var at []int64
	of := func(what string, i int) []int64 {
		at = redissonPositions(at[:0], []byte(what+strconv.Itoa(i)), size, hashes)
		return at
	}
	for i := range n {
		for _, bit := range of("another-", i) {
			set[bit/64] |= 1 << (bit % 64)
		}
	}
	const probes = 1_000_000
	passed := 0
	for i := range probes {
		in := true
		for _, bit := range of("absent-", i) {
			in = in && set[bit/64]>>(bit%64)&1 != 0
		}
		if in {
			passed++
		}
	}
	independent := math.Pow(-math.Expm1(-float64(hashes)*float64(n)/float64(size)), float64(hashes))
	got := float64(passed) / probes
	t.Logf("%d hashes, %d bits: %.5f pass, and of independent hashes %.5f", hashes, size, got, independent)
	return got
}
