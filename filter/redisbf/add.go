package redisbf

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
)

// Add adds IDs, and returns once Redis acknowledged all of them. To add an ID again
// does no harm, so after an error the same may be tried again. A loader in a hurry
// calls it from several goroutines: each waits for the server in turn. The error is
// [ErrGone] if the set is not there, and [ErrFull] if a shard of the kind Bloom
// takes no more.
func (s *Set) Add(ctx context.Context, ids []string) error {
	var calls []*call
	flush := func() error {
		err := s.sendCalls(ctx, calls)
		calls = calls[:0]
		return err
	}
	for _, id := range ids {
		if err := s.refuses(id); err != nil {
			return fmt.Errorf("adding to filter %s: %q: %w", s.opts.Key, id, err)
		}
	}
	for len(ids) > 0 {
		n := min(len(ids), maxCalls*maxIDs)
		groups, _ := s.groups(ids[:n])
		for _, g := range groups {
			more, err := s.kind.add(g.shard, g.ids)
			if err == nil {
				calls = append(calls, more...)
				if len(calls) >= maxCalls {
					err = flush()
				}
			}
			if err != nil {
				return fmt.Errorf("adding to filter %s: %w", s.opts.Key, err)
			}
		}
		ids = ids[n:]
	}
	if err := flush(); err != nil {
		return fmt.Errorf("adding to filter %s: %w", s.opts.Key, err)
	}
	return nil
}

// load is the filling of a set, which Unmark begins.
type load struct {
	mu   sync.Mutex
	name string // random; "" before the first
	// ends has, by shard, which generation the load makes whole; see marks.
	ends []int64
}

// Unmark says that the set is not whole any more, and begins a load: nothing is
// absent from it until [Set.MarkWhole] of this Set or of one that calls Unmark
// later. If it fails, parts of the set may still be whole; try again, or Drop it.
func (s *Set) Unmark(ctx context.Context) error {
	s.load.mu.Lock()
	defer s.load.mu.Unlock()
	s.load.name = ""
	name := rand.Text()[:loadBytes]
	s.load.ends = make([]int64, s.opts.Shards)
	err, done := errBehind, make([]bool, s.opts.Shards)
	for try := 0; try < maxGenerations/lookAhead && errors.Is(err, errBehind); try++ { // it knows more each time
		var calls []*call
		for shard := range done {
			if done[shard] {
				continue
			}
			c, failed := s.kind.unmark(shard, name, &s.load.ends[shard])
			if failed != nil {
				return fmt.Errorf("unmarking filter %s: %w", s.opts.Key, failed)
			}
			read := c.read
			c.read = func(reply any) error {
				err := read(reply)
				done[shard] = err == nil
				return err
			}
			calls = append(calls, c)
		}
		err = s.sendCalls(ctx, calls)
	}
	if errors.Is(err, errBehind) {
		err = ErrFull
	}
	if err != nil {
		return fmt.Errorf("unmarking filter %s: %w", s.opts.Key, err)
	}
	s.load.name = name
	return nil
}

// loadBytes is the length of a load's name: 40 random bits, in 8 characters.
const loadBytes = 8

// MarkWhole declares that every ID which was to be in the set when Unmark was
// called has been added. From then on IDs can be absent. The error is
// [ErrLoadLost] if this Set did not call Unmark, or if a shard of the set is not
// the one any more that it was called for: deleted, evicted, lost, or unmarked by
// another process. Shards that stayed may be whole even so; to try again does no
// harm.
func (s *Set) MarkWhole(ctx context.Context) error {
	s.load.mu.Lock()
	defer s.load.mu.Unlock()
	err := ErrLoadLost
	if s.load.name != "" {
		err = s.runAll(ctx, func(shard int) (*call, error) {
			return s.kind.mark(shard, s.load.name, s.load.ends[shard])
		})
	}
	if err != nil {
		return fmt.Errorf("declaring filter %s complete: %w", s.opts.Key, err)
	}
	return nil
}

// runAll runs one call for each shard.
func (s *Set) runAll(ctx context.Context, of func(shard int) (*call, error)) error {
	calls := make([]*call, s.opts.Shards)
	for shard := range calls {
		c, err := of(shard)
		if err != nil {
			return err
		}
		calls[shard] = c
	}
	return s.sendCalls(ctx, calls)
}
