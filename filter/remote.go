package filter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/internal/presence"
)

// Remote is a set of IDs outside this process, such as filter/redisset. Its methods are safe
// for concurrent use.
type Remote interface {
	// Query answers Absent only if the set lacked the ID at a time after the call. An error
	// comes with Unknown.
	Query(ctx context.Context, id string) (presence.Answer, error)
	// Add returns nil once the set has the IDs. It is called after the Appender's Append, so a
	// missing set only has to be filled from the log.
	Add(ctx context.Context, ids ...string) error
	// State returns one of the states of a filter, and the reason for it.
	State() (state, reason string)
	// EverComplete reports whether the set was complete once since the start of this process,
	// or is filled by others.
	EverComplete() bool
	// Expand makes the set larger, and blocks until it is.
	Expand(ctx context.Context) error
	// AtMax reports whether it is too full and may not grow. It does not block.
	AtMax() bool
	// Size returns the last known size.
	Size() RemoteSize
}

// RemoteSize describes a [Remote].
type RemoteSize struct {
	Count, Capacity, Bytes uint64
	FillRatio              float64 // share of set bits, 0 to 1
	FalsePositiveRate      float64 // the chance that an absent ID passes now
}

// queryMemory is MayContain of a filter with a [Remote].
func (f *Filter) queryMemory(id string) presence.Answer {
	if f.memory.query(id) == presence.Maybe || f.recent.has(id) {
		return presence.Maybe
	}
	if !f.certainty().isCertain(f, id) {
		return presence.Unknown
	}
	return presence.NotInMemory
}

// queryRemote queries the remote set. Memory (the change log, recent hits, and the sources of a
// layered filter) saves queries to it, and is never the reason for Absent.
//
//  1. The remote set is queried after the call, so it has every ID that was added to it
//     before.
//  2. The window covers an ID that the remote set lacks: one that was appended while the set
//     could not be written, or that a failover removed from it. Memory has it by then.
func (f *Filter) queryRemote(ctx context.Context, id string) presence.Answer {
	a, err := f.opts.Remote.Query(ctx, id)
	switch {
	case a == presence.Maybe:
		f.recent.add(id)
		return presence.Maybe
	case err != nil || a != presence.Absent:
		return presence.Unknown
	}
	window, certain := f.window(), f.certainty() // before the look, as in MayContain
	if f.memory.query(id) == presence.Maybe {
		return presence.Maybe
	}
	if !certain.isCertain(f, id) || !f.isFresh(window) {
		return presence.Unknown
	}
	return f.absentUnlessNew(id)
}

// appendAndStore sends IDs to the other instances: first to the log, which repairs what the
// remote set misses.
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

// errNotInRemote says that an ID is in the change log, but not in the remote set. An instance
// with a window still finds it.
var errNotInRemote = errors.New("not in the filter in Redis yet")

// peersUninformed reports whether other instances may answer Absent for an ID after a failed
// write.
func (f *Filter) peersUninformed(err error) bool {
	return err != nil && (f.opts.Window == nil || !errors.Is(err, errNotInRemote))
}

// recent is a cache of IDs that the remote set has, so that many lookups of one order cost one
// query. It is a table with a slot for each hash: a new ID replaces another. Its methods are
// safe for concurrent use, and never wait.
//
// A slot holds 64 bits of a keyed hash. The chance of a false hit is 5e-20; that ID then
// passes.
type recent struct {
	key   [16]byte
	slots []atomic.Uint64
}

// recentSlots take 1 MiB.
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

// hash returns the slot of an ID and its content; never 0, the content of an empty slot.
func (r *recent) hash(id string) (slot, text uint64) {
	a, b := bloom.Hash(r.key, id)
	return a % recentSlots, b | 1
}
