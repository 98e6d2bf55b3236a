package redisbf

import (
	"math"
	"math/bits"
)

// A bitmap is a row of words of 64 bits. An ID sets two bits in each of a few words:
// half as many reads as one for each bit, at 60% of the server's time, for 1% more
// memory. Words differ in how many IDs they got, which makes more pass; how many is
// counted here, as Putze, Sanders and Singler do for blocks ("Cache-, Hash- and
// Space-Efficient Bloom Filters", 2007).
const (
	wordBits = 64
	// pairs are the ways to choose the two.
	pairs = wordBits * (wordBits - 1) / 2
	// maxWords an ID has.
	maxWords = 20
)

// pairSet is the chance that both bits of a random pair are set in a word that got
// load pairs on average. Given n pairs, one bit is unset by the chance u^n, and
// both by v^n. If n has a Poisson distribution, the mean of x^n is
// exp(-load (1-x)).
func pairSet(load float64) float64 {
	const u = 2.0 / wordBits                                   // that a pair has one given bit
	const v = 1 - (wordBits-2)*(wordBits-3)/2.0/float64(pairs) // or one of two
	return 1 - 2*math.Exp(-load*u) + math.Exp(-load*v)
}

// layout returns for a rate how many words an ID has, and how many bits a bitmap
// has for each ID, which is least by that choice.
func layout(rate float64) (words int, bitsPerID float64) {
	for w := 1; w <= maxWords; w++ {
		target := math.Pow(rate, 1/float64(w))
		low, high := 0.0, 64.0*wordBits
		for range 60 {
			if mid := (low + high) / 2; pairSet(mid) < target {
				low = mid
			} else {
				high = mid
			}
		}
		if b := wordBits * float64(w) / low; words == 0 || b < bitsPerID {
			words, bitsPerID = w, b
		}
	}
	return words, bitsPerID
}

// loadOf returns how many pairs a word got on average if this share of all bits is
// set.
func loadOf(fill float64) float64 { return -math.Log1p(-fill) * wordBits / 2 }

// spot is a word of a bitmap, by its first bit, and two bits in it.
type spot struct{ at, bits int64 }

// spots appends those of an ID in a bitmap of so many words. Each is a number of a
// SplitMix64 generator with the ID's own seed and stride: scaled, its whole part is
// the word, and its fraction the bits. The plain sums that Bloom filters often make
// do with let up to 5% more pass in small bitmaps.
func (h *hasher) spots(to []spot, id string, size uint64, words int) []spot {
	a, b := h.ids.sum(id)
	b |= 1
	for range words {
		word, fraction := bits.Mul64(mix(a), size)
		first, second := pair(fraction)
		to = append(to, spot{int64(word) * wordBits, 1<<first | 1<<second})
		a += b
	}
	return to
}

// pair returns two different numbers below 64.
func pair(x uint64) (first, second uint) {
	first = uint(x >> 58)
	step, _ := bits.Mul64(x<<6, wordBits-1)
	return first, (first + 1 + uint(step)) % wordBits
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
// Pseudorandom Number Generators", 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// positions returns the two bits as SETBIT counts them: from the highest one of
// the word.
func (s spot) positions() (first, second int64) {
	low, high := bits.TrailingZeros64(uint64(s.bits)), bits.Len64(uint64(s.bits))-1
	return s.at + wordBits - 1 - int64(high), s.at + wordBits - 1 - int64(low)
}
