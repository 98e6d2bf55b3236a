package redisset

import (
	"context"
	"fmt"
	"math"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// Expand makes the set larger, even if it is not too full. It blocks until the new generation
// has replaced the old one, and that is dropped.
func (s *Set) Expand(ctx context.Context) error {
	if s.opts.AtFill == 0 {
		return fmt.Errorf("filter %s: %w", s.opts.Name, filter.ErrNoGrowth)
	}
	s.workMu.Lock()
	defer s.workMu.Unlock()
	before, err := s.refresh(ctx)
	if err != nil {
		return err
	}
	if s.isAtMax(before) && before.Next == 0 {
		return fmt.Errorf("filter %s: %w: %d IDs", s.opts.Name, filter.ErrAtMax, s.opts.Max)
	}
	// The unfinished drop of an older generation comes first.
	for range 2 {
		err := s.expand(ctx, func(v *view) bool { return v.Generation == before.Generation })
		if err != nil || s.view.Load().Generation != before.Generation {
			return err
		}
	}
	return nil
}

// isAtMax reports whether a set has its greatest capacity.
func (s *Set) isAtMax(v *view) bool { return s.opts.Max > 0 && v.Capacity >= s.opts.Max }

// AtMax reports whether the set is too full and may not grow.
func (s *Set) AtMax() bool { return s.atMax.Load() }

// noteMax logs that the set cannot grow when it should, and stores it for AtMax.
func (s *Set) noteMax(stuck bool) {
	if s.atMax.Swap(stuck) != stuck && stuck {
		s.log.Error("filter is too full, and has the greatest capacity that expand.max allows: more absent orders will pass", "max", s.opts.Max,
			runbook.FilterFull.Do("raise expand.max"))
	}
}

// grow finishes an expansion, or begins one if necessary.
func (s *Set) grow(ctx context.Context) error {
	before := s.view.Load().Generation
	return s.expand(ctx, func(v *view) bool {
		// Another instance may have done it during the wait.
		return v.Generation == before && (v.Capacity < s.opts.Bits.Capacity || s.tooFull())
	})
}

// expand creates a new generation, in steps. The process may die after each step. The next
// holder of the leader lock continues from the state.
//
//  1. The state names the next generation. After twice ViewAge every instance adds to both, or
//     refreshes its view before its Add returns.
//  2. The IDs of the sources and the log go to the next generation.
//  3. It is marked complete. That fails if another load of it has begun since.
//  4. The state names it as the current one, and the other as old, in one step.
//  5. After twice ViewAge, and a grace time, no instance queries the old one, and it is
//     dropped. A process that slept longer finds it missing: Unknown.
//  6. The state removes the old one.
func (s *Set) expand(ctx context.Context, wanted func(*view) bool) error {
	return s.withLeaderLock(ctx, func(ctx context.Context, v *view, fence int64) error {
		now := v.state
		now.Fence = fence
		if now.Old != 0 {
			return s.retire(ctx, now)
		}
		if now.Next == 0 {
			if !wanted(v) {
				return nil
			}
			next, err := s.nextGeneration(v)
			if err != nil {
				return err
			}
			now.Next, now.NextCapacity, now.NextShards = next.Number, next.Capacity, next.Shards
			now.BeganMS = s.opts.Now().UnixMilli()
		}
		now.Read = 0
		s.log.Info("filter grows", "from", now.Capacity, "to", now.NextCapacity, "generation", now.Next)
		next, err := s.startNext(ctx, &now)
		if err != nil {
			return err
		}
		if err := s.switchOver(ctx, v.current, next, &now); err != nil {
			return err
		}
		s.log.Info("filter has grown", "to", now.Capacity, "generation", now.Generation, "ids", s.idsRead.Load())
		return s.retire(ctx, now)
	})
}

// nextGeneration returns the generation after that of a view.
func (s *Set) nextGeneration(v *view) (generation, error) {
	g := v.state.current()
	g.Number++
	g.Capacity = max(uint64(math.Ceil(float64(g.Capacity)*s.opts.By)), s.opts.Bits.Capacity)
	if s.opts.Max > 0 {
		g.Capacity = min(g.Capacity, s.opts.Max)
	}
	bits := s.opts.Bits
	bits.Capacity, bits.Secret = g.Capacity, [16]byte{1} // any value, for the arithmetic
	if s.opts.Segments == nil {
		var err error
		g.Shards, err = bits.LeastShards()
		if err != nil {
			return g, err
		}
		g.Shards = max(g.Shards, v.Shards)
	}
	return g, nil
}

// startNext makes every instance add to the next generation as well.
func (s *Set) startNext(ctx context.Context, now *state) (target, error) {
	if err := s.write(ctx, now); err != nil {
		return nil, err
	}
	v, err := s.refresh(ctx)
	if err != nil {
		return nil, err
	}
	if v.next == nil {
		return nil, errSuperseded
	}
	sets, err := v.next.sets()
	if err == nil {
		err = s.open(ctx, sets)
	}
	if err == nil {
		err = wait.For(ctx, 2*s.opts.ViewAge)
	}
	return v.next, err
}

// switchOver fills the next generation and makes it the current one.
func (s *Set) switchOver(ctx context.Context, current, next target, now *state) error {
	before, err := s.serverIDs(ctx)
	if err != nil {
		return err
	}
	if s.opts.Checkpoints != nil {
		if err := s.opts.Checkpoints.BeginFill(ctx); err != nil {
			return err
		}
	}
	err = s.bulkLoad(ctx, next, func() error {
		now.Read = s.idsRead.Load()
		return s.write(ctx, now)
	})
	if err != nil {
		return err
	}
	if err := s.compareCounts(ctx, current, next); err != nil {
		return err
	}
	sets, err := next.sets()
	if err != nil {
		return err
	}
	if err := s.markComplete(ctx, sets, before); err != nil {
		return err
	}
	now.Old, now.OldShards = now.Generation, now.Shards
	now.Generation, now.Capacity, now.Shards = now.Next, now.NextCapacity, now.NextShards
	now.Next, now.NextCapacity, now.NextShards = 0, 0, 0
	now.Forms = s.opts.Forms
	if err := s.write(ctx, now); err != nil {
		return err
	}
	if s.opts.Checkpoints != nil {
		if err := s.opts.Checkpoints.Commit(ctx, now.Generation); err != nil {
			return err
		}
	}
	if err := s.rollDays(ctx, next, now); err != nil {
		return err
	}
	_, err = s.refresh(ctx)
	s.wake()
	return err
}

// countTolerance is the allowed difference of two estimates of one count. Both are right within
// a thousandth, and a nearly full set has more false positives.
const countTolerance = 0.02

// compareCounts refuses a generation that has fewer IDs than the one before it. The count of a
// set far beyond its capacity is inaccurate, and too high at most.
func (s *Set) compareCounts(ctx context.Context, current, next target) error {
	had, err := current.info(ctx)
	if err == nil {
		err = wait.For(ctx, s.opts.ViewAge) // for IDs that are being added to both
	}
	if err != nil {
		return err
	}
	has, err := next.info(ctx)
	if err != nil {
		return err
	}
	if float64(has.IDs) < float64(had.IDs)*(1-countTolerance)-8 && had.IDs <= 2*had.Capacity {
		return fmt.Errorf("only %d IDs were read again, of %d in the filter", has.IDs, had.IDs)
	}
	return nil
}

// retire drops the old generation once no instance queries it.
func (s *Set) retire(ctx context.Context, now state) error {
	if err := s.write(ctx, &now); err != nil { // excludes the earlier holders
		return err
	}
	if err := wait.For(ctx, 2*s.opts.ViewAge+s.opts.Grace); err != nil {
		return err
	}
	v, err := s.refresh(ctx)
	if err != nil {
		return err
	}
	if v.old != nil {
		if err := v.old.drop(ctx); err != nil {
			return err
		}
	}
	now.Old, now.OldShards = 0, 0
	now.Read, now.BeganMS = 0, 0
	if err := s.write(ctx, &now); err != nil {
		return err
	}
	_, err = s.refresh(ctx)
	return err
}
