package filter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Growth says when and how a filter grows while it is in use.
type Growth struct {
	AtFill float64 // share of the capacity, or of the bits that are set at capacity: above 0, at most 1
	By     float64 // how many times its capacity it has then: 1.1 to 16
	Max    uint64  // IDs, of all parts together, that no growth goes beyond; 0: none

	// Again calls add with every ID that there is: of the sources, and of the change
	// log up to where it ends at a moment after the call. With it a filter that grows
	// is built anew; without it, and where it returns [ErrForgotten], it gets one more
	// layer.
	Rescan func(ctx context.Context, add func(id string) error) error
	// Turn waits until this process may read everything again, so that those of one
	// deployment do it one after the other; done ends that. Ctx of the work ends when
	// the turn is lost. Nil: at once.
	LeaderLock func(ctx context.Context) (work context.Context, done func(), err error)
	// Grew is told when the capacity has changed. It must not block. May be nil.
	OnGrown func(capacity uint64)
}

// Expansion is what a filter does, or did last, to grow.
type Expansion struct {
	Generation int       // 1 at the start, and one more each time
	Running    bool      // a new generation is being built
	From, To   uint64    // capacities
	Read       uint64    // IDs that the new generation was given so far
	Began      time.Time // zero: it never grew
	Took       time.Duration
	Err        string // why the last attempt came to nothing
}

const (
	// growthTick is how often a filter is looked at whose IDs need not be counted
	// right. What is added wakes it earlier.
	growthCheckEvery = 10 * time.Second
	// growthPause follows an attempt that failed.
	growthRetryAfter = 30 * time.Second
	maxGrowth        = 16
	minGrowth        = 1.1
)

func (g *Growth) check() error {
	if !(g.AtFill > 0 && g.AtFill <= 1) {
		return fmt.Errorf("growing at a fill of %g: must be above 0 and at most 1", g.AtFill)
	}
	if !(g.By >= minGrowth && g.By <= maxGrowth) {
		return fmt.Errorf("growing by %g: must be %g to %d", g.By, minGrowth, maxGrowth)
	}
	return nil
}

// left returns how many IDs a filter with room for so many may yet get room for.
func (g *Growth) remaining(capacity uint64) uint64 {
	if g.Max == 0 {
		return math.MaxUint64
	}
	return g.Max - min(g.Max, capacity)
}

// larger returns the capacity after the next growth.
func (g *Growth) nextCapacity(capacity uint64) uint64 {
	return capacity + min(scaled(capacity, g.By)-capacity, g.remaining(capacity))
}

// AtMax reports whether the filter is too full and has all the room that its configuration
// allows: more and more absent IDs pass.
func (f *Filter) AtMax() bool {
	if f.opts.Remote != nil {
		return f.opts.Remote.AtMax()
	}
	return f.atMax.Load() && f.opts.Growth.remaining(f.Capacity()) == 0
}

// noteMax logs, once, that the filter cannot grow when it should.
func (f *Filter) noteMax() {
	if f.atMax.CompareAndSwap(false, true) {
		f.log.Error("filter is too full, and has all the room that expand.max allows: more absent orders will pass; raise expand.max", "max", f.opts.Growth.Max)
	}
}

// Expansion returns what the filter does, or did last, to grow.
func (f *Filter) Expansion() Expansion {
	f.expansionMu.Lock()
	defer f.expansionMu.Unlock()
	e := f.expansion
	e.Read = f.rescanned.Load()
	return e
}

// BitsVersion returns a number that changes when other bits replace all bits of the filter.
// One more layer or day does not change it.
func (f *Filter) BitsVersion() uint64 {
	switch {
	case f.opts.Remote != nil:
		return f.opts.Remote.Size().Capacity
	case f.opts.Growth == nil || f.opts.Growth.Rescan == nil:
		return 0
	}
	return uint64(f.Expansion().Generation)
}

// grow expands the filter whenever it has become too full, until ctx ends.
func (f *Filter) growLoop(ctx context.Context) {
	tick := time.NewTicker(growthCheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.needsResizing:
		case <-tick.C:
		}
		if !f.tooFull() { // or not any more
			continue
		}
		switch err := f.Expand(ctx); {
		case err == nil:
			f.atMax.Store(false) // days that are gone have made room
		case ctx.Err() != nil:
		case errors.Is(err, ErrAtMax):
			f.noteMax()
		default:
			f.log.Error("filter did not grow", "error", err)
			waitFor(ctx, growthRetryAfter)
		}
	}
}

func waitFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// tooFull looks at the bits as well.
func (f *Filter) tooFull() bool {
	for _, s := range f.memory.current().parts() {
		if s.isFullByBits(f.opts.Growth.AtFill) {
			return true
		}
	}
	return false
}

// noteCrowd wakes grow if a part has become too full. One whose capacity is used up
// gets a layer at once: it must not fill on until it takes every ID for known, not
// even while it is being rebuilt.
func (f *Filter) onFill(s *scalable) {
	g := f.opts.Growth
	if !s.isFull(g.AtFill) {
		return
	}
	if g.remaining(f.Capacity()) == 0 {
		f.noteMax()
		return
	}
	if s.isFull(1) {
		err := f.addLayer(s, 1)
		if err != nil && !errors.Is(err, ErrAtMax) && f.overCapacity.CompareAndSwap(false, true) {
			f.log.Error("filter is over its capacity and cannot grow: more absent orders will pass", "error", err)
		}
	}
	select {
	case f.needsResizing <- struct{}{}:
	default: // it knows
	}
}

// makeRoom adds a layer to a part whose capacity is used up, if it is one that only
// spares questions to a [Remote]: how many it will have nobody knows.
func (f *Filter) growMemory(s *scalable) {
	if !s.isFull(1) {
		return
	}
	if err := s.addLayer(2, 1, math.MaxUint64); err != nil && f.overCapacity.CompareAndSwap(false, true) {
		f.log.Error("memory is over its capacity and cannot grow: more absent orders will pass", "error", err)
	}
}

// ErrForgotten says that there are IDs which nobody can tell any more.
var ErrForgotten = errors.New("the IDs themselves are kept no more")

// ErrNoGrowth says that a filter was made without [Growth].
var ErrNoGrowth = errors.New("the filter's configuration lets it not grow")

// ErrAtMax says that a filter has all the room that [Growth] allows.
var ErrAtMax = errors.New("the filter has all the room that expand.max allows")

// addLayer gives a part one more layer, unless its last one is filled less than to the share
// at. The error is ErrAtMax, or that of [New].
func (f *Filter) addLayer(s *scalable, at float64) error {
	f.layerMu.Lock() // or two parts could take the same room
	defer f.layerMu.Unlock()
	g := f.opts.Growth
	return s.addLayer(g.By, at, g.remaining(f.Capacity()))
}

// Expand makes the filter larger now, whether it is too full or not. Lookups never
// wait for it and lose nothing. It blocks until the filter has grown, while it is
// rebuilt as long as it takes to read everything again. After an error the filter
// is what it was.
func (f *Filter) Expand(ctx context.Context) error {
	if f.opts.Remote != nil {
		return f.opts.Remote.Expand(ctx)
	}
	g := f.opts.Growth
	if g == nil {
		return fmt.Errorf("filter %s: %w", f.name, ErrNoGrowth)
	}
	f.rebuildMu.Lock() // one at a time
	defer f.rebuildMu.Unlock()
	from := f.Capacity()
	if g.remaining(from) == 0 {
		return fmt.Errorf("filter %s: %w: %d IDs", f.name, ErrAtMax, g.Max)
	}
	f.setExpansion(func(e *Expansion) {
		*e = Expansion{Generation: e.Generation, Running: true, From: from, To: g.nextCapacity(from), Began: f.opts.Now()}
	})
	f.rescanned.Store(0)
	var err error
	// What is being read for the first time can't be read again yet, and a part for
	// one day alone is cheap to add to.
	if g.Rescan == nil || f.opts.Segments != nil || f.status.Load().state != StateReady {
		err = f.addLayers(g)
	} else if err = f.rebuild(ctx, g); errors.Is(err, ErrForgotten) {
		err = f.addLayers(g)
	}
	to := f.Capacity()
	f.setExpansion(func(e *Expansion) {
		e.Running, e.Took, e.To = false, f.opts.Now().Sub(e.Began), to
		if err != nil {
			e.Err = err.Error()
		} else {
			e.Generation++
		}
	})
	if err != nil {
		return fmt.Errorf("filter %s: growing: %w", f.name, err)
	}
	f.log.Info("filter has grown", "from", from, "to", to, "ids", f.Count())
	if g.OnGrown != nil {
		g.OnGrown(to)
	}
	return nil
}

// Reserve makes room for so many IDs at once, where others have grown so far. It is
// for a filter without segments to which nothing was added, and must return before
// anything is; otherwise, and where there is room, it does nothing. The error is that
// of [New].
func (f *Filter) Reserve(capacity uint64) error {
	if g := f.opts.Growth; g != nil && g.Max > 0 {
		capacity = min(capacity, g.Max)
	}
	if f.opts.Segments != nil || capacity <= f.Capacity() || f.CountInMemory() > 0 {
		return nil
	}
	larger, err := newScalable(f.name, capacity, f.layerMaker(f.opts.FalsePositiveRate))
	if err != nil {
		return fmt.Errorf("filter %s: %w", f.name, err)
	}
	f.memory.start(larger)
	return nil
}

func (f *Filter) setExpansion(change func(*Expansion)) {
	f.expansionMu.Lock()
	defer f.expansionMu.Unlock()
	change(&f.expansion)
}

func scaled(n uint64, by float64) uint64 { return uint64(math.Ceil(float64(n) * by)) }

// addLayers grows the stacks that are too full, or all if none is.
func (f *Filter) addLayers(g *Growth) error {
	all := f.memory.current().parts()
	var full []*scalable
	for _, s := range all {
		if s.isFullByBits(g.AtFill) {
			full = append(full, s)
		}
	}
	if len(full) == 0 {
		full = all
	}
	for i, s := range full {
		err := f.addLayer(s, 0)
		if errors.Is(err, ErrAtMax) && i > 0 {
			return nil // some have grown
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rebuild reads everything again into a larger set and puts it in place of the old.
//
//  1. From begin on, whatever is added goes to both sets.
//  2. Again starts after that, so what it reads and what was added since are all
//     there is: an ID that was added before begin is in a source or in the log, or
//     is pending.
//  3. What is pending, known here and acknowledged by nobody, is added too. It
//     leaves pending only once it is in the log; so it is looked at before Again.
//  4. The new set must not have fewer IDs than the old one, but for those that one
//     of the two took for known.
func (f *Filter) rebuild(ctx context.Context, g *Growth) error {
	if g.LeaderLock != nil {
		work, done, err := g.LeaderLock(ctx)
		if err != nil {
			return fmt.Errorf("waiting for its turn: %w", err)
		}
		defer done()
		ctx = work
	}
	old := f.memory.current()
	next, err := newScalable(f.name, g.nextCapacity(f.Capacity()), f.layerMaker(f.opts.FalsePositiveRate))
	if err != nil {
		return err
	}
	f.memory.begin(next)
	if err := f.refill(ctx, g, next); err != nil {
		f.memory.abandon()
		return err
	}
	if had, has := countAll(old), next.count(); float64(has) < float64(had)*(1-2*f.opts.FalsePositiveRate)-8 {
		f.memory.abandon()
		return fmt.Errorf("only %d IDs were read again, of %d that are known", has, had)
	}
	f.memory.finish(next)
	return nil
}

// refill gives the next set everything. Should it be too small as well, since the
// old one was so full that IDs were no longer counted, it grows by a layer.
func (f *Filter) refill(ctx context.Context, g *Growth, next *scalable) error {
	add := func(id string) (err error) {
		f.opts.CanonicalForms.each(id, func(form string) {
			if _, changed := next.add(form); changed && next.isFull(g.AtFill) {
				if more := next.addLayer(g.By, g.AtFill, g.remaining(next.capacity())); !errors.Is(more, ErrAtMax) {
					err = errors.Join(err, more)
				}
			}
		})
		return err
	}
	for _, id := range f.pendingIDs() {
		if err := add(id); err != nil {
			return err
		}
	}
	err := g.Rescan(ctx, func(id string) error {
		f.rescanned.Add(1)
		return add(id)
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return err
}

func countAll(h idStore) (n uint64) {
	for _, s := range h.parts() {
		n += s.count()
	}
	return n
}
