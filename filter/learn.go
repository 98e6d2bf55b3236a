package filter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// learned is what the other ordergates do not know of yet.
type pendingWrite struct {
	id           string
	reason       string    // instead of the ID: why nobody knows it
	since        time.Time // with missed: when the order was created at the earliest; zero: at any time
	mayBeCreated bool      // with missed: it may yet be created
	doubt        uint64    // with missed: the number of the doubt here
	anyOrder     bool      // with missed: it stands for whatever found no room
}

// ErrExposed says that another ordergate may answer Absent for an order that was
// created here.
var ErrExposed = errors.New("another ordergate may answer absent for the new order")

// Learn makes a new order known. It blocks until the Appender has spread the
// ID, and then returns nil: from now on no filter that follows the same change log
// answers Absent for it. The answer to a create must not reach the client earlier.
//
// After an error the ID is known here, and kept for [Filter.Run] to try again; the
// others answer Unknown until then, for whatever they do not have, unless the error
// is [ErrExposed]. An ID that is empty or longer than [MaxIDBytes] is one that nobody
// knows, see [Filter.Missed].
func (f *Filter) Learn(ctx context.Context, id string) error {
	if len(id) == 0 || len(id) > MaxIDBytes {
		reason := fmt.Sprintf("an ID of %d bytes: must be 1 to %d", len(id), MaxIDBytes)
		return errors.Join(fmt.Errorf("filter %s: learning %s", f.name, reason), f.MarkIncomplete(ctx, reason, time.Time{}))
	}
	// Here first: whatever becomes of the rest, this process knows. An ID that turns
	// out not to be acknowledged only makes one more Maybe.
	f.Add(id)
	if f.opts.Appender == nil {
		return nil
	}
	err := f.publish(ctx, pendingWrite{id: id})
	// Again: a rebuild may have begun after the first time, and have read the log
	// before the ID was in it.
	f.Add(id)
	return err
}

// Missed says that an order was created whose ID could not be learned, for the given
// reason, and not before the call that created it began; zero: that is not known. It
// blocks, and returns, as Learn does: from then on nothing that the order's ID may be is
// absent anywhere until the sources have been read again. A flood of it is told in the log
// once for each time that it brings doubt.
func (f *Filter) MarkIncomplete(ctx context.Context, reason string, began time.Time) error {
	return f.markIncomplete(ctx, pendingWrite{reason: reason, since: began}, 0)
}

func (f *Filter) markIncomplete(ctx context.Context, what pendingWrite, late time.Duration) error {
	if _, _, doubted := f.Doubts(); !doubted {
		f.log.Error("there may be an order whose ID is not known: IDs that it may have do not count as absent until the sources were read again", "reason", what.reason)
	}
	what.since = what.since.Truncate(time.Millisecond) // as the log has it
	// Here first, as above. The log brings it once more.
	what.doubt = f.addDoubt(Doubt{Reason: what.reason, Recovery: ByOperator, Orders: true, Since: what.since, Late: late}, true)
	if f.opts.Appender == nil {
		return fmt.Errorf("filter %s: %s", f.name, what.reason)
	}
	return f.publish(ctx, what)
}

// LearnAll makes several orders known, for somebody who can try again and tells nobody
// of them before. It blocks until the Appender has spread them. After an error
// some may be known.
func (f *Filter) LearnAll(ctx context.Context, ids []string) error {
	add := func() {
		for _, id := range ids {
			f.Add(id)
		}
	}
	add()
	if f.opts.Appender == nil {
		return nil
	}
	if err := f.opts.Appender.Record(ctx, ids...); err != nil {
		return fmt.Errorf("filter %s: learning: %w", f.name, err)
	}
	add() // again, as in Learn
	if f.opts.Remote != nil {
		if err := f.opts.Remote.Add(ctx, ids...); err != nil && f.opts.Window == nil {
			return fmt.Errorf("filter %s: learning: %w", f.name, err)
		}
	}
	if err := f.opts.Appender.Spread(ctx); err != nil {
		return fmt.Errorf("filter %s: learning: %w", f.name, err)
	}
	return nil
}

// tell makes something known to the others, or sees that they know that they do not
// know.
func (f *Filter) publish(ctx context.Context, what pendingWrite) error {
	err := f.appendBatch(ctx, []pendingWrite{what})
	if err != nil {
		f.enqueueRetry(what, err)
	}
	if !f.peersUninformed(err) {
		if err := f.opts.Appender.Spread(ctx); err != nil {
			return fmt.Errorf("filter %s: learning: %w: %w", f.name, ErrExposed, err)
		}
		return nil
	}
	if f.opts.Window == nil {
		return fmt.Errorf("filter %s: learning: %w: %w", f.name, ErrExposed, err)
	}
	if withdrawn := f.opts.Appender.Withdraw(ctx); withdrawn != nil {
		return fmt.Errorf("filter %s: learning: %w: %w; %w", f.name, ErrExposed, err, withdrawn)
	}
	return fmt.Errorf("filter %s: learning: %w", f.name, err)
}

// within appends a batch, see nextBatch, and takes [Options.AppendTimeout] at most.
func (f *Filter) appendBatch(ctx context.Context, batch []pendingWrite) error {
	ctx, cancel := context.WithTimeout(ctx, f.opts.AppendTimeout)
	defer cancel()
	if what := batch[0]; what.id == "" {
		miss := f.opts.Appender.AppendIncomplete
		if what.mayBeCreated {
			miss = f.opts.Appender.AppendAbandoned
		}
		known := f.markDoubts()
		at, err := miss(ctx, what.reason, what.since)
		switch {
		case err != nil || at == (Entry{}):
		case what.anyOrder:
			f.setEntries(known.number, at)
		default:
			f.setEntry(what.doubt, at)
		}
		return err
	}
	ids := make([]string, len(batch))
	for i, what := range batch {
		ids[i] = what.id
	}
	return f.appendAndStore(ctx, ids...)
}

// keep holds something for another try. What finds no room is lost to the others: there
// is a doubt then instead, which needs less.
func (f *Filter) enqueueRetry(what pendingWrite, err error) {
	if !f.peersUninformed(err) && f.Pending() >= f.opts.MaxPending {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	full := len(f.pending) >= f.opts.MaxPending
	switch last := f.pending[max(0, len(f.pending)-1):]; {
	case !full:
		f.pending = append(f.pending, what)
	case last[0].id == "" && last[0].since.IsZero(): // it is about any order
		last[0].mayBeCreated, last[0].anyOrder = last[0].mayBeCreated || what.mayBeCreated, true
	case what.id == "":
		f.pending = append(f.pending, pendingWrite{reason: what.reason, mayBeCreated: what.mayBeCreated, anyOrder: true})
	default:
		f.pending = append(f.pending, pendingWrite{anyOrder: true, reason: fmt.Sprintf("more than %d new orders could not be told to the other ordergates", f.opts.MaxPending)})
	}
	select {
	case f.retry <- struct{}{}:
	default: // Run knows already
	}
}

// pendingIDs returns what is learned and not acknowledged yet.
func (f *Filter) pendingIDs() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, what := range f.pending {
		if what.id != "" {
			ids = append(ids, what.id)
		}
	}
	return ids
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
		wg.Go(func() { f.growLoop(ctx) })
	}
	if f.opts.Segments != nil {
		wg.Go(func() { f.forgetLoop(ctx) })
	}
	return f.retryLoop(ctx)
}

// retell appends what is pending, until ctx ends.
func (f *Filter) retryLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			f.drain(ctx)
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
				f.drain(ctx)
				return nil
			case <-pause.C:
			}
		}
	}
}

// appendPending appends what is pending, the oldest first, until an append fails; nil
// means that nothing is left.
func (f *Filter) appendPending(ctx context.Context) error {
	for {
		batch := f.nextBatch()
		if len(batch) == 0 {
			return nil
		}
		if err := f.appendBatch(ctx, batch); err != nil {
			return err
		}
		// Only Run takes from the front, so those are still the same IDs.
		f.mu.Lock()
		f.pending = f.pending[len(batch):]
		f.mu.Unlock()
	}
}

// maxBatch bounds one append of what is pending. It is many: with a slow Redis, IDs that
// were appended one by one would be fewer than those that come meanwhile.
const maxBatch = 500

// nextBatch returns the oldest of what is pending: several IDs, or one reason why an ID
// is missing.
func (f *Filter) nextBatch() []pendingWrite {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) == 0 {
		f.pending = nil // give the memory of a long outage back
		return nil
	}
	n := slices.IndexFunc(f.pending, func(what pendingWrite) bool { return what.id == "" })
	if n < 0 {
		n = len(f.pending)
	}
	return slices.Clone(f.pending[:max(1, min(n, maxBatch))])
}

// lastTry is for a process that ends: what it does not tell now nobody will.
func (f *Filter) drain(ctx context.Context) {
	if f.Pending() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.opts.AppendTimeout)
	defer cancel()
	if err := f.appendPending(ctx); err != nil {
		f.log.Error("ending with new orders that the other ordergates do not know of", "lost", f.Pending(), "error", err)
	}
}
