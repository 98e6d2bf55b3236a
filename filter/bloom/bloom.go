// Package bloom is a set of IDs in memory that may say "perhaps" of an ID it
// never saw, and never says "no" of one it did.
//
// Start with [New]. A [Filter] is keyed, so that nobody who does not know the
// key can craft IDs that pass it, and free of locks, so that any number of
// goroutines may add and look at once. What a "no" is worth is decided in
// package filter; how a filter gets into a file and back is up to
// filter/snapshot. This one does no I/O and knows no clock.
package bloom

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/dchest/siphash"
)

// Filter is a Bloom filter. All methods are safe for concurrent use and never
// block. An Add that has returned is seen by every MayContain that starts later.
//
// Its memory comes from the kernel rather than from Go's heap, and goes back once
// the garbage collector finds that nobody has the Filter any more. The collector
// does not see the size, so it is in no hurry: whoever drops a large filter and
// needs the room calls runtime.GC.
type Filter struct {
	words  []uint64 // touched by sync/atomic only; starts at a cache line
	size   Size
	blocks uint64 // Blocked: len(words) / blockWords
	hashes int
	key0   uint64
	key1   uint64
	params Params

	// A writer's counting takes this cache line away from the other cores. What
	// readers need must not be in it.
	_     [64]byte
	added atomic.Uint64
	_     [56]byte
}

// New returns an empty filter that answers with at most the given rate of false
// positives until it holds Capacity IDs. It reserves all of its memory, see
// [Params.Size], whose errors it returns; a kernel that has not that much says so
// in an error too.
func New(p Params) (*Filter, error) {
	size, err := p.Size()
	if err != nil {
		return nil, err
	}
	f := &Filter{size: size, blocks: size.Bits / blockBits, hashes: size.Hashes, params: p}
	f.params.Layout = size.Layout
	f.key0, f.key1 = p.halves()
	mapping, err := allocate(size.Bytes)
	if err != nil {
		return nil, err
	}
	f.words = mapping.words
	runtime.AddCleanup(f, func(m memory) { m.free() }, mapping)
	return f, nil
}

// Add puts an ID into the set. It reports whether a bit changed: false means
// that the set already answered true for the ID.
func (f *Filter) Add(id string) (changed bool) {
	a, b := f.hash(id)
	if f.size.Layout == Blocked {
		changed = addBlocked(f.block(a), a, b, f.hashes)
	} else {
		changed = f.addClassic(a, b|1)
	}
	if changed {
		f.added.Add(1)
	}
	runtime.KeepAlive(f) // its memory goes when nobody needs f, and words alone does not count
	return changed
}

// MayContain reports whether the ID may have been added. False is certain.
func (f *Filter) MayContain(id string) (perhaps bool) {
	a, b := f.hash(id)
	if f.size.Layout == Blocked {
		perhaps = hasBlocked(f.block(a), a, b, f.hashes)
	} else {
		perhaps = f.hasClassic(a, b|1)
	}
	runtime.KeepAlive(f)
	return perhaps
}

// hash returns 128 bits that nobody can foresee without the key.
func (f *Filter) hash(id string) (a, b uint64) { return hash(f.key0, f.key1, id) }

// Hash returns the keyed hash of an ID that the filters have: 128 bits that nobody
// can foresee without the key. It does not allocate.
func Hash(key [16]byte, id string) (a, b uint64) {
	key0, key1 := Params{Key: key}.halves()
	return hash(key0, key1, id)
}

func hash(key0, key1 uint64, id string) (a, b uint64) {
	// A conversion to []byte would copy, because the compiler cannot know that the
	// assembly behind Hash128 only reads. It does only read, and keeps nothing.
	return siphash.Hash128(key0, key1, unsafe.Slice(unsafe.StringData(id), len(id)))
}

// Params returns what the filter was made of, with the layout that was chosen.
// They include the key: not for logs.
func (f *Filter) Params() Params { return f.params }

// Size returns what the filter takes.
func (f *Filter) Size() Size { return f.size }

// Bits returns the number of bits, m.
func (f *Filter) Bits() uint64 { return f.size.Bits }

// Hashes returns the number of bits that an ID sets, k.
func (f *Filter) Hashes() uint64 { return uint64(f.size.Hashes) }

// Capacity returns the number of IDs that the filter was made for.
func (f *Filter) Capacity() uint64 { return f.params.Capacity }

// SizeBytes returns the memory that the bits take.
func (f *Filter) SizeBytes() uint64 { return f.size.Bytes }

// Count returns how many times Add changed something: the number of IDs, less
// those that the set took for known. Goroutines that add one ID at the same
// moment may each be counted.
func (f *Filter) Count() uint64 { return f.added.Load() }
