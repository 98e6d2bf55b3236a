package redisbf

import "math"

// Size is what a set takes.
type Size struct {
	Bytes  uint64  // of the bits of all shards, without what Redis adds
	Hashes int     // bits that an ID sets
	Rate   float64 // of false positives at capacity; in the kind Redisson, if its bits were independent
}

// Size computes what a set takes, without one. The error says which option is
// impossible, as that of [New] does; the secret and the key may be left out.
func (o Options) Size() (Size, error) {
	o.EnsureDefaults()
	if o.Key == "" {
		o.Key = "size"
	}
	o.Secret[0] |= 1 // any will do
	if err := o.Validate(); err != nil {
		return Size{}, err
	}
	shards, each := uint64(o.Shards), float64(perShard(o.Capacity, o.Shards))
	perID := bitsPerID(o.FalsePositiveRate)
	switch o.Kind {
	case Bloom:
		// RedisBloom fills whole words, and rounds the hashes up.
		room := float64(shardCapacity(o.Capacity, o.Shards) + reserve)
		bits, hashes := math.Ceil(room*perID/64)*64, math.Ceil(perID*math.Ln2)
		return Size{shards * uint64(bits) / 8, int(hashes), bloomRate(bits/each, hashes)}, nil
	case Bitmap:
		words, bits := bitmapLayout(o)
		load := each * float64(words) / float64(bits/wordBits)
		return Size{shards * (bits/8 + trailerBytes), 2 * words, math.Pow(pairSet(load), float64(words))}, nil
	}
	bits := redissonSize(o.Capacity, o.FalsePositiveRate)
	hashes := redissonHashes(o.Capacity, bits)
	return Size{(bits + 7) / 8, hashes, bloomRate(float64(bits)/float64(o.Capacity), float64(hashes))}, nil
}

// bitmapLayout returns how many words an ID has, and how many bits a shard.
func bitmapLayout(o Options) (words int, bits uint64) {
	words, perID := layout(o.FalsePositiveRate)
	return words, uint64(math.Ceil(float64(perShard(o.Capacity, o.Shards))*perID/wordBits)) * wordBits
}

// bloomRate is (1-e^(-k n/m))^k, for m/n bits an ID (Broder and Mitzenmacher,
// "Network Applications of Bloom Filters: A Survey", 2004).
func bloomRate(bitsPerID, hashes float64) float64 {
	return math.Pow(-math.Expm1(-hashes/bitsPerID), hashes)
}
