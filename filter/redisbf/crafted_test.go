package redisbf

import (
	"testing"

	"github.com/ordergate/ordergate/internal/presence"
)

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
				if a == presence.Maybe {
					crafted = append(crafted, candidates[i])
				}
			}
			if len(crafted) < 50 {
				t.Fatalf("only %d of the IDs pass", len(crafted))
			}
			// The attack works where the secret is known.
			if passed := count(t, known, crafted, presence.Maybe); kind == Bitmap && passed != len(crafted) {
				t.Errorf("%d of %d crafted IDs pass a set of the same secret", passed, len(crafted))
			}
			passed := count(t, ours, crafted, presence.Maybe)
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
