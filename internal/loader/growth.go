package loader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/redisset"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/rediskey"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// segmentsOf converts the section segments. An ID has the day by the first format that it
// matches. The configuration requires a day in each format.
func segmentsOf(c *config.Segments, formats []order.Format) *filter.Segments {
	if c == nil {
		return nil
	}
	s := &filter.Segments{Keep: c.Keep, Older: presence.Unknown}
	if c.Older == config.OlderAbsent {
		s.Older = presence.Absent
	}
	if c.From == config.SegmentFromID {
		s.Day = func(id string) (time.Time, bool) {
			for i := range formats {
				if _, ok := formats[i].Canonical(id); ok {
					return formats[i].Time(id)
				}
			}
			return time.Time{}, false
		}
	}
	return s
}

// growth returns how a filter grows. To rebuild it, the instances read its sources and the
// change log again, one instance after the other.
func (o *Options) growth(name string, c *config.Expand, loader *Loader) *filter.Growth {
	if c == nil {
		return nil
	}
	g := &filter.Growth{AtFill: c.AtFill, By: c.By, Max: c.Max}
	if c.How == config.ExpandLayers {
		return g
	}
	g.Rescan = loader.readAgain
	if o.Redis != nil {
		lock := o.leaderLock(name, workExpand)
		g.LeaderLock = func(ctx context.Context) (context.Context, func(), error) {
			work, _, done, err := lock(ctx)
			return work, done, err
		}
	}
	return g
}

// readAgain is readEverything for a filter that has everything already. The error is
// [filter.ErrForgotten] if a file has changed since it was loaded.
func (u *Loader) readAgain(ctx context.Context, add func(id string) error) error {
	for _, source := range u.sources {
		if s, ok := source.(*csvSource); ok && s.isChanged(time.Now()) {
			return fmt.Errorf("%w: source %s has changed since it was loaded", filter.ErrForgotten, s.name)
		}
	}
	return u.readEverything(ctx, add)
}

// readEverything reads the change log, up to its end at a moment after the call, and the sources.
// It fills a set that is not in use yet, and keeps the filter's positions in the tables. Tables
// have each order, also those that the log has lost. Without a table the error is
// [filter.ErrForgotten] if the log has lost any.
func (u *Loader) readEverything(ctx context.Context, add func(id string) error) error {
	if u.log != nil {
		err := u.log.Replay(ctx, add)
		if errors.Is(err, changelog.ErrLost) && len(u.tables()) == 0 {
			return fmt.Errorf("%w: %w", filter.ErrForgotten, err)
		}
		if err != nil && !errors.Is(err, changelog.ErrLost) {
			return err
		}
	}
	return u.readSources(ctx, add)
}

// readSources is readEverything without the change log.
func (u *Loader) readSources(ctx context.Context, add func(id string) error) error {
	for _, source := range u.sources {
		read := source.IDs
		switch s := source.(type) {
		case *tableSource:
			read = func(ctx context.Context, add func(string) error) error { return u.checkpoints.readAll(ctx, s, add) }
		case *csvSource:
			read = func(ctx context.Context, add func(string) error) error { return u.checkpoints.readFile(ctx, s, add) }
		}
		if err := read(ctx, add); err != nil {
			return err
		}
	}
	return nil
}

const (
	// leaderLease is how soon another instance replaces a reader that died.
	leaderLease = 10 * time.Second
	// leaderWait is longer than a reading takes.
	leaderWait = time.Hour
)

// errLeaseLost ends a reading after the loss of its lease.
var errLeaseLost = errors.New("the lease was lost, another ordergate may be reading the sources")

// The kinds of work that one instance at a time does for a filter.
const (
	workExpand = "expand" // to rebuild the filter, or to fill its set in Redis
	workLoad   = "load"
	workTrim   = "trim"
	workFollow = "follow:" // the name of a followed table follows
)

// leaderLock returns the function that waits until this instance alone may do work of a kind for a
// filter.
func (o *Options) leaderLock(filter, kind string) redisset.LeaderLock {
	return func(ctx context.Context) (context.Context, int64, func(), error) {
		return o.acquireLeaderLock(ctx, filter, kind)
	}
}

func (o *Options) acquireLeaderLock(ctx context.Context, filter, kind string) (work context.Context, fence int64, done func(), err error) {
	locker, err := redislock.New(o.Redis, redislock.Options{
		Lease: leaderLease, Wait: redislock.Wait{UpTo: leaderWait}, MaxWaitersPerKey: 1, Process: o.Process, Logger: o.Warnings.Logger(o.Logger),
	})
	if err != nil {
		return nil, 0, nil, err
	}
	lease, err := locker.Acquire(ctx, rediskey.Of(filter, kind), redislock.Request(kind+" of filter "+filter))
	if err != nil {
		locker.Close()
		return nil, 0, nil, err
	}
	work, cancel := context.WithCancelCause(ctx)
	lease.NotifyLost(func() { cancel(errLeaseLost) })
	return work, lease.Fence(), func() {
		cancel(nil)
		if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
			o.Logger.Debug("releasing the leader lock", "filter", filter, "work", kind, "error", err)
		}
		locker.Close()
	}, nil
}
