// Package snapshot keeps filters in a file, so that a process that starts again
// need not read all orders again.
//
// Start with [Write] and [Open]. A file holds one filter with everything that
// says whose it is; the filter may consist of several sections, such as layers
// or days, each of them a Bloom filter or an exact set. A file is written beside
// the old one and takes its place when it is whole. A file that is damaged, cut
// off, another filter's or made for other parameters is refused, with the reason.
// When to write, and what to read of the change log afterwards, is the caller's
// business.
package snapshot

import (
	"fmt"
	"time"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/exact"
)

// Identity says whose a snapshot is. A file is loaded only if all of it is the
// same as when it was written.
type Identity struct {
	Name              string       // of the filter, at most 256 bytes
	Kind              string       // of the filter, in the caller's words, at most 256 bytes
	Capacity          uint64       // as configured; sections have their own
	FalsePositiveRate float64      // likewise
	Layout            bloom.Layout // likewise
	KeyFingerprint    [16]byte     // of the filter's secret, see bloom.Params.KeyFingerprint
}

// Header is what a file says of the whole.
type Header struct {
	Identity
	// Position is where in the change log a reader has to go on, in the caller's
	// format, at most 16 KiB. All IDs up to it must have been added before Write
	// is called.
	Position []byte
	// Sources tells what the IDs before that were read from, in the caller's format,
	// at most 256 bytes.
	Sources string
	Created time.Time // to the nanosecond, from 1678 to 2262; its zone is not kept
}

// Section is a part of a filter: one of Bloom and Exact.
type Section struct {
	Label string // for the caller to know it by, at most 256 bytes
	Bloom *bloom.Filter
	Exact *exact.Set
}

// SectionInfo is what a file says of a section.
type SectionInfo struct {
	Label string
	Exact bool // else the rest says which Bloom filter it is
	// Params is without the key, which no file has.
	Params         bloom.Params
	KeyFingerprint [16]byte
	Count          uint64 // IDs
	Bytes          uint64 // in the file, without checksums
}

// MismatchError says that a file is sound, but not the one that is wanted.
type MismatchError struct {
	Path      string
	Field     string // such as "name" or "section 2: key"
	Has, Want string
}

// Error implements error.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("snapshot %s is not the one wanted: %s is %s, want %s", e.Path, e.Field, e.Has, e.Want)
}

// DamageError says that a file is not what was written.
type DamageError struct {
	Path  string
	Where string // such as "header" or "section 0, block 17"
	What  string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("snapshot %s is damaged: %s: %s", e.Path, e.Where, e.What)
}
