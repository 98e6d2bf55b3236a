package shared

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisbf"
)

// looks is how many times in ViewAge the state is read.
const looks = 2

const (
	// retryPause follows work that came to nothing.
	retryPause = 30 * time.Second
	// batch is how many IDs go to Redis at once, and lanes how many batches do.
	batch = 2_000
	lanes = 4
)

// Run keeps what is known of the set up to date until ctx ends, and fills the set,
// ends what another ordergate left undone, and makes it larger, whenever that is to
// be done. It returns nil.
func (s *Set) Run(ctx context.Context) error {
	tick := time.NewTicker(s.opts.ViewAge / looks)
	defer tick.Stop()
	var seen glances
	var failed time.Time
	// What is known is kept up to date while work is done, or waited for: another may
	// do it, and drop what this process would go on asking.
	working, done := false, make(chan error, 1)
	for {
		if s.examine(ctx, &seen) && !working && s.opts.Fill != nil && time.Since(failed) > s.opts.retry() {
			if task := s.task(); task != nil {
				working = true
				go func() {
					s.working.Lock()
					defer s.working.Unlock()
					done <- task(ctx)
				}()
			}
		}
		select {
		case <-ctx.Done():
			if working {
				_ = <-done // because of ctx
			}
			return nil
		case err := <-done:
			working, seen = false, glances{}
			s.failure.Store(nil)
			if err != nil && ctx.Err() == nil {
				failed = time.Now()
				s.failure.Store(&err)
				s.log.Error("the filter in Redis needs work that failed", "error", err)
			}
		case <-s.kick:
			failed, seen = time.Time{}, glances{}
		case <-tick.C:
		}
	}
}

// retry is short where everything is, in tests.
func (o *Options) retry() time.Duration { return min(retryPause, 15*o.ViewAge) }

// glances are when something was looked at last.
type glances struct{ marks, info time.Time }

// perShard bounds how often the marks are looked at: it takes a command for each
// shard. Whether a set is whole is seen with each answer; this is for what is done
// about it.
const perShard = 10 * time.Millisecond

// examine finds out how the set is, and, after InfoEvery, how full.
func (s *Set) examine(ctx context.Context, seen *glances) (asked bool) {
	v, err := s.look(ctx)
	if err != nil {
		s.ailing(err)
		return false
	}
	if time.Since(seen.marks) < time.Duration(v.Shards)*perShard {
		return true
	}
	lacking, err := v.current.lacking(ctx)
	if err != nil {
		s.ailing(err)
		return false
	}
	seen.marks = time.Now()
	s.warnOfEviction(ctx, v)
	was := s.health.Load()
	s.health.Store(&health{whole: len(lacking) == 0})
	if was.whole && len(lacking) > 0 && !s.turned(v, lacking) {
		s.log.Warn("the filter in Redis is not whole any more: nothing counts as absent until it has been filled again")
	}
	if time.Since(seen.info) < s.opts.InfoEvery {
		return true
	}
	info, err := v.current.info(ctx)
	if err != nil {
		s.ailing(err)
		return false
	}
	info.Generation = v.Generation
	s.info.Store(&info)
	seen.info = time.Now()
	return true
}

// warnOfEviction tells once if Redis may evict the set.
func (s *Set) warnOfEviction(ctx context.Context, v *view) {
	sets, err := v.current.sets()
	if s.warned || err != nil {
		return
	}
	warning, err := sets[0].CheckPolicy(ctx)
	if err != nil {
		return // next time
	}
	s.warned = true
	if warning != "" {
		s.log.Warn(warning)
	}
}

func (s *Set) ailing(err error) {
	if h := s.health.Load(); h.err == nil && h.whole {
		s.log.Warn("the filter in Redis cannot be asked", "error", err)
	}
	s.health.Store(&health{err: err})
}

// task returns what is to be done, or nil.
func (s *Set) task() func(context.Context) error {
	v := s.view.Load()
	switch {
	case !s.health.Load().whole && !s.tooFull():
		return s.fill
	case v.Next != 0 || v.Old != 0:
		return s.grow
	case s.tooFull() || s.opts.AtFill > 0 && v.Capacity < s.opts.Bits.Capacity:
		return s.grow
	}
	return nil
}

// tooFull goes by the last info.
func (s *Set) tooFull() bool {
	info, at := s.info.Load(), s.opts.AtFill
	if at == 0 || info.Capacity == 0 {
		return false
	}
	for _, part := range info.Parts {
		// Half of the bits are set at capacity.
		if float64(part.IDs) >= at*float64(part.Capacity) || part.FillRatio >= at/2 {
			return true
		}
	}
	return false
}

// turned is for sets with segments: tomorrow's is still to be made.
func (s *Set) turned(v *view, lacking []*redisbf.Set) bool {
	d, ok := v.current.(*days)
	return ok && d.turned(lacking, v.Made)
}

// inTurn does what one ordergate does at a time, with what is known anew.
func (s *Set) inTurn(ctx context.Context, do func(ctx context.Context, v *view, fence int64) error) error {
	work, fence, done, err := s.opts.Turn(ctx)
	if err != nil {
		return fmt.Errorf("waiting for its turn: %w", err)
	}
	defer done()
	v, err := s.look(work)
	if err == nil {
		err = do(work, v, fence)
	}
	if cause := context.Cause(work); err != nil && cause != nil {
		return cause
	}
	return err
}

// fill fills the parts that are not whole.
func (s *Set) fill(ctx context.Context) error {
	return s.inTurn(ctx, func(ctx context.Context, v *view, fence int64) error {
		lacking, err := v.current.lacking(ctx)
		if err != nil || len(lacking) == 0 {
			return err // another has filled it
		}
		now := v.state
		now.Fence = fence
		if err := s.write(ctx, &now); err != nil { // those before are out
			return err
		}
		turned := s.turned(v, lacking)
		if err := s.open(ctx, lacking); err != nil {
			return err
		}
		if !turned {
			s.log.Info("filling the filter in Redis")
			if err := s.pour(ctx, v.current, nil); err != nil {
				return err
			}
		}
		for _, set := range lacking {
			if err := set.MarkWhole(ctx); err != nil {
				return err
			}
		}
		return s.made(ctx, v.current, &now)
	})
}

// open makes the sets that are missing, and begins a load of each.
func (s *Set) open(ctx context.Context, sets []*redisbf.Set) error {
	for _, set := range sets {
		err := set.Open(ctx)
		if errors.Is(err, redisbf.ErrOtherSecret) && s.opts.Bits.Secret == [16]byte{} {
			// The secret that was kept in Redis was lost: nobody can use those bits.
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

// made notes the last day that has a segment, and drops those of old days.
func (s *Set) made(ctx context.Context, t target, now *state) error {
	d, ok := t.(*days)
	if !ok {
		return nil
	}
	if err := d.forget(ctx); err != nil {
		s.log.Warn("segments of old days stay in Redis", "error", err)
	}
	now.Made = int(d.today() + 1)
	return s.write(ctx, now)
}

// pour adds everything to a set. Progress, which may be nil, is called now and then.
func (s *Set) pour(ctx context.Context, into target, progress func() error) error {
	s.read.Store(0)
	s.filling.Store(true)
	defer s.filling.Store(false)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batches, results := make(chan []string), make(chan error, lanes)
	for range lanes {
		go func() {
			var failed error
			for ids := range batches {
				if failed == nil {
					if failed = into.add(ctx, ids); failed != nil {
						cancel(failed)
					}
				}
			}
			results <- failed
		}()
	}
	next, told := make([]string, 0, batch), time.Now()
	flush := func() error {
		if len(next) == 0 {
			return nil
		}
		select {
		case batches <- next:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		next = make([]string, 0, batch)
		if progress != nil && time.Since(told) > time.Second {
			told = time.Now()
			return progress()
		}
		return nil
	}
	err := s.opts.Fill(ctx, func(id string) error {
		next = append(next, id)
		s.read.Add(1)
		if len(next) == batch {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	close(batches)
	var failed error
	for range lanes {
		failed = errors.Join(failed, <-results)
	}
	if failed != nil { // the cause of what else went wrong
		return failed
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

// Expand makes the set larger, also where it is not too full. It blocks until the
// new generation has taken the place of the old, and that is dropped.
func (s *Set) Expand(ctx context.Context) error {
	if s.opts.AtFill == 0 {
		return fmt.Errorf("filter %s: %w", s.opts.Name, filter.ErrNoGrowth)
	}
	s.working.Lock()
	defer s.working.Unlock()
	before, err := s.look(ctx)
	if err != nil {
		return err
	}
	return s.expand(ctx, func(v *view) bool { return v.Generation == before.Generation })
}

// grow ends an expansion, or begins one if there is a need.
func (s *Set) grow(ctx context.Context) error {
	before := s.view.Load().Generation
	return s.expand(ctx, func(v *view) bool {
		// Another may have done it while this one waited.
		return v.Generation == before && (v.Capacity < s.opts.Bits.Capacity || s.tooFull())
	})
}

// expand makes a new generation, in steps each of which may be the last of this
// process. The next in turn goes on from the state.
//
//  1. The state names the next generation. After twice ViewAge everybody adds to
//     both, or looks before it says that it has added.
//  2. What there is in the sources and the log goes to the next generation.
//  3. It is declared whole: which is refused if another load of it has begun since.
//  4. The state names it as the current one, and the other as old, in one step.
//  5. After twice ViewAge, and a grace, nobody asks the old one any more, and it is
//     dropped. To a process that slept through that it is missing: Unknown.
//  6. The state forgets the old one.
func (s *Set) expand(ctx context.Context, wanted func(*view) bool) error {
	return s.inTurn(ctx, func(ctx context.Context, v *view, fence int64) error {
		now := v.state
		now.Fence = fence
		if now.Old != 0 {
			return s.retire(ctx, now)
		}
		if now.Next == 0 {
			if !wanted(v) {
				return nil
			}
			next, err := s.following(v)
			if err != nil {
				return err
			}
			now.Next, now.NextCapacity, now.NextShards = next.Number, next.Capacity, next.Shards
			now.BeganMS = s.opts.Now().UnixMilli()
		}
		now.Read = 0
		s.log.Info("filter grows", "from", now.Capacity, "to", now.NextCapacity, "generation", now.Next)
		next, err := s.begin(ctx, &now)
		if err != nil {
			return err
		}
		if err := s.replace(ctx, v.current, next, &now); err != nil {
			return err
		}
		s.log.Info("filter has grown", "to", now.Capacity, "generation", now.Generation, "ids", s.read.Load())
		return s.retire(ctx, now)
	})
}

// following returns the generation after that of a view.
func (s *Set) following(v *view) (generation, error) {
	g := v.state.current()
	g.Number++
	g.Capacity = max(uint64(math.Ceil(float64(g.Capacity)*s.opts.By)), s.opts.Bits.Capacity)
	bits := s.opts.Bits
	bits.Capacity, bits.Secret = g.Capacity, [16]byte{1} // any will do, for the arithmetic
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

// begin has everybody add to the next generation as well.
func (s *Set) begin(ctx context.Context, now *state) (target, error) {
	if err := s.write(ctx, now); err != nil {
		return nil, err
	}
	v, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if v.next == nil {
		return nil, errOvertaken
	}
	sets, err := v.next.sets()
	if err == nil {
		err = s.open(ctx, sets)
	}
	if err == nil {
		err = wait(ctx, 2*s.opts.ViewAge)
	}
	return v.next, err
}

// replace fills the next generation and puts it in the place of the current one.
func (s *Set) replace(ctx context.Context, current, next target, now *state) error {
	err := s.pour(ctx, next, func() error {
		now.Read = s.read.Load()
		return s.write(ctx, now)
	})
	if err != nil {
		return err
	}
	if err := s.compare(ctx, current, next); err != nil {
		return err
	}
	sets, err := next.sets()
	if err != nil {
		return err
	}
	for _, set := range sets {
		if err := set.MarkWhole(ctx); err != nil {
			return err
		}
	}
	now.Old, now.OldShards = now.Generation, now.Shards
	now.Generation, now.Capacity, now.Shards = now.Next, now.NextCapacity, now.NextShards
	now.Next, now.NextCapacity, now.NextShards = 0, 0, 0
	if err := s.write(ctx, now); err != nil {
		return err
	}
	if err := s.made(ctx, next, now); err != nil {
		return err
	}
	_, err = s.look(ctx)
	s.wake()
	return err
}

// sameWithin is how far two estimates of one number of IDs may be apart: both are
// right within a thousandth, and what is near its capacity takes some for known.
const sameWithin = 0.02

// compare refuses a generation that has fewer IDs than the one before it. That of
// a set far beyond its capacity is not known well, and errs upwards at the most.
func (s *Set) compare(ctx context.Context, current, next target) error {
	had, err := current.info(ctx)
	if err != nil {
		return err
	}
	has, err := next.info(ctx)
	if err != nil {
		return err
	}
	if float64(has.IDs) < float64(had.IDs)*(1-sameWithin)-8 && had.IDs <= 2*had.Capacity {
		return fmt.Errorf("only %d IDs were read again, of %d that are known", has.IDs, had.IDs)
	}
	return nil
}

// retire drops the old generation once nobody asks it any more.
func (s *Set) retire(ctx context.Context, now state) error {
	if err := s.write(ctx, &now); err != nil { // those before are out
		return err
	}
	if err := wait(ctx, 2*s.opts.ViewAge+s.opts.Grace); err != nil {
		return err
	}
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	if v.last != nil {
		if err := v.last.drop(ctx); err != nil {
			return err
		}
	}
	now.Old, now.OldShards = 0, 0
	now.Read, now.BeganMS = 0, 0
	if err := s.write(ctx, &now); err != nil {
		return err
	}
	_, err = s.look(ctx)
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// Trust declares that the set has every ID there is: for one that others fill. Whoever
// says so answers for it.
func (s *Set) Trust(ctx context.Context) error {
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	sets, err := v.current.sets()
	if err == nil {
		err = s.open(ctx, sets)
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

// Info tells of the set, as of at most InfoEvery ago, and of what is done to it.
func (s *Set) Info() Info { return *s.info.Load() }
