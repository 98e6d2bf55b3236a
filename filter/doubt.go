package filter

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Doubt says that there may be orders which the filter should have and has not; all
// were created before it is told of, or within Late. Nothing is absent until it is cleared.
type Doubt struct {
	Reason string // one line
	// Cure is what clears it, of a filter whose sources do not tell of each order as soon
	// as it exists. Those that do clear every doubt by being read again.
	Cure Cure
	// Late is for how long orders that it is about may yet be created: a reading clears it
	// that begins after that. 0: they have been.
	Late time.Duration
}

// Cure is what clears a doubt. The greater one clears the smaller ones, too.
type Cure int8

// The cures.
const (
	Settling Cure = iota // time, in which others say what they know
	Reading              // reading the sources again, whatever they are
	Operator             // somebody who says that the sources have every order
)

// doubts are those that are not cleared. They are replaced, not changed.
type doubts struct {
	seen   uint64    // how many there ever were, with the last of these
	reason string    // of the last
	cure   Cure      // the greatest
	over   time.Time // when the last of their orders has been created
}

// Doubt makes every negative Unknown until the doubt is cleared. When it returns this
// holds for every MayContain whose barrier has not returned. It never blocks.
func (f *Filter) Doubt(d Doubt) {
	f.mu.Lock()
	f.doubtsSeen++
	next := &doubts{seen: f.doubtsSeen, reason: d.Reason, cure: d.Cure, over: time.Now().Add(d.Late)}
	if now := f.doubts.Load(); now != nil {
		next.cure = max(next.cure, now.cure)
		if now.over.After(next.over) {
			next.over = now.over
		}
	}
	f.doubts.Store(next)
	f.mu.Unlock()
	select {
	case f.doubted <- struct{}{}:
	default: // told already
	}
}

// Doubted is received from after a doubt; a receiver may find that it was cleared.
func (f *Filter) Doubted() <-chan struct{} { return f.doubted }

// Doubts returns what is needed to clear all doubts that there are, and their reason;
// false if there are none.
func (f *Filter) Doubts() (cure Cure, reason string, ok bool) {
	if d := f.doubts.Load(); d != nil {
		return d.cure, d.reason, true
	}
	return 0, "", false
}

// DoubtsLast returns for how long no reading can clear the doubts that there are: orders
// that they are about may yet be created.
func (f *Filter) DoubtsLast() time.Duration {
	d := f.doubts.Load()
	if d == nil {
		return 0
	}
	return max(0, time.Until(d.over))
}

// doubtsSoFar returns a number for clearDoubts: of those that what begins now can clear.
func (f *Filter) doubtsSoFar() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.DoubtsLast() > 0 {
		return 0
	}
	return f.doubtsSeen
}

// clearDoubts clears all doubts if there is none since the number was taken. Whoever
// clears has added first what the doubts were about: who sees no doubt sees the IDs.
func (f *Filter) clearDoubts(soFar uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.doubtsSeen == soFar && f.doubts.Swap(nil) != nil {
		f.log.Info("there is no doubt any more, orders count as absent again")
	}
}

// Settle clears the doubts that there are if time clears them: that which passes in
// the call of pass, without a doubt in between. It returns pass's error.
func (f *Filter) Settle(ctx context.Context, pass func(ctx context.Context) error) error {
	soFar := f.doubtsSoFar()
	if needed, _, ok := f.Doubts(); !ok || needed != Settling {
		return nil
	}
	if err := pass(ctx); err != nil {
		return err
	}
	f.clearDoubts(soFar)
	return nil
}

// CatchUp clears the doubts that there are by a reading that begins now: of the part of
// the sources that is new, which has to have every order that was created before the
// call. What it adds is added here, and to the remote set. It returns read's first
// error. A doubt that comes meanwhile stays, and so do the others.
func (f *Filter) CatchUp(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	if _, _, ok := f.Doubts(); !ok {
		return nil
	}
	return f.Reload(ctx, read)
}

// Reload reads sources while the filter goes on as it is, and clears all doubts from
// before the call. What read adds is added here, and to the remote set. It returns
// read's first error.
func (f *Filter) Reload(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	soFar := f.doubtsSoFar()
	batch := make([]string, 0, remoteBatch)
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := f.opts.Remote.Add(ctx, batch...)
		batch = batch[:0]
		return err
	}
	err := read(ctx, func(id string) error {
		f.Add(id)
		if f.opts.Remote == nil {
			return nil
		}
		if batch = append(batch, strings.Clone(id)); len(batch) < remoteBatch {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("filter %s: reading again: %w", f.name, err)
	}
	f.clearDoubts(soFar)
	return nil
}

// remoteBatch is how many IDs are added to a remote set at once.
const remoteBatch = 500

// certain reports whether what the filter does not have does not exist, as far as it
// was told.
func (f *Filter) certain() bool {
	s := f.status.Load()
	return (s.state == StateReady || f.opts.Remote != nil && !s.final) && f.doubts.Load() == nil
}
