package bloom

import (
	"math/bits"
	"sync/atomic"
)

// In the blocked layout a hash's first half chooses the block by its high bits,
// and the bits within are numbers of 9 bits: 7 from the second half, 3 from the
// low end of the first, which has no say in the block, and what a rate below
// about 1 in 3,000 wants beyond 10 from both halves, mixed. A start and a stride,
// as in the classic layout, would not do: there are 512*256 of them, so that of
// the 30 IDs in a block one in 4,000 is the absent ID's double, which alone lets
// a quarter as many pass again as a rate of 1 in 1,000 allows.
const (
	positionBits = 9 // blockBits = 1 << positionBits
	positionMask = blockBits - 1
	fromSecond   = 64 / positionBits
	fromFirst    = 3
)

// positions returns the bits that the given round of positions is taken from,
// lowest first, and how many it holds.
func positions(round int, a, b uint64) (from uint64, n int) {
	switch round {
	case 0:
		return b, fromSecond
	case 1:
		return a, fromFirst
	}
	return mix(b+uint64(round)*0x9e3779b97f4a7c15) ^ mix(a), fromSecond
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014), in Stafford's variant 13.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// block returns the block of a hash: the high half of the product, which scales
// it to [0, blocks) without a division (Lemire, "Fast Random Integer Generation
// in an Interval", 2019).
func (f *Filter) block(a uint64) *[blockWords]uint64 {
	i, _ := bits.Mul64(a, f.blocks)
	return (*[blockWords]uint64)(f.words[i*blockWords:])
}

// hasBlocked looks at all k bits rather than stop at the first that is clear: in
// one cache line the rest is cheaper than a branch foretold wrongly, and without
// one the CPU goes on to the next question while the memory answers this one.
func hasBlocked(block *[blockWords]uint64, a, b uint64, k int) bool {
	miss := uint64(0)
	for round := 0; k > 0; round++ {
		from, n := positions(round, a, b)
		for range min(n, k) {
			miss |= ^atomic.LoadUint64(&block[from>>6&(blockWords-1)]) >> (from & 63)
			from >>= positionBits
		}
		k -= n
	}
	return miss&1 == 0
}

// addBlocked sets k bits and reports whether one of them was clear. Words that
// have theirs already are left alone, since a locked instruction takes as long as
// ten others.
func addBlocked(block *[blockWords]uint64, a, b uint64, k int) (changed bool) {
	var mask [blockWords]uint64
	for round := 0; k > 0; round++ {
		from, n := positions(round, a, b)
		for range min(n, k) {
			mask[from>>6&(blockWords-1)] |= 1 << (from & 63)
			from >>= positionBits
		}
		k -= n
	}
	for i, m := range mask {
		if atomic.LoadUint64(&block[i])&m != m {
			atomic.OrUint64(&block[i], m)
			changed = true
		}
	}
	return changed
}
