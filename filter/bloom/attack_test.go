package bloom

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"

	unkeyed "github.com/bits-and-blooms/bloom/v3"
)

// The constants of Murmur3-128, and the inverses of its multiplications: anybody
// can run it backwards.
const (
	murmurC1 = 0x87c37b91114253d5
	murmurC2 = 0x4cf5ad432745937f
)

// inverse returns y with x*y = 1 modulo 2^64, for an odd x.
func inverse(x uint64) uint64 {
	y := x*3 ^ 2 // 5 bits are right, and each round doubles them
	for range 4 {
		y *= 2 - x*y
	}
	return y
}

// murmurState is Murmur3-128's, between blocks of 16 bytes.
type murmurState struct{ h1, h2 uint64 }

func (s murmurState) mix(k1, k2 uint64) murmurState {
	s.h1 ^= bits.RotateLeft64(k1*murmurC1, 31) * murmurC2
	s.h1 = (bits.RotateLeft64(s.h1, 27)+s.h2)*5 + 0x52dce729
	s.h2 ^= bits.RotateLeft64(k2*murmurC2, 33) * murmurC1
	s.h2 = (bits.RotateLeft64(s.h2, 31)+s.h1)*5 + 0x38495ab5
	return s
}

// block returns the 16 bytes that lead from one state to another.
func (s murmurState) block(to murmurState) (k1, k2 uint64) {
	fifth := inverse(5)
	before2 := bits.RotateLeft64((to.h2-0x38495ab5)*fifth-to.h1, -31)
	before1 := bits.RotateLeft64((to.h1-0x52dce729)*fifth-s.h2, -27)
	k1 = bits.RotateLeft64((before1^s.h1)*inverse(murmurC2), -31) * inverse(murmurC1)
	k2 = bits.RotateLeft64((before2^s.h2)*inverse(murmurC1), -33) * inverse(murmurC2)
	return k1, k2
}

// craft returns another ID with the hash of a known one of 34 bytes: its first
// block is at random, its second leads back to the state that the known one had
// before its last two bytes, which both share. The library hashes the ID once
// more with a byte behind it, from that state too.
func craft(known string) string {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64([]byte(known[i*8:])) }
	goal := murmurState{}.mix(word(0), word(1)).mix(word(2), word(3))
	r1, r2 := rand.Uint64(), rand.Uint64()
	k1, k2 := murmurState{}.mix(r1, r2).block(goal)
	id := make([]byte, 0, 34)
	for _, w := range []uint64{r1, r2, k1, k2} {
		id = binary.LittleEndian.AppendUint64(id, w)
	}
	return string(append(id, known[32:]...))
}

// TestCraftedIDs is the reason for the key: from one order that an attacker knows
// to exist he makes as many others as he likes that pass an unkeyed filter.
func TestCraftedIDs(t *testing.T) {
	const known, crafted = "order-2026-11-21-00000000000001001", 100_000
	theirs := unkeyed.NewWithEstimates(1_000_000, 0.001)
	theirs.AddString(known)
	var ours []*Filter
	for _, layout := range layouts {
		f := mustNew(t, params(layout, 1_000_000, 0.001))
		f.Add(known)
		ours = append(ours, f)
	}
	seen := map[string]bool{known: true}
	for range crafted {
		id := craft(known)
		if seen[id] {
			t.Fatalf("ID %q was crafted before", id)
		}
		seen[id] = true
		if !theirs.TestString(id) {
			t.Fatalf("crafted ID %q does not pass the unkeyed filter: the attack is wrong", id)
		}
		for _, f := range ours {
			if f.MayContain(id) { // with one ID inside, by chance once in 10^30
				t.Fatalf("crafted ID %q passes the %s filter", id, f.Size().Layout)
			}
		}
	}
}
