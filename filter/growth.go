package filter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// Growth configures when and how a filter grows while it is in use.
type Growth struct {
	AtFill float64 // share of the capacity, or of the bits set at capacity: above 0, at most 1
	By     float64 // factor of the capacity: 1.1 to 16
	Max    uint64  // most IDs of all parts together that growth gives space for; 0: no limit

	// Rescan calls add with every existing ID: of the sources, and of the change log up to its
	// end at a moment after the call. With it the filter is rebuilt to grow. Without it, or if
	// it returns [ErrForgotten] or fewer IDs than the filter has, the filter gets one more layer.
	Rescan func(ctx context.Context, add func(id string) error) error
	// LeaderLock waits until this process may rescan: the instances of a deployment do it one
	// after the other. done releases the lock. The context work ends when the lock is lost.
	// Nil: no lock.
	LeaderLock func(ctx context.Context) (work context.Context, done func(), err error)
	// OnGrown is called after the capacity has changed. It must not block. May be nil.
	OnGrown func(capacity uint64)
}

// Expansion describes the present growth of a filter, or the last one.
type Expansion struct {
	Generation int       // 1 at the start; each growth adds 1
	Running    bool      // the filter is growing
	From, To   uint64    // capacities
	Read       uint64    // IDs in the new generation so far
	Began      time.Time // zero: never
	Took       time.Duration
	Err        string // error of the last attempt
}

const (
	// growthCheckEvery is the time between two checks of a filter whose IDs may be miscounted.
	// An added ID wakes the loop earlier.
	growthCheckEvery = 10 * time.Second
	// growthRetryAfter is the pause after a failed attempt.
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

// remaining returns the number of IDs by which a filter of this capacity may still grow.
func (g *Growth) remaining(capacity uint64) uint64 {
	if g.Max == 0 {
		return math.MaxUint64
	}
	return g.Max - min(g.Max, capacity)
}

// nextCapacity returns the capacity after the next growth.
func (g *Growth) nextCapacity(capacity uint64) uint64 {
	return capacity + min(scaled(capacity, g.By)-capacity, g.remaining(capacity))
}

// AtMax reports whether the filter is too full and has the greatest capacity that its
// configuration allows. Then more and more absent IDs pass.
func (f *Filter) AtMax() bool {
	if f.opts.Remote != nil {
		return f.opts.Remote.AtMax()
	}
	return f.atMax.Load() && f.opts.Growth.remaining(f.Capacity()) == 0
}

// noteMax logs once that the filter cannot grow when it should.
func (f *Filter) noteMax() {
	if f.atMax.CompareAndSwap(false, true) {
		f.log.Error("filter is too full, and has the greatest capacity that expand.max allows: more absent orders will pass", "max", f.opts.Growth.Max,
			runbook.FilterFull.Do("raise expand.max"))
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

// growLoop expands the filter whenever it is too full, until ctx ends.
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
		if !f.tooFull() { // or no longer
			continue
		}
		switch err := f.Expand(ctx); {
		case err == nil:
			f.atMax.Store(false) // dropped days have freed space
		case ctx.Err() != nil:
		case errors.Is(err, ErrAtMax):
			f.noteMax()
		default:
			f.log.Error("filter did not grow", "error", err,
				runbook.FilterFull.Do("repair what error names; ordergate tries again"))
			_ = wait.For(ctx, growthRetryAfter)
		}
	}
}

// tooFull also checks the set bits.
func (f *Filter) tooFull() bool {
	for _, s := range f.memory.current().parts() {
		if s.isFullByBits(f.opts.Growth.AtFill) {
			return true
		}
	}
	return false
}

// onFill wakes growLoop if a part is too full. A part that has used up its capacity gets a
// layer at once, even during a rebuild: with each further ID more absent IDs would pass.
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
			f.log.Error("filter is over its capacity and cannot grow: more absent orders will pass", "error", err,
				runbook.FilterFull.Do("repair what error names, or raise capacity"))
		}
	}
	select {
	case f.needsResizing <- struct{}{}:
	default: // the signal is pending
	}
}

// growMemory adds a layer to a part that has used up its capacity. It is for memory that only
// saves queries to a [Remote]: the number of its IDs is not known beforehand.
func (f *Filter) growMemory(s *scalable) {
	if !s.isFull(1) {
		return
	}
	if err := s.addLayer(2, 1, math.MaxUint64); err != nil && f.overCapacity.CompareAndSwap(false, true) {
		f.log.Error("memory is over its capacity and cannot grow: more absent orders will pass", "error", err,
			runbook.FilterFull.Do("give ordergate more memory, and restart it"))
	}
}

// ErrForgotten says that some IDs can no longer be read from anywhere.
var ErrForgotten = errors.New("not every ID can be read again")

// ErrNoGrowth says that a filter has no [Growth].
var ErrNoGrowth = errors.New("expand is not configured")

// ErrAtMax says that a filter has the greatest capacity that [Growth] allows.
var ErrAtMax = errors.New("the filter has the greatest capacity that expand.max allows")

// addLayer gives a part one more layer, unless its last one is filled less than to the share
// at. The error is ErrAtMax, or that of [New].
func (f *Filter) addLayer(s *scalable, at float64) error {
	f.layerMu.Lock() // or two parts could use the same allowance
	defer f.layerMu.Unlock()
	g := f.opts.Growth
	return s.addLayer(g.By, at, g.remaining(f.Capacity()))
}

// Expand makes the filter larger now, even if it is not too full. Lookups never wait for it,
// and no ID is lost. It blocks until the filter has grown; a rebuild takes as long as a rescan.
// After an error the filter is unchanged.
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
	// A filter that is loading cannot rescan yet. A part for one day gets a layer: that is
	// cheap.
	if g.Rescan == nil || f.opts.Segments != nil || f.status.Load().state != StateReady {
		err = f.addLayers(g)
	} else if err = f.rebuild(ctx, g); errors.Is(err, ErrForgotten) {
		f.log.Warn("the filter is not rebuilt to grow, it gets one more layer", "reason", err,
			runbook.FilterFull.Do("nothing: a lookup asks one more layer until a restart"))
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

// Reserve sets a larger capacity at the start: the one that other instances have grown to. It
// is for an empty filter without segments. Call it before anything is added; later, or if the
// capacity suffices, it does nothing. The error is that of [New].
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

// addLayers grows the parts that are too full, or all if none is.
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
			return nil // some parts have grown
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rebuild reads everything into a larger store, which then replaces the old one.
//
//  1. From begin on, every add goes to both stores.
//  2. Rescan starts after that. So its IDs and the added ones are all IDs: an ID that was
//     added before begin is in a source, in the log, or pending.
//  3. The pending IDs are added too. An ID leaves the pending writes only when it is in the
//     log. So they are read before Rescan.
//  4. The new store must not have fewer IDs than the old one.
func (f *Filter) rebuild(ctx context.Context, g *Growth) error {
	if g.LeaderLock != nil {
		work, done, err := g.LeaderLock(ctx)
		if err != nil {
			return fmt.Errorf("waiting for the leader lock: %w", err)
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
	if had, has := countAll(old), next.count(); has < had {
		f.memory.abandon()
		return fmt.Errorf("%w: only %d IDs were read again, of %d in the filter", ErrForgotten, has, had)
	}
	f.memory.finish(next)
	return nil
}

// refill adds everything to the next store. If that becomes too small as well it gets a layer:
// the old one may have been too full to count its IDs.
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
