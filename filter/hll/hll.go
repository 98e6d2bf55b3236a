// Package hll counts distinct IDs in 16 KiB of memory, however many there are, to
// about 1 %: HyperLogLog.
//
// Start with [Sketch]. Its registers, and the hash [Redis], are those of Redis's
// own HyperLogLog, so that an ID which changes nothing in a sketch changes nothing
// in Redis either, provided that Redis was given all that the sketch has. That is
// why no library does: their registers are others, they allocate, and they are not
// safe for concurrent use.
package hll

import (
	"math/bits"
	"sync/atomic"
)

const (
	indexBits = 14
	registers = 1 << indexBits
	// mostRank is what a register can hold: the zeros that end the hash, less the
	// bits of the index, and one.
	mostRank = 64 - indexBits + 1

	perWord = 8 // registers, a byte each
	words   = registers / perWord
)

// Sketch is a set of which no more is known than how many it has. The zero value is
// the empty set. All methods are safe for concurrent use, and none allocates.
//
// The standard error of the count is 1.04/sqrt(16384), 0.8 %.
type Sketch struct{ words [words]atomic.Uint64 }

// Add puts something into the set by its hash, and reports whether that has changed
// the sketch. What is in it already never does.
func (s *Sketch) Add(hash uint64) (changed bool) {
	word, shift, rank := place(hash)
	for {
		old := s.words[word].Load()
		if old>>shift&0xff >= rank {
			return false
		}
		if s.words[word].CompareAndSwap(old, old&^(0xff<<shift)|rank<<shift) {
			return true
		}
	}
}

// Changes reports whether Add would change the sketch.
func (s *Sketch) Changes(hash uint64) bool {
	word, shift, rank := place(hash)
	return s.words[word].Load()>>shift&0xff < rank
}

// place returns which register a hash is for, and what it makes of it.
func place(hash uint64) (word int, shift, rank uint64) {
	index := int(hash & (registers - 1))
	rank = uint64(bits.TrailingZeros64(hash>>indexBits|1<<(mostRank-1))) + 1
	return index / perWord, uint64(index%perWord) * 8, rank
}

// Merge adds what is in another set.
func (s *Sketch) Merge(other *Sketch) {
	for i := range s.words {
		if theirs := other.words[i].Load(); theirs != 0 {
			s.merge(i, theirs)
		}
	}
}

func (s *Sketch) merge(i int, theirs uint64) {
	for {
		old := s.words[i].Load()
		most := old
		for shift := 0; shift < 64; shift += 8 {
			if rank := theirs >> shift & 0xff; rank > most>>shift&0xff {
				most = most&^(0xff<<shift) | rank<<shift
			}
		}
		if most == old || s.words[i].CompareAndSwap(old, most) {
			return
		}
	}
}

// Reset empties the set. What is added meanwhile may be in it or not.
func (s *Sketch) Reset() {
	for i := range s.words {
		s.words[i].Store(0)
	}
}
