package bloom

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
)

// Layout says where the bits of an ID are.
type Layout string

// The layouts.
const (
	// Blocked has all bits of an ID in one cache line: a look waits for the memory
	// once. It takes more bits for the same rate: 3% more for one in 100, 8% for
	// one in 1,000, 24% for one in 100,000.
	Blocked Layout = "blocked"
	// Classic scatters the bits over all of the memory.
	Classic Layout = "classic"
)

// defaultOverhead is how much more memory than Classic the default may take to be
// Blocked. At 2*10^8 IDs and one in 1,000, for 1.08 times the memory, it fills in
// less than half of the time and answers in three quarters of it
// (tests/bench/filters/README.md).
const defaultOverhead = 1.25

// Limits of [Params].
const (
	// maxBits is a tebibyte of memory. A block's number then has 34 bits, so that the
	// other 30 of a hash still say nothing of it, see blocked.go.
	maxBits = 1 << 43
	// minRate asks for 40 hashes and 58 bits an ID. Lower rates would cost more
	// than a plain set of 64-bit hashes.
	minRate = 1e-12
)

// Params say what a filter is to be.
type Params struct {
	Capacity          uint64   // IDs, at least 1
	FalsePositiveRate float64  // at capacity; 1e-12 or more, below 1
	Key               [16]byte // secret: whoever knows it can craft IDs that pass
	Layout            Layout   // default: Blocked, down to rates of about 1e-5; Classic below
}

// Size is what a filter takes.
type Size struct {
	Layout Layout // never ""
	Bits   uint64 // m
	Hashes int    // k, the bits that an ID sets
	Bytes  uint64 // of memory
}

// Size returns what a filter of these parameters takes, without making it. The
// error says which of them is out of range.
func (p Params) Size() (Size, error) {
	// Written so that NaN is refused as well.
	if !(p.FalsePositiveRate >= minRate && p.FalsePositiveRate < 1) {
		return Size{}, fmt.Errorf("sizing a filter: false positive rate %g is outside [%g, 1)", p.FalsePositiveRate, minRate)
	}
	if p.Capacity == 0 {
		return Size{}, fmt.Errorf("sizing a filter: capacity is 0, must be at least 1")
	}
	s := Size{Layout: p.Layout}
	var bitsPerID float64
	granule := float64(blockBits)
	switch p.Layout {
	case Blocked:
		bitsPerID, s.Hashes = blockedSize(p.FalsePositiveRate)
	case Classic:
		bitsPerID, s.Hashes = classicSize(p.FalsePositiveRate)
		granule = 64
	case "":
		bitsPerID, s.Hashes = blockedSize(p.FalsePositiveRate)
		s.Layout = Blocked
		if classic, k := classicSize(p.FalsePositiveRate); bitsPerID > defaultOverhead*classic {
			s.Layout, bitsPerID, s.Hashes, granule = Classic, classic, k, 64
		}
	default:
		return Size{}, fmt.Errorf("sizing a filter: layout %q is neither %s nor %s", p.Layout, Blocked, Classic)
	}
	// Checked before the conversion, which is not defined for what is too large.
	exact := float64(p.Capacity) * bitsPerID
	if exact > maxBits {
		return Size{}, fmt.Errorf("sizing a filter: capacity %d at a false positive rate of %g needs more than 1 TiB; lower the capacity or raise the rate", p.Capacity, p.FalsePositiveRate)
	}
	s.Bits = uint64(math.Ceil(exact/granule) * granule)
	s.Bytes = s.Bits / 8
	return s, nil
}

// RateAt returns the share of absent IDs that pass once n IDs are in a filter of
// this size, as the layout's formula has it.
func (s Size) RateAt(n uint64) float64 {
	switch {
	case n == 0 || s.Bits == 0:
		return 0
	case s.Layout == Blocked:
		rates := blockedRates{k: float64(s.Hashes)}
		return rates.mean(float64(n) * blockBits / float64(s.Bits))
	}
	return classicRate(float64(s.Bits)/float64(n), s.Hashes)
}

// KeyFingerprint tells keys apart without telling them.
func (p Params) KeyFingerprint() [16]byte {
	sum := sha256.Sum256(append([]byte("ordergate filter key\x00"), p.Key[:]...))
	return [16]byte(sum[:16])
}

// halves returns the key as SipHash takes it.
func (p Params) halves() (key0, key1 uint64) {
	return binary.LittleEndian.Uint64(p.Key[:8]), binary.LittleEndian.Uint64(p.Key[8:])
}
