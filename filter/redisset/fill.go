package redisset

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ordergate/ordergate/filter/redisbf"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// batchSize is the number of IDs in a batch, and workers the number of concurrent batches.
	batchSize = 2_000
	workers   = 4
)

// withLeaderLock runs work that one instance at a time does, with a new view.
func (s *Set) withLeaderLock(ctx context.Context, do func(ctx context.Context, v *view, fence int64) error) error {
	work, fence, done, err := s.opts.LeaderLock(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the leader lock: %w", err)
	}
	defer done()
	v, err := s.refresh(work)
	if err == nil {
		err = do(work, v, fence)
	}
	if cause := context.Cause(work); err != nil && cause != nil {
		return cause
	}
	return err
}

// fill fills the incomplete parts.
func (s *Set) fill(ctx context.Context) error {
	return s.withLeaderLock(ctx, func(ctx context.Context, v *view, fence int64) error {
		lacking, err := s.incomplete(ctx, v)
		if err != nil || len(lacking) == 0 {
			return err // another instance has filled it
		}
		now := v.state
		now.Fence = fence
		if err := s.write(ctx, &now); err != nil { // excludes the earlier holders
			return err
		}
		before, err := s.serverIDs(ctx)
		if err != nil {
			return err
		}
		rollover := s.isDayRollover(v, lacking)
		if err := s.open(ctx, lacking); err != nil {
			return err
		}
		places := s.opts.Checkpoints
		if rollover {
			places = nil
		} else if err := s.fillAll(ctx, v.current, &now); err != nil {
			return err
		}
		if err := s.markComplete(ctx, lacking, before); err != nil {
			return err
		}
		if places != nil {
			if err := places.Commit(ctx, now.Generation); err != nil {
				return err
			}
		}
		if _, err := s.refresh(ctx); err != nil {
			return err
		}
		return s.rollDays(ctx, v.current, &now)
	})
}

// fillAll fills a set that was marked incomplete. If the last fill had other forms or other
// sources, it takes longer than the views of other instances are valid.
func (s *Set) fillAll(ctx context.Context, into target, now *state) (err error) {
	s.log.Info("filling the filter in Redis")
	others := now.Forms != "" && now.Forms != s.opts.Forms
	now.Forms = s.opts.Forms
	if err := s.write(ctx, now); err != nil {
		return err
	}
	if places := s.opts.Checkpoints; places != nil {
		there, err := places.Discard(ctx, now.Generation)
		if err == nil {
			err = places.BeginFill(ctx)
		}
		if err != nil {
			return err
		}
		others = others || there
	}
	began := time.Now()
	if err := s.bulkLoad(ctx, into, nil); err != nil || !others {
		return err
	}
	return wait.For(ctx, 2*queryViewAges*s.opts.ViewAge-time.Since(began))
}

// errServerRestarted says that IDs which were added to a set may be lost.
var errServerRestarted = errors.New("a server was restarted or failed over during the fill, and may have lost IDs")

// markComplete marks sets complete that were filled after the servers had these IDs. A server
// that has another ID by now may have lost a part of the fill.
func (s *Set) markComplete(ctx context.Context, sets []*redisbf.Set, before serverIDs) error {
	if err := s.checkServers(ctx, before); err != nil {
		return err
	}
	for _, set := range sets {
		if err := set.MarkWhole(ctx); err != nil {
			return err
		}
	}
	err := s.checkServers(ctx, before)
	if err != nil {
		for _, set := range sets {
			err = errors.Join(err, set.Unmark(ctx))
		}
	}
	return err
}

func (s *Set) checkServers(ctx context.Context, before serverIDs) error {
	now, err := s.serverIDs(ctx)
	if err == nil && now != before {
		err = errServerRestarted
	}
	return err
}

// open creates the missing sets, and begins a load of each.
func (s *Set) open(ctx context.Context, sets []*redisbf.Set) error {
	for _, set := range sets {
		err := set.Open(ctx)
		if errors.Is(err, redisbf.ErrOtherSecret) && s.opts.Bits.Secret == [16]byte{} {
			// The secret in Redis was lost, so the bits are useless.
			err = errors.Join(set.Drop(ctx), set.Open(ctx))
		}
		if err == nil {
			err = set.Unmark(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rollDays records the last day with a segment, and drops the segments of old days.
func (s *Set) rollDays(ctx context.Context, t target, now *state) error {
	d, ok := t.(*days)
	if !ok {
		return nil
	}
	if err := d.dropOld(ctx); err != nil {
		s.log.Warn("segments of old days stay in Redis", "error", err,
			runbook.SetInRedis.Do("nothing: ordergate removes them the next day"))
	}
	now.LastDay = int(d.today() + 1)
	return s.write(ctx, now)
}

// bulkLoad adds all IDs to a set. Progress, which may be nil, is called about every second.
func (s *Set) bulkLoad(ctx context.Context, into target, progress func() error) error {
	s.idsRead.Store(0)
	s.filling.Store(true)
	defer s.filling.Store(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches, results := make(chan []string), make(chan error, workers)
	for range workers {
		go func() {
			var failed error
			for ids := range batches {
				if failed == nil {
					if failed = s.add(ctx, into, ids); failed != nil {
						cancel(failed)
					}
				}
			}
			results <- failed
		}()
	}
	next, lastProgress := make([]string, 0, batchSize), time.Now()
	flush := func() error {
		if len(next) == 0 {
			return nil
		}
		select {
		case batches <- next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next = make([]string, 0, batchSize)
		if progress != nil && time.Since(lastProgress) > time.Second {
			lastProgress = time.Now()
			return progress()
		}
		return nil
	}
	err := s.opts.Fill(ctx, func(id string) error {
		next = append(next, id)
		s.idsRead.Add(1)
		if len(next) == batchSize {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	close(batches)
	var failed error
	for range workers {
		failed = errors.Join(failed, <-results)
	}
	if failed != nil { // the cause of the other errors
		return failed
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// ErrFilled says that a set needs no trust: ordergate fills it from its sources.
var ErrFilled = errors.New("ordergate fills this filter from its sources and the change log: trust is for a filter that others fill")

// ErrNoneKnown says that Trust has no ID of an existing order to try the set with.
var ErrNoneKnown = errors.New("no order is known to try the filter with: name one that exists, by --known")

// Trust declares that the set has every existing ID. It is for a set that other programs fill,
// and the operator is responsible. The known IDs are of existing orders: without any the error is
// ErrNoneKnown, and a set that lacks one stays as it is. For a set that is not filled by others the
// error is ErrFilled: it may be half filled, or lack IDs before its checkpoints.
func (s *Set) Trust(ctx context.Context, known []string) error {
	if s.opts.Fill != nil {
		return ErrFilled
	}
	v, err := s.refresh(ctx)
	if err == nil {
		_, err = v.current.incomplete(ctx) // reopens a set that was created anew
	}
	if err != nil {
		return err
	}
	sets, err := v.current.sets()
	if err == nil {
		err = s.open(ctx, sets)
	}
	if err == nil {
		err = s.hasAll(ctx, v.current, known)
	}
	for _, set := range sets {
		if err != nil {
			return err
		}
		err = set.MarkWhole(ctx)
	}
	if err == nil {
		s.wake()
	}
	return err
}

// hasAll returns an error unless the bits of all known IDs are set.
func (s *Set) hasAll(ctx context.Context, set target, known []string) error {
	if len(known) == 0 {
		return ErrNoneKnown
	}
	for _, id := range s.opts.CanonicalForms.All(known) {
		answer, err := set.query(ctx, id)
		if err == nil && answer != presence.Maybe {
			err = fmt.Errorf("%w: %q: are codec and elements those of the Java service?", ErrLacks, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrLacks says that a set that should have every ID lacks one.
var ErrLacks = errors.New("the filter lacks an order that exists, and is not trusted")
