// Package bloom is a set of IDs in memory that may say "perhaps" of an ID it
// never saw, and never says "no" of one it did.
//
// Start with [New]. A [Filter] is keyed, so that nobody who does not know the
// key can craft IDs that pass it, and free of locks, so that any number of
// goroutines may add and look at once. What a "no" is worth is decided in
// package filter; this one does no I/O and knows no clock.
package bloom

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"unsafe"

	estimate "github.com/bits-and-blooms/bloom/v3"
	"github.com/dchest/siphash"
)

// Limits of [New].
const (
	// maxBits is a tebibyte of memory. Far below it the sums of the size estimate
	// are exact; far above it they wrap around without a word.
	maxBits = 1 << 43
	// minRate asks for 40 hashes and 58 bits an ID. Lower rates would cost more
	// than a plain set of 64-bit hashes.
	minRate = 1e-12
)

// Filter is a Bloom filter. All methods are safe for concurrent use and never
// block. An Add that has returned is seen by every MayContain that starts later.
type Filter struct {
	words    []uint64 // touched by sync/atomic only
	bits     uint64   // m, 64 times len(words)
	hashes   uint64   // k
	key0     uint64
	key1     uint64
	capacity uint64
	added    atomic.Uint64
}

// New returns an empty filter that answers with at most the given rate of false
// positives (1e-12 or more, below 1) until it holds capacity IDs. The key is a
// secret; whoever knows it can craft IDs that pass. It allocates all of its
// memory, see [Filter.SizeBytes]. The error says which argument is out of range.
func New(capacity uint64, falsePositiveRate float64, key [16]byte) (*Filter, error) {
	// Written so that NaN is refused as well.
	if !(falsePositiveRate >= minRate && falsePositiveRate < 1) {
		return nil, fmt.Errorf("sizing a filter: false positive rate %g is outside [%g, 1)", falsePositiveRate, minRate)
	}
	if capacity == 0 {
		return nil, fmt.Errorf("sizing a filter: capacity is 0, must be at least 1")
	}
	// An ID takes at least log2(e)*log2(1/p) bits. Checked before the estimate,
	// whose conversion of a float too large for a uint is not defined.
	if float64(capacity)*-math.Log2(falsePositiveRate)*math.Log2E > maxBits {
		return nil, fmt.Errorf("sizing a filter: capacity %d at a false positive rate of %g needs more than 1 TiB; lower the capacity or raise the rate", capacity, falsePositiveRate)
	}
	m, k := estimate.EstimateParameters(uint(capacity), falsePositiveRate)
	words := (uint64(m) + 63) / 64
	return &Filter{
		words:    make([]uint64, words),
		bits:     words * 64,
		hashes:   uint64(max(k, 1)),
		key0:     binary.LittleEndian.Uint64(key[:8]),
		key1:     binary.LittleEndian.Uint64(key[8:]),
		capacity: capacity,
	}, nil
}

// Add puts an ID into the set. It reports whether a bit changed: false means
// that the set already answered true for the ID.
func (f *Filter) Add(id string) (changed bool) {
	a, b := f.hash(id)
	for range f.hashes {
		word, bit := f.position(a)
		if atomic.OrUint64(&f.words[word], bit)&bit == 0 {
			changed = true
		}
		a += b
	}
	if changed {
		f.added.Add(1)
	}
	return changed
}

// MayContain reports whether the ID may have been added. False is certain.
func (f *Filter) MayContain(id string) bool {
	a, b := f.hash(id)
	for range f.hashes {
		word, bit := f.position(a)
		if atomic.LoadUint64(&f.words[word])&bit == 0 {
			return false
		}
		a += b
	}
	return true
}

// hash returns the start and the stride of the ID's positions: g(i) = a + i*b
// behaves like k independent hashes, by Kirsch and Mitzenmacher, "Less Hashing,
// Same Performance: Building a Better Bloom Filter" (ESA 2006). The stride is
// odd, since a stride of zero would put all positions in one place.
func (f *Filter) hash(id string) (a, b uint64) {
	// A conversion to []byte would copy, because the compiler cannot know that the
	// assembly behind Hash128 only reads. It does only read, and keeps nothing.
	a, b = siphash.Hash128(f.key0, f.key1, unsafe.Slice(unsafe.StringData(id), len(id)))
	return a, b | 1
}

// position scales a hash to [0, bits): the high half of the product, without a
// division. Its bias is bits/2^64, below one in two million at the largest size
// (Lemire, "Fast Random Integer Generation in an Interval", 2019).
func (f *Filter) position(h uint64) (word, bit uint64) {
	p, _ := bits.Mul64(h, f.bits)
	return p >> 6, 1 << (p & 63)
}

// Bits returns the number of bits, m.
func (f *Filter) Bits() uint64 { return f.bits }

// Hashes returns the number of bits that an ID sets, k.
func (f *Filter) Hashes() uint64 { return f.hashes }

// Capacity returns the number of IDs that the filter was made for.
func (f *Filter) Capacity() uint64 { return f.capacity }

// SizeBytes returns the memory that the bits take.
func (f *Filter) SizeBytes() uint64 { return f.bits / 8 }

// Count returns how many times Add changed something: the number of IDs, less
// those that the set took for known. Goroutines that add one ID at the same
// moment may each be counted.
func (f *Filter) Count() uint64 { return f.added.Load() }

// FillRatio returns the share of bits that are set, 0 to 1; a filter at its
// capacity is about half full. It reads all of the memory (16 ms for 360 MB): call it
// for a metric, not for a request.
func (f *Filter) FillRatio() float64 {
	set := 0
	for i := range f.words {
		set += bits.OnesCount64(atomic.LoadUint64(&f.words[i]))
	}
	return float64(set) / float64(f.bits)
}

// EstimatedFalsePositiveRate returns the chance that an ID which was never added
// passes now: that all of its bits are set by others, FillRatio to the power of
// Hashes. It costs as much as FillRatio.
func (f *Filter) EstimatedFalsePositiveRate() float64 {
	return math.Pow(f.FillRatio(), float64(f.hashes))
}
