package redisbf

import "testing"

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
			if there := count(t, s, ids("order", n), Maybe); there != n {
				t.Errorf("%d of %d IDs are there", there, n)
			}
			passed := count(t, s, ids("nobody", probes), Maybe)
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

// TestCraftedIDs has somebody who knows all IDs and every parameter but the secret
// build the same set, and look for foreign IDs that pass it.
func TestCraftedIDs(t *testing.T) {
	srv := single(t)
	for _, kind := range []Kind{Bitmap, Bloom, Redisson} {
		t.Run(string(kind), func(t *testing.T) {
			const n = 3000
			load := func(secret byte) *Set {
				opts := variant{opts: Options{Kind: kind}}.fill()
				opts.Capacity, opts.FalsePositiveRate = n, 0.05
				opts.Secret = [16]byte{secret}
				return loaded(t, srv, opts, n)
			}
			attacker, known, ours := load(1), load(1), load(2)
			var crafted []string
			candidates := ids("crafted", 10_000)
			for i, a := range has(t, attacker, candidates) {
				if a == Maybe {
					crafted = append(crafted, candidates[i])
				}
			}
			if len(crafted) < 50 {
				t.Fatalf("only %d of the IDs pass", len(crafted))
			}
			// The attack works where the secret is known.
			if passed := count(t, known, crafted, Maybe); kind == Bitmap && passed != len(crafted) {
				t.Errorf("%d of %d crafted IDs pass a set of the same secret", passed, len(crafted))
			}
			passed := count(t, ours, crafted, Maybe)
			t.Logf("%d of %d crafted IDs pass", passed, len(crafted))
			switch {
			case kind == Redisson && passed < len(crafted)*9/10: // but for the bits of the marks
				t.Error("the hash of Redisson is not keyed, and yet some do not pass")
			case kind != Redisson && passed > len(crafted)/8:
				t.Errorf("%d of %d crafted IDs pass", passed, len(crafted))
			}
		})
	}
}
