package main

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/filter/exact"
)

// candidate is one way to know which IDs exist.
type candidate struct {
	name string
	// safe says that several goroutines may add at once. One goroutine does where
	// they may not: that is what one may do with it.
	safe bool
	most int // IDs, 0 for no limit
	open func(n int, falsePositiveRate float64) (set, error)
}

// set is what is known.
type set interface {
	// add adds IDs, as fast as the candidate can add many.
	add(ids []string) error
	has(id string) bool
	// bytes returns the memory that it takes, and what its formula says of n IDs, 0
	// if it has none.
	bytes(n int) (takes, formula uint64)
}

// filed is a set that can be written to a file and read again.
type filed interface {
	set
	write(ctx context.Context, path string) error
	read(ctx context.Context, path string) (set, error)
}

// entrant is a candidate with its set.
type entrant struct {
	candidate
	set set
}

// names returns those of the entrants.
func names(sets []entrant) []string {
	var all []string
	for _, e := range sets {
		all = append(all, e.name)
	}
	return all
}

const (
	nameBlocked      = "ordergate"
	nameClassic      = "ordergate classic"
	nameExact        = "ordergate exact"
	nameUnkeyed      = "bits-and-blooms"
	nameBlobloom     = "blobloom"
	nameBlobloomSync = "blobloom Sync"
	nameBlobloomKey  = "blobloom keyed"
	nameMap          = "map"
)

// candidates returns all that are compared.
func candidates() []candidate {
	return []candidate{
		{nameBlocked, true, 0, openBloom(bloom.Blocked)},
		{nameClassic, true, 0, openBloom(bloom.Classic)},
		{nameExact, true, 0, func(int, float64) (set, error) { return exactSet{exact.New()}, nil }},
		{nameUnkeyed, false, 0, openUnkeyed},
		{nameBlobloom, false, 0, openBlobloom},
		{nameBlobloomSync, true, 0, openBlobloomSync},
		{nameBlobloomKey, true, 0, openBlobloomKeyed},
		{nameMap, false, 20_000_000, openMap},
	}
}

// pick returns those whose names were chosen.
func pick(all []candidate, chosen []string) []candidate {
	return slices.DeleteFunc(all, func(c candidate) bool { return !slices.Contains(chosen, c.name) })
}

// allNames returns those of all that can be compared, in memory and in Redis.
func allNames() []string {
	var all []string
	for _, c := range candidates() {
		all = append(all, c.name)
	}
	for _, c := range storedCandidates() {
		all = append(all, c.name)
	}
	return all
}

// mapSet is what one writes without a library.
type mapSet struct {
	ids  map[string]struct{}
	heap uint64 // of n IDs
}

// openMap fills a map for its memory's sake first: what the heap grows by while
// others are being built is not one candidate's.
func openMap(n int, _ float64) (set, error) {
	empty := heapInUse()
	trial := &mapSet{ids: map[string]struct{}{}}
	for at := 0; at < n; at += chunkIDs {
		if err := trial.add(texts(min(chunkIDs, n-at), func(i int) uint64 { return idOf(at + i) })); err != nil {
			return nil, err
		}
	}
	full := heapInUse()
	runtime.KeepAlive(trial)
	return &mapSet{ids: map[string]struct{}{}, heap: full - empty}, nil
}

func (m *mapSet) add(ids []string) error {
	for _, id := range ids {
		m.ids[strings.Clone(id)] = struct{}{} // or all of its piece would stay alive
	}
	return nil
}

func (m *mapSet) has(id string) bool {
	_, in := m.ids[id]
	return in
}

func (m *mapSet) bytes(int) (takes, formula uint64) { return m.heap, 0 }

func heapInUse() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
