package filter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Learn makes a new order known. It blocks until the Appender has acknowledged the
// ID, and then returns nil: from now on no filter that follows the same change log
// answers Absent for it. The answer to a create must not reach the client earlier.
//
// After an error the ID is known here, and kept for [Filter.Run] to try again, but
// other ordergates may still answer Absent. An ID that is empty or longer than
// [MaxIDBytes] cannot be told to anyone and taints the filter.
func (f *Filter) Learn(ctx context.Context, id string) error {
	// Here first: whatever becomes of the rest, this process knows. An ID that turns
	// out not to be acknowledged only makes one more Maybe.
	f.Add(id)
	if f.opts.Appender == nil {
		return nil
	}
	if len(id) == 0 || len(id) > MaxIDBytes {
		err := fmt.Errorf("filter %s: learning an ID of %d bytes: must be 1 to %d", f.name, len(id), MaxIDBytes)
		f.Taint(err.Error())
		return err
	}
	err := f.tellOthers(ctx, id)
	if err != nil {
		f.keep(id, err)
	}
	// Again: a rebuild may have begun after the first time, and have read the log
	// before the ID was in it.
	f.Add(id)
	if f.missed(err) {
		return fmt.Errorf("filter %s: learning: %w", f.name, err)
	}
	return nil
}

// keep holds an ID for another try. One that finds no room is lost to the other
// ordergates for good: no negative can be trusted then, unless it is in the log.
func (f *Filter) keep(id string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) >= f.opts.MaxPending {
		if !f.missed(err) {
			return
		}
		f.Taint(fmt.Sprintf("more than %d new orders could not be told to the other ordergates", f.opts.MaxPending))
		return
	}
	f.pending = append(f.pending, id)
	select {
	case f.retry <- struct{}{}:
	default: // Run knows already
	}
}

// pendingIDs returns what is learned and not acknowledged yet.
func (f *Filter) pendingIDs() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pending)
}

// Pending returns how many IDs wait to be told to the other ordergates.
func (f *Filter) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Run does what a filter needs besides answers, until ctx ends: it drops the
// segments of days that are kept no more, grows a filter that has become too full,
// and tells the other ordergates, in order, of the IDs whose Learn could not,
// trying every [Options.RetryEvery] until it succeeds. It returns nil, after one
// last try of that within [Options.AppendTimeout].
func (f *Filter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if f.opts.Growth != nil {
		wg.Go(func() { f.grow(ctx) })
	}
	if f.opts.Segments != nil {
		wg.Go(func() { f.forget(ctx) })
	}
	return f.tell(ctx)
}

// tell appends what is pending, until ctx ends.
func (f *Filter) tell(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			f.lastTry(ctx)
			return nil
		case <-f.retry:
		}
		for tries := 0; ; tries++ {
			err := f.appendPending(ctx)
			if err == nil {
				break
			}
			if tries == 0 { // one line for an outage, however long
				f.log.Warn("other ordergates do not know of new orders yet", "pending", f.Pending(), "error", err)
			}
			pause := time.NewTimer(f.opts.RetryEvery)
			select {
			case <-ctx.Done():
				pause.Stop()
				f.lastTry(ctx)
				return nil
			case <-pause.C:
			}
		}
	}
}

// appendPending tries what is pending, the oldest first, until one fails; nil
// means that nothing is left.
func (f *Filter) appendPending(ctx context.Context) error {
	for {
		f.mu.Lock()
		if len(f.pending) == 0 {
			f.pending = nil // give the memory of a long outage back
			f.mu.Unlock()
			return nil
		}
		id := f.pending[0]
		f.mu.Unlock()
		if err := f.appendOnce(ctx, id); err != nil {
			return err
		}
		// Only Run takes from the front, so that is still the same ID.
		f.mu.Lock()
		f.pending = f.pending[1:]
		f.mu.Unlock()
	}
}

func (f *Filter) appendOnce(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, f.opts.AppendTimeout)
	defer cancel()
	return f.tellOthers(ctx, id)
}

// lastTry is for a process that ends: what it does not tell now nobody will.
func (f *Filter) lastTry(ctx context.Context) {
	if f.Pending() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.opts.AppendTimeout)
	defer cancel()
	if err := f.appendPending(ctx); err != nil {
		f.log.Error("ending with new orders that the other ordergates do not know of", "lost", f.Pending(), "error", err)
	}
}
