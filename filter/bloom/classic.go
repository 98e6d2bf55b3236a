package bloom

import (
	"math/bits"
	"sync/atomic"
)

// In the classic layout the positions are g(i) = a + i*b, which behaves like k
// independent hashes: Kirsch and Mitzenmacher, "Less Hashing, Same Performance:
// Building a Better Bloom Filter" (ESA 2006). The stride b is odd, since a stride
// of zero would put all positions in one place.

// position scales a hash to [0, bits), as block does. Its bias is bits/2^64,
// below one in two million at the largest size.
func (f *Filter) position(h uint64) (word, bit uint64) {
	p, _ := bits.Mul64(h, f.size.Bits)
	return p >> 6, 1 << (p & 63)
}

func (f *Filter) hasClassic(a, b uint64) bool {
	for range f.hashes {
		word, bit := f.position(a)
		if atomic.LoadUint64(&f.words[word])&bit == 0 {
			return false
		}
		a += b
	}
	return true
}

// addClassic sets the bits and reports whether one of them was clear.
func (f *Filter) addClassic(a, b uint64) (changed bool) {
	// No load passes a locked instruction. Without this round the memory would be
	// waited for k times rather than about once.
	f.touchClassic(a, b)
	for range f.hashes {
		word, bit := f.position(a)
		if atomic.LoadUint64(&f.words[word])&bit == 0 {
			atomic.OrUint64(&f.words[word], bit)
			changed = true
		}
		a += b
	}
	return changed
}

// touchClassic brings the words of an ID into the cache.
func (f *Filter) touchClassic(a, b uint64) {
	for range f.hashes {
		word, _ := f.position(a)
		atomic.LoadUint64(&f.words[word])
		a += b
	}
}
