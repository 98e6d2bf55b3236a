package bloom

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
)

// ReadChunk copies the bits from the given byte on, as little-endian words, for
// a snapshot, and returns how many bytes it copied: all of buf, but for the end of
// the filter. Lengths and offset are multiples of 8. What was added before the
// call is in the copy; what is added meanwhile may be.
func (f *Filter) ReadChunk(buf []byte, offset uint64) (n int, err error) {
	words, err := f.chunk(len(buf), offset, "reading")
	if err != nil {
		return 0, err
	}
	words = words[:min(len(words), len(buf)/8)]
	for i := range words {
		binary.LittleEndian.PutUint64(buf[i*8:], atomic.LoadUint64(&words[i]))
	}
	runtime.KeepAlive(f)
	return len(words) * 8, nil
}

// MergeChunk sets the bits that ReadChunk copied from a filter of the same
// parameters. What was added since stays, so a filter can follow its change log
// while its snapshot is being read. AddUnited is for the caller to call.
func (f *Filter) MergeChunk(buf []byte, offset uint64) error {
	words, err := f.chunk(len(buf), offset, "merging")
	if err != nil {
		return err
	}
	if len(buf)/8 > len(words) {
		return fmt.Errorf("merging %d bytes of bits at byte %d: the filter has %d", len(buf), offset, f.size.Bytes)
	}
	for i := range len(buf) / 8 {
		or(&words[i], binary.LittleEndian.Uint64(buf[i*8:]))
	}
	runtime.KeepAlive(f)
	return nil
}

// or sets bits, those that are not set already.
func or(word *uint64, set uint64) {
	now := atomic.LoadUint64(word)
	if now&set == set {
		return
	}
	// Nearly always the first who touches the word.
	if now == 0 && atomic.CompareAndSwapUint64(word, 0, set) {
		return
	}
	atomic.OrUint64(word, set)
}

// chunk returns the words from a byte on.
func (f *Filter) chunk(length int, offset uint64, doing string) ([]uint64, error) {
	if length%8 != 0 || offset%8 != 0 || offset > f.size.Bytes {
		return nil, fmt.Errorf("%s %d bytes of bits at byte %d: must be whole words of %d bytes", doing, length, offset, f.size.Bytes)
	}
	return f.words[offset/8:], nil
}

// AddUnited adds to Count, for IDs whose bits came by MergeChunk. If the filter had IDs before,
// some may be the same: Count becomes the estimate of [Filter.Measure], at least the larger of
// the two numbers, at most their sum.
func (f *Filter) AddUnited(theirs uint64) {
	ours := f.Count()
	if ours == 0 {
		f.added.Add(theirs)
		return
	}
	low, high := max(ours, theirs), ours+theirs
	united := min(max(f.Measure().IDs, float64(low)), float64(high))
	f.added.Add(uint64(math.Round(united)) - ours)
}
