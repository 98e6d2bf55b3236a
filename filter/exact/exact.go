// Package exact is a set of numeric IDs in memory that is never wrong. IDs that
// were given out one after the other take a small part of what a Bloom filter
// takes; scattered ones take more, which [Advise] tells from a sample.
//
// Start with [New]. The bits are those of Roaring bitmaps; what is here is which
// strings are IDs, and that many may read and write at once.
package exact

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// ErrNotNumeric is what Add says of an ID that a [Set] cannot hold.
var ErrNotNumeric = errors.New("not a decimal number below 2^64 without leading zeros")

// containerBits is how many numbers share a Roaring container. shards of them
// have a lock each: neighbouring containers are in different shards, and a
// container is never split, so that sharding costs no density.
const (
	containerBits = 16
	shards        = 256
)

// Set is a set of numeric IDs. All methods are safe for concurrent use. An Add
// that has returned is seen by every MayContain that starts later. Writers lock
// 1/256 of the set for less than a microsecond, and readers of that part wait.
type Set struct {
	shards [shards]shard
}

// shard is padded to a multiple of a cache line: readers write to its lock.
type shard struct {
	mu    sync.RWMutex
	ids   *roaring64.Bitmap
	count atomic.Uint64
	_     [24]byte
}

// New returns an empty set.
func New() *Set {
	s := &Set{}
	for i := range s.shards {
		s.shards[i].ids = roaring64.New()
	}
	return s
}

func (s *Set) shard(n uint64) *shard { return &s.shards[n>>containerBits%shards] }

// Add puts an ID into the set, and reports whether it was not there. The error
// wraps [ErrNotNumeric].
func (s *Set) Add(id string) (changed bool, err error) {
	n, ok := Parse(id)
	if !ok {
		// Not the ID itself: an error is one line, and an ID may be anything.
		return false, fmt.Errorf("adding an ID of %d bytes to an exact set: %w", len(id), ErrNotNumeric)
	}
	sh := s.shard(n)
	sh.mu.Lock()
	changed = sh.ids.CheckedAdd(n)
	if changed {
		sh.count.Add(1) // under the lock, which merge counts under
	}
	sh.mu.Unlock()
	return changed, nil
}

// MayContain reports whether the ID is in the set, for certain. It is not ok for
// an ID that the set cannot hold, of which it knows nothing. It does not allocate.
func (s *Set) MayContain(id string) (in, ok bool) {
	n, ok := Parse(id)
	if !ok {
		return false, false
	}
	sh := s.shard(n)
	sh.mu.RLock()
	in = sh.ids.Contains(n)
	sh.mu.RUnlock()
	return in, true
}

// Count returns the number of IDs.
func (s *Set) Count() uint64 {
	total := uint64(0)
	for i := range s.shards {
		total += s.shards[i].count.Load()
	}
	return total
}

// SizeBytes returns the memory that the IDs take, without the room that slices
// have left for growing. It looks at every container, 65,536 numbers each: call it
// for a metric, not for a request.
func (s *Set) SizeBytes() uint64 {
	total := uint64(0)
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.RLock()
		total += sh.ids.GetSizeInBytes()
		sh.mu.RUnlock()
	}
	return total
}

// Parse reads a decimal number below 2^64 as strconv.FormatUint writes it: no
// sign, no leading zero, only the digits of ASCII. What has two spellings would be
// two IDs for whoever else compares them.
func Parse(id string) (n uint64, ok bool) {
	const most = 20 // digits of 2^64-1
	if len(id) == 0 || len(id) > most || id[0] == '0' && len(id) > 1 {
		return 0, false
	}
	for i := range len(id) {
		digit := uint64(id[i] - '0')
		if digit > 9 {
			return 0, false
		}
		next := n*10 + digit
		if i == most-1 && (n > (1<<64-1)/10 || next < digit) {
			return 0, false
		}
		n = next
	}
	return n, true
}
