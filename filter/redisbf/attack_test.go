package redisbf

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/ordergate/ordergate/internal/presence"
)

// murmurPrime is the multiplier of MurmurHash64A, with which RedisBloom hashes.
const murmurPrime = 0xc6a4a7935bd1e995

// murmurInverse is its inverse modulo 2^64.
func murmurInverse() uint64 {
	x := uint64(murmurPrime)
	y := x*3 ^ 2 // 5 bits are right, and each round doubles them
	for range 4 {
		y *= 2 - x*y
	}
	return y
}

// flip returns the block that MurmurHash64A mixes into its state with the highest
// bit different. The state is multiplied by an odd number after it, which leaves a
// difference in that bit where it is: a second block with the same flip takes it
// away. That goes for any seed, so that it does not help to hash twice with two.
func flip(block uint64) uint64 {
	inverse := murmurInverse()
	mixed := block * murmurPrime
	mixed ^= mixed >> 47
	mixed = mixed*murmurPrime ^ 1<<63
	mixed *= inverse
	mixed ^= mixed >> 47
	return mixed * inverse
}

// craftForMurmur returns another ID with the hashes of a known one: it flips an even
// number of blocks, a pair or more.
func craftForMurmur(known string) string {
	id := []byte(known)
	blocks := len(id) / 8
	for string(id) == known {
		state := false // whether the highest bit of the state is wrong
		for i := range blocks {
			if turn := rand.IntN(2) == 0; turn && i < blocks-1 || state && i == blocks-1 {
				at := id[8*i : 8*i+8]
				binary.LittleEndian.PutUint64(at, flip(binary.LittleEndian.Uint64(at)))
				state = !state
			}
		}
	}
	return string(id)
}

// TestCraftedForRedisBloom has an attacker who knows one order, and no secret: what
// he makes of it all passes a filter of RedisBloom that has the IDs as they are,
// and none passes ours.
func TestCraftedForRedisBloom(t *testing.T) {
	srv := single(t)
	const known = "order-2026-11-21-shop-0000000000000001001-customer-0000000000000042-invoice-00000000000000000007-xx" // 12 blocks
	seen := map[string]bool{known: true}
	var crafted []string
	for len(crafted) < 1000 {
		if id := craftForMurmur(known); !seen[id] {
			seen[id] = true
			crafted = append(crafted, id)
		}
	}
	ctx := t.Context()
	must(t, srv.client.BFReserve(ctx, "unkeyed", 0.000_001, 1000).Err())
	must(t, srv.client.BFAdd(ctx, "unkeyed", known).Err())
	items := make([]any, len(crafted))
	for i, id := range crafted {
		items[i] = id
	}
	passed, err := srv.client.BFMExists(ctx, "unkeyed", items...).Result()
	must(t, err)
	if !all(passed) {
		t.Fatal("crafted IDs do not pass the unkeyed filter: the attack is wrong")
	}
	for _, kind := range []Kind{Bloom, Bitmap} {
		opts := variant{opts: Options{Kind: kind}}.fill()
		opts.Capacity, opts.FalsePositiveRate = 1000, 0.000_001
		s := opened(t, srv, opts)
		must(t, s.Unmark(ctx))
		must(t, s.Add(ctx, []string{known}))
		must(t, s.MarkWhole(ctx))
		if n := count(t, s, []string{known}, presence.Maybe); n != 1 {
			t.Errorf("%s: the known ID is not there", kind)
		}
		if n := count(t, s, crafted, presence.Absent); n != len(crafted) { // never by chance: 20 bits of 28,755 are set
			t.Errorf("%s: %d of %d crafted IDs are absent", kind, n, len(crafted))
		}
	}
}
