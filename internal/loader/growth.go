package loader

import (
	"context"
	"errors"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
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
	g.Rescan = loader.readEverything
	if o.Redis != nil {
		g.LeaderLock = func(ctx context.Context) (context.Context, func(), error) {
			work, _, done, err := o.acquireExpandLock(ctx, name)
			return work, done, err
		}
	}
	return g
}

// readEverything reads the sources and then the change log, up to its end at a moment after the
// call. It fills a set that is not in use yet, and keeps the filter's positions in the tables.
func (u *Loader) readEverything(ctx context.Context, add func(id string) error) error {
	if err := u.logSnapshot.forgotten(ctx); err != nil {
		return err
	}
	for _, source := range u.sources {
		read := func() error { return source.IDs(ctx, add) }
		if t, ok := source.(*tableSource); ok {
			read = func() error { return u.checkpoints.readAll(ctx, t, add) }
		}
		if err := read(); err != nil {
			return err
		}
	}
	if u.log == nil {
		return nil
	}
	if err := u.log.Replay(ctx, add); err != nil {
		return err
	}
	// Once more: it may have been trimmed before its end was read.
	return u.logSnapshot.forgotten(ctx)
}

const (
	// leaderLease is how soon another instance replaces a reader that died.
	leaderLease = 10 * time.Second
	// leaderWait is longer than a reading takes.
	leaderWait = time.Hour
)

// errLeaseLost ends a reading after the loss of its lease.
var errLeaseLost = errors.New("the lease was lost, another ordergate may be reading the sources")

// acquireExpandLock waits until no other instance rebuilds the filter. The fence is greater than
// all earlier ones.
func (o *Options) acquireExpandLock(ctx context.Context, filter string) (work context.Context, fence int64, done func(), err error) {
	return o.acquireLeaderLock(ctx, filter, "expand")
}

// acquireLeaderLock waits until this instance alone may do work of a kind for a filter. Work ends
// if the lease is lost. Call done after the work.
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
	stop := make(chan struct{})
	go func() {
		select {
		case <-lease.Lost():
			cancel(errLeaseLost)
		case <-stop:
		}
	}()
	return work, lease.Fence(), func() {
		close(stop)
		cancel(nil)
		if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
			o.Logger.Warn("giving up a turn", "filter", filter, "turn", kind, "error", err)
		}
		locker.Close()
	}, nil
}
