package loader

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/runbook"
)

// BatchSize is how many IDs are appended to the change log in one step. A larger step would
// block others for more than a millisecond.
const BatchSize = 500

// Announce appends IDs to the change log: all instances know them after [Loader.AwaitPeers].
// It needs no Run. After an error some may be known.
func (u *Loader) Announce(ctx context.Context, ids []string) error {
	return announce(ctx, u.log, u.set, ids)
}

// AwaitPeers blocks until no instance answers Absent for an ID that was announced before the
// call.
func (u *Loader) AwaitPeers(ctx context.Context) error { return u.log.WaitForPeers(ctx) }

// WriteSnapshot loads the filter without Run, and writes its snapshot. It blocks for as long
// as the sources take, after it has waited until they can clear the doubts.
func (u *Loader) WriteSnapshot(ctx context.Context) (info filter.SnapshotInfo, waited time.Duration, err error) {
	following, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if u.log != nil {
			_ = u.log.Run(following)
		}
	}()
	defer func() { cancel(); <-done }()
	u.awaitFirstRead(ctx)
	u.logSnapshot.waive(ctx)
	waited = u.awaitCurrentDoubts(ctx) // after waive: the log may have brought doubts by then
	u.snapshots.loads()
	err = u.reloadTrusted(ctx, func(ctx context.Context, _ func(string) error) error {
		return u.filter.Load(ctx, u.sources...)
	})
	if err == nil && u.log != nil {
		err = u.log.Wait(ctx)
	}
	if err == nil {
		info, err = u.snapshots.now(ctx)
	}
	return info, waited, err
}

// Snapshot writes the filter's snapshot now. The error is ErrNoSnapshot without one in the
// configuration, ErrSnapshotBusy if another one is being written, or [filter.ErrNotReady].
func (u *Loader) Snapshot(ctx context.Context) (filter.SnapshotInfo, error) {
	if u.snapshots == nil {
		return filter.SnapshotInfo{}, ErrNoSnapshot
	}
	return u.snapshots.now(ctx)
}

// ErrNoSnapshot is returned for a filter without a configured snapshot.
var ErrNoSnapshot = errors.New("the filter has no snapshot")

// Reload reads a source again, or all of them if it is "", and returns how many IDs it has
// read, and how long it has waited before, until that could clear the doubts. The caller guarantees that the sources are up to date. One of several sources proves
// nothing about the orders in the others.
func (u *Loader) Reload(ctx context.Context, source string) (read int64, waited time.Duration, err error) {
	reload := u.reloadTrusted
	if source != "" && len(u.sources) > 1 {
		reload = u.filter.Include
	} else {
		u.logSnapshot.waive(ctx) // a doubt that follows from it precedes the reading
	}
	waited = u.awaitCurrentDoubts(ctx) // after waive: the log may have brought doubts by then
	had := u.filter.Count()
	err = reload(ctx, func(ctx context.Context, add func(id string) error) error {
		into, flush := u.readInto(ctx, add)
		counted := func(id string) error { read++; return into(id) }
		var loaded []func(context.Context) error
		for i, s := range u.sources {
			if source != "" && u.config.Sources[i] != source {
				continue
			}
			if f, ok := s.(*csvSource); ok && u.checkpoints != nil {
				done, err := u.checkpoints.loadFile(ctx, f, true, counted)
				if err != nil {
					return err
				}
				loaded = append(loaded, done)
				continue
			}
			if err := s.IDs(ctx, counted); err != nil {
				return err
			}
		}
		err := flush()
		for _, done := range loaded {
			if err == nil {
				err = done(ctx)
			}
		}
		return err
	})
	if source == "" && err == nil && uint64(read) < had/2 {
		u.logger.Warn("the sources have less than half of the orders that the filter has: was a file cut?", "read", read, "had", had,
			runbook.NoLiveSource.Do("nothing if that many were deleted; otherwise complete the file, and run ordergate load"))
	}
	return read, waited, err
}

// announce appends IDs to a change log, and then to the set in Redis if there is one.
func announce(ctx context.Context, log *changelog.Log, set *redisset.Set, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if err := log.Record(ctx, ids...); err != nil || set == nil {
		return err
	}
	return set.Add(ctx, ids...)
}

// readInto returns the function that adds IDs of sources: by add to memory and the set in
// Redis, or to the set alone if memory holds only the IDs of the change log.
func (u *Loader) readInto(ctx context.Context, add func(string) error) (into func(string) error, flush func() error) {
	if u.set == nil || u.config.Kind == config.FilterLayered {
		return add, func() error { return nil }
	}
	batch := make([]string, 0, BatchSize)
	flush = func() error {
		if len(batch) == 0 {
			return nil
		}
		err := u.set.Add(ctx, batch...)
		batch = batch[:0]
		return err
	}
	return func(id string) error {
		if batch = append(batch, strings.Clone(id)); len(batch) < BatchSize {
			return nil
		}
		return flush()
	}, flush
}
