package loader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// sampleInterval is the time between two samples.
	sampleInterval = time.Minute
	// recheckAfter is the longest time until a new order is in the filter: by the answer to
	// its create, or by the table's follower.
	recheckAfter = 5 * time.Second
	// maxSuspects bounds the orders that wait for their second check.
	maxSuspects = 10_000
)

// reconciler compares tables with the filter in the background: a sample of successive rows
// every minute, and all rows periodically. It counts and logs missing orders, and adds them on
// all instances.
type reconciler struct {
	loader *Loader
	config config.Reconcile
	tables []*tableSource // its own ones, which read slowly
	log    *slog.Logger

	checked, missing atomic.Uint64
	passed           atomic.Pointer[time.Time] // when the last pass over everything ended
}

func (o *Options) newReconciler(name string, loader *Loader) (*reconciler, error) {
	c := o.Config.Filters[name]
	if c.Reconcile == nil {
		return nil, nil
	}
	r := &reconciler{loader: loader, config: *c.Reconcile, log: o.Logger.With("filter", name)}
	for _, t := range loader.tables() {
		slow := o.Config.Sources[t.name]
		slow.MaxRate, slow.Pause, slow.Batch = c.Reconcile.Rate, 0, min(slow.Batch, c.Reconcile.Rate)
		table, err := newTableSource(t.name, slow, c.Parts, t.formats, r.log)
		if err != nil {
			return nil, err
		}
		r.tables = append(r.tables, table)
	}
	return r, nil
}

// run compares until ctx ends. A nil *reconciler does nothing.
func (r *reconciler) run(ctx context.Context) {
	if r == nil {
		return
	}
	sample, all := time.NewTicker(sampleInterval), time.NewTicker(r.config.Every)
	defer sample.Stop()
	defer all.Stop()
	positions := make([]source.Position, len(r.tables))
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-sample.C:
			for i, t := range r.tables {
				positions[i], err = r.compare(ctx, t, positions[i], r.config.Sample)
				r.failed(ctx, t, err)
			}
		case <-all.C:
			whole := true
			for _, t := range r.tables {
				_, err = r.compare(ctx, t, source.Position{}, 0)
				r.failed(ctx, t, err)
				whole = whole && err == nil
			}
			if now := time.Now(); whole {
				r.passed.Store(&now)
			}
		}
	}
}

func (r *reconciler) failed(ctx context.Context, t *tableSource, err error) {
	if err != nil && ctx.Err() == nil {
		r.log.Warn("a table could not be compared with the filter", "source", t.name, "error", err,
			runbook.OrderMissing.Do("look at the database; ordergate tries again"))
	}
}

// errSampleDone ends a sample.
var errSampleDone = errors.New("enough")

// compare checks the rows after a position, at most so many; 0: all. It returns where the next
// sample begins.
func (r *reconciler) compare(ctx context.Context, t *tableSource, from source.Position, most int) (source.Position, error) {
	var suspects []string
	at, n := from, 0
	_, err := t.table.Read(ctx, from, func(id string) error {
		n++
		if len(suspects) < maxSuspects && r.loader.filter.IsAbsent(ctx, id) {
			suspects = append(suspects, id)
		}
		return nil
	}, func(reached source.Position) error {
		at = reached
		if most > 0 && n >= most {
			return errSampleDone
		}
		return nil
	})
	switch {
	case errors.Is(err, errSampleDone):
		err = nil
	case errors.Is(err, source.ErrPosition):
		at, err = source.Position{}, nil // the table is another one
	case err == nil:
		at = source.Position{} // from the beginning
	}
	r.checked.Add(uint64(n))
	return at, errors.Join(err, r.recheck(ctx, t, suspects))
}

// recheck checks missing orders once more, and adds those that are still missing.
func (r *reconciler) recheck(ctx context.Context, t *tableSource, suspects []string) error {
	if len(suspects) == 0 {
		return nil
	}
	if wait.For(ctx, recheckAfter) != nil {
		return nil
	}
	var missing []string
	for _, id := range suspects {
		if r.loader.filter.IsAbsent(ctx, id) {
			missing = append(missing, id)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	r.missing.Add(uint64(len(missing)))
	r.log.Error("orders of a table were missing in the filter, and could be refused: they are added now. "+
		"Orders are created by a way that neither passes ordergate nor is followed", "source", t.name, "orders", len(missing),
		runbook.OrderMissing.Do("have the program that creates them report them, or follow the table"))
	for some := range slices.Chunk(missing, BatchSize) {
		if err := r.loader.filter.LearnAll(ctx, some); err != nil {
			return fmt.Errorf("adding the missing orders: %w", err)
		}
	}
	return nil
}
