package hll

// Constants of MurmurHash64A (Austin Appleby, MurmurHash2, public domain), and the
// seed that Redis gives it.
const (
	murmurFactor = 0xc6a4a7935bd1e995
	murmurShift  = 47
	redisSeed    = 0xadc83b19
)

// Redis returns the hash that PFADD counts an ID by. Anybody can make IDs for it
// that have the count go wrong: where that matters, use a hash with a secret.
func Redis(id string) uint64 {
	size := uint64(len(id))
	h := uint64(redisSeed) ^ size*murmurFactor
	for ; len(id) >= 8; id = id[8:] {
		h ^= mixed(littleEndian(id[:8]))
		h *= murmurFactor
	}
	if len(id) > 0 {
		h ^= littleEndian(id)
		h *= murmurFactor
	}
	h ^= h >> murmurShift
	h *= murmurFactor
	return h ^ h>>murmurShift
}

func mixed(k uint64) uint64 {
	k *= murmurFactor
	k ^= k >> murmurShift
	return k * murmurFactor
}

// littleEndian reads up to 8 bytes.
func littleEndian(text string) (n uint64) {
	for i := len(text) - 1; i >= 0; i-- {
		n = n<<8 | uint64(text[i])
	}
	return n
}
