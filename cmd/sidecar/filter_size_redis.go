package main

import (
	"math"

	"github.com/ordergate/ordergate/filter/redisbf"
)

// redisSize is what a filter in Redis takes.
type redisSize struct {
	bytes  uint64 // of all shards
	hashes int    // bits that an ID sets
	rate   float64
}

// sizeInRedis computes what package redisbf, or the server, makes of the options.
// What either allows is up to [redisbf.Options.Validate]. TestRedisSizes holds this
// against sets that are there.
func sizeInRedis(o redisbf.Options) redisSize {
	shards := uint64(o.Shards)
	each := (o.Capacity + shards - 1) / shards // IDs of a shard, on average
	perID := -math.Log(o.FalsePositiveRate) / (math.Ln2 * math.Ln2)
	switch o.Kind {
	case redisbf.Bloom:
		// A full filter refuses IDs, so it has room for what chance brings to a shard, and
		// for marks. RedisBloom rounds the hashes up.
		room := float64(each) + 1024
		if shards > 1 {
			room += math.Ceil(6 * math.Sqrt(float64(each)))
		}
		bits, hashes := math.Ceil(room*perID/64)*64, math.Ceil(perID*math.Ln2)
		return redisSize{shards * uint64(bits) / 8, int(hashes), bloomRate(bits/float64(each), hashes)}
	case redisbf.Bitmap:
		words, perID := pairLayout(o.FalsePositiveRate)
		size := math.Ceil(float64(each) * perID / wordBits) // in words
		const trailer = 256
		load := float64(each) * float64(words) / size
		return redisSize{shards * (uint64(size)*wordBits/8 + trailer), 2 * words, math.Pow(pairSet(load), float64(words))}
	}
	// Redisson, which rounds to the nearest number of hashes. It has no shards.
	bits := math.Floor(float64(o.Capacity) * perID)
	hashes := max(1, math.Round(bits/float64(o.Capacity)*math.Ln2))
	return redisSize{uint64(math.Ceil(bits / 8)), int(hashes), bloomRate(bits/float64(o.Capacity), hashes)}
}

// bloomRate is (1-e^(-k n/m))^k, for m/n bits an ID (Broder and Mitzenmacher,
// "Network Applications of Bloom Filters: A Survey", 2004).
func bloomRate(bitsPerID, hashes float64) float64 {
	return math.Pow(-math.Expm1(-hashes/bitsPerID), hashes)
}

// A bitmap has two bits of an ID in each of a few words.
const (
	wordBits = 64
	mostPair = 20 // words that an ID has at the most
)

// pairSet is the chance that two bits of a word are set that got so many pairs on
// average: one is unset by the chance exp(-2 load/64), both by exp(-load (1-v)),
// where v is that a pair has neither.
func pairSet(load float64) float64 {
	const v = (wordBits - 2) * (wordBits - 3) / float64(wordBits*(wordBits-1))
	return 1 - 2*math.Exp(-load*2/wordBits) + math.Exp(-load*(1-v))
}

// pairLayout returns the number of words by which a rate takes the fewest bits.
func pairLayout(rate float64) (words int, bitsPerID float64) {
	bitsPerID = math.Inf(1)
	for w := 1; w <= mostPair; w++ {
		low, high := 0.0, float64(wordBits*wordBits)
		for range 60 {
			if middle := (low + high) / 2; math.Pow(pairSet(middle), float64(w)) < rate {
				low = middle
			} else {
				high = middle
			}
		}
		if bits := wordBits * float64(w) / low; bits < bitsPerID {
			words, bitsPerID = w, bits
		}
	}
	return words, bitsPerID
}
