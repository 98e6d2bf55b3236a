package filter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ordergate/ordergate/filter/bloom"
)

// Remote is a set of IDs that others have as well, and keep whole. Its methods are
// safe for concurrent use.
type Remote interface {
	// Ask answers Absent only if that was true of the set after the call. An error
	// comes with Unknown.
	Query(ctx context.Context, id string) (Answer, error)
	// Add returns nil once the set has the IDs. It is called after the Appender's
	// Append, so a set that is not there needs no more than to be filled from that.
	Add(ctx context.Context, ids ...string) error
	// State returns one of the states of a filter, and the reason for it.
	State() (state, reason string)
	// EverWhole reports whether it was whole once since the start of this process, or is not
	// filled by it.
	EverComplete() bool
	// Expand makes the set larger, and blocks until it is.
	Expand(ctx context.Context) error
	// AtMax reports whether it is too full and may grow no more. It does not block.
	AtMax() bool
	// Size returns what is known of the set.
	Size() RemoteSize
}

// RemoteSize tells of a [Remote].
type RemoteSize struct {
	Count, Capacity, Bytes uint64
	FillRatio              float64 // share of bits that are set, 0 to 1
	FalsePositiveRate      float64 // the chance that an absent ID passes now
}

// glanceRemote is MayContain of a filter with a [Remote].
func (f *Filter) queryMemory(id string) Answer {
	if f.memory.query(id) == Maybe || f.recent.has(id) {
		return Maybe
	}
	if !f.certainty().isCertain(f, id) {
		return Unknown
	}
	return NotInMemory
}

// askRemote asks the remote set: what is in memory (the
// change log, the IDs that were found lately, and of a layered filter the sources)
// spares the question to it, and is never why an ID is absent.
//
//  1. The remote set is asked after the call, so it knows an ID that was added to
//     it before.
//  2. The window is for an ID that it has not: one that was appended while the set
//     could not be written, or that a failover took from it. That is in memory by then.
func (f *Filter) queryRemote(ctx context.Context, id string) Answer {
	a, err := f.opts.Remote.Query(ctx, id)
	switch {
	case a == Maybe:
		f.recent.add(id)
		return Maybe
	case err != nil || a != Absent:
		return Unknown
	}
	window, certain := f.window(), f.certainty() // before the look, as in MayContain
	if f.memory.query(id) == Maybe {
		return Maybe
	}
	if !certain.isCertain(f, id) || !f.isFresh(window) {
		return Unknown
	}
	return f.absentUnlessNew(id)
}

// tellOthers makes an ID known to others: to the log first, from which whatever has missed
// it is mended.
func (f *Filter) appendAndStore(ctx context.Context, ids ...string) error {
	if err := f.opts.Appender.Append(ctx, ids...); err != nil {
		return err
	}
	if f.opts.Remote == nil {
		return nil
	}
	if err := f.opts.Remote.Add(ctx, ids...); err != nil {
		return fmt.Errorf("%w: %w", errNotInRemote, err)
	}
	return nil
}

// errNotShared says that an ID is in the change log, but not in the remote set. With
// windows nobody misses it.
var errNotInRemote = errors.New("not in the shared set yet")

// missed reports whether other ordergates may answer Absent for an ID that could
// not be told to them.
func (f *Filter) peersUninformed(err error) bool {
	return err != nil && (f.opts.Window == nil || !errors.Is(err, errNotInRemote))
}

// recent remembers IDs that the remote set was asked for and has, so that an order
// which many ask for costs one question. It forgets one for another: a table with a
// place for each hash. Its methods are safe for concurrent use, and never wait.
//
// A place holds 64 bits of a keyed hash, so an ID is taken for another by a chance
// of 5e-20; it passes then, no more.
type recent struct {
	key   [16]byte
	slots []atomic.Uint64
}

// recentPlaces take 1 MiB.
const recentSlots = 1 << 17

func newRecent(key [16]byte) *recent {
	return &recent{key: key, slots: make([]atomic.Uint64, recentSlots)}
}

func (r *recent) has(id string) bool {
	slot, text := r.hash(id)
	return r.slots[slot].Load() == text
}

func (r *recent) add(id string) {
	slot, text := r.hash(id)
	r.slots[slot].Store(text)
}

// hash returns a place, and what is there when the ID is; never 0, as an empty one
// holds.
func (r *recent) hash(id string) (slot, text uint64) {
	a, b := bloom.Hash(r.key, id)
	return a % recentSlots, b | 1
}
