package filter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// pendingWrite is a write to the change log that the log has not acknowledged.
type pendingWrite struct {
	id           string
	reason       string    // without an ID: the reason that the ID is unknown
	since        time.Time // without an ID: earliest creation of the order; zero: any time
	mayBeCreated bool      // without an ID: the order may be created later
	doubt        uint64    // without an ID: number of the doubt here
	anyOrder     bool      // without an ID: it replaces writes that found no space
}

// ErrExposed says that another instance may answer Absent for an order that was created here.
var ErrExposed = errors.New("another ordergate may answer absent for the new order")

// Learn adds a new order. It blocks until every instance with an open window has the ID, and
// returns nil. From then on no filter of the same change log answers Absent for it. The client
// must not get the answer to its create earlier.
//
// After an error the ID is known here, and [Filter.Run] retries the append. Until it succeeds
// the other instances answer Unknown for what they lack, unless the error is [ErrExposed]. An
// ID that [Options.Check] refuses counts as unknown, see [Filter.MarkIncomplete].
func (f *Filter) Learn(ctx context.Context, id string) error {
	if reason := f.opts.Check(id); reason != "" {
		return errors.Join(fmt.Errorf("filter %s: learning %s", f.name, reason), f.MarkIncomplete(ctx, reason, time.Time{}))
	}
	// Here first: this process knows the ID whatever happens later. If the order is not
	// acknowledged, there is only one more Maybe.
	f.Add(id)
	if f.opts.Appender == nil {
		return nil
	}
	err := f.publish(ctx, pendingWrite{id: id})
	// Once more: a rebuild may have begun after the first time, and may have read the log
	// before the ID was in it.
	f.Add(id)
	return err
}

// MarkIncomplete records that an order was created whose ID is unknown, for the given reason.
// The create began at began or later; zero: at any time. It blocks and returns as Learn does.
// From then on no ID that may be the order's is absent anywhere until the sources are reloaded.
// Equal calls share an entry in the log.
func (f *Filter) MarkIncomplete(ctx context.Context, reason string, began time.Time) error {
	return f.markIncomplete(ctx, pendingWrite{reason: reason, since: began}, 0)
}

func (f *Filter) markIncomplete(ctx context.Context, what pendingWrite, late time.Duration) error {
	if _, _, doubted := f.Doubts(); !doubted {
		level, todo := slog.LevelError, runbook.OrderNotLearned.Do("compare create.learn of the rule with the backend's answer; without a table among the sources, run ordergate load")
		if what.mayBeCreated { // a client can cause it by leaving
			level = slog.LevelWarn
			todo = runbook.Abandoned.Do("nothing where a table is among the sources; otherwise run ordergate load when they have every order")
		}
		f.log.Log(ctx, level, "there may be an order with an unknown ID: its possible IDs are not absent until the sources are reloaded", "reason", what.reason, todo)
	}
	what.since = what.since.Truncate(time.Millisecond) // the precision of the log
	// Here first, as in Learn. The log brings it once more.
	what.doubt = f.addDoubt(Doubt{Reason: what.reason, Recovery: ByOperator, Orders: true, Since: what.since, Late: late}, true)
	if f.opts.Appender == nil {
		return fmt.Errorf("filter %s: %s", f.name, what.reason)
	}
	return f.publish(ctx, what)
}

// LearnAll adds several orders. It is for a caller that can retry, and that passes the IDs on
// only after the call. It blocks until every instance has them. After an error some may be
// known.
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
	add() // once more, as in Learn
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

// publish sends a write to the other instances. If that fails it closes their windows: they
// answer Unknown for what they lack.
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

// appendBatch appends a batch, see nextBatch, within [Options.AppendTimeout].
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

// enqueueRetry keeps a write for a retry. Writes beyond the limit are replaced by one doubt.
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
	case last[0].id == "" && last[0].since.IsZero(): // it may be any order
		last[0].mayBeCreated, last[0].anyOrder = last[0].mayBeCreated || what.mayBeCreated, true
	case what.id == "":
		f.pending = append(f.pending, pendingWrite{reason: what.reason, mayBeCreated: what.mayBeCreated, anyOrder: true})
	default:
		f.pending = append(f.pending, pendingWrite{anyOrder: true, reason: fmt.Sprintf("more than %d new orders could not be sent to the other ordergates", f.opts.MaxPending)})
	}
	select {
	case f.retry <- struct{}{}:
	default: // the signal is pending
	}
}

// pendingIDs returns the IDs that the log has not acknowledged.
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

// Pending returns the number of writes that wait for a retry.
func (f *Filter) Pending() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Run does the background work of a filter until ctx ends. It drops the segments of old days
// and grows a filter that is too full. It retries the failed writes of Learn, in order, every
// [Options.RetryEvery]. It returns nil, after a last try within [Options.AppendTimeout].
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

// retryLoop appends the pending writes, until ctx ends.
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
			if tries == 0 { // one line for each outage
				f.log.Warn("new orders have not reached the other ordergates yet", "pending", f.Pending(), "error", err,
					runbook.FilterNotReady.Do("look at Redis and the way to it; ordergate tries again"))
			}
			if wait.For(ctx, f.opts.RetryEvery) != nil {
				f.drain(ctx)
				return nil
			}
		}
	}
}

// appendPending appends the pending writes, the oldest first, until an append fails; nil means
// that none is left.
func (f *Filter) appendPending(ctx context.Context) error {
	for {
		batch := f.nextBatch()
		if len(batch) == 0 {
			return nil
		}
		if err := f.appendBatch(ctx, batch); err != nil {
			return err
		}
		// Only Run removes from the front, so these are still the same writes.
		f.mu.Lock()
		f.pending = f.pending[len(batch):]
		f.mu.Unlock()
	}
}

// maxBatch bounds one append of pending writes. With a slow Redis single appends would be
// slower than the creates.
const maxBatch = 500

// nextBatch returns the oldest pending writes: several IDs, or one write without an ID.
func (f *Filter) nextBatch() []pendingWrite {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) == 0 {
		f.pending = nil // free the memory of a long outage
		return nil
	}
	n := slices.IndexFunc(f.pending, func(what pendingWrite) bool { return what.id == "" })
	if n < 0 {
		n = len(f.pending)
	}
	return slices.Clone(f.pending[:max(1, min(n, maxBatch))])
}

// drain appends the pending writes of a process that ends. Writes that fail now are lost.
func (f *Filter) drain(ctx context.Context) {
	if f.Pending() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.opts.AppendTimeout)
	defer cancel()
	if err := f.appendPending(ctx); err != nil {
		f.log.Error("the process ends with new orders that did not reach the other ordergates", "lost", f.Pending(), "error", err,
			runbook.OrderNotLearned.Do("start it again, and without a table among the sources run ordergate load"))
	}
}
