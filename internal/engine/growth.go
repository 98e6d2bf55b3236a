package engine

import (
	"context"
	"errors"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// segments returns what package filter makes of the section. An ID has the day of
// the first format that it fits: each has one, or the section is refused.
func segments(c *config.Segments, formats []order.Format) *filter.Segments {
	if c == nil {
		return nil
	}
	s := &filter.Segments{Keep: c.Keep, Older: filter.Unknown}
	if c.Older == config.OlderAbsent {
		s.Older = filter.Absent
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

// growth returns how a filter grows. To be rebuilt it reads its sources and the
// change log again, one ordergate of a deployment after the other.
func (m *Engine) growth(name string, c *config.Expand, unit *filterUnit) *filter.Growth {
	if c == nil {
		return nil
	}
	g := &filter.Growth{AtFill: c.AtFill, By: c.By, Max: c.Max}
	if c.How == config.ExpandLayers {
		return g
	}
	g.Rescan = unit.everything
	if m.redis != nil {
		g.LeaderLock = func(ctx context.Context) (context.Context, func(), error) {
			work, _, done, err := m.turn(ctx, name)
			return work, done, err
		}
	}
	return g
}

// everything reads the sources and then the change log, up to where it ends at a
// moment after the call. It is for a set that is not in use: what the filter has of the
// tables is another matter.
func (u *filterUnit) everything(ctx context.Context, add func(id string) error) error {
	if err := u.logSnapshot.forgotten(ctx); err != nil {
		return err
	}
	for _, source := range u.sources {
		read := func() error { return source.IDs(ctx, add) }
		if t, ok := source.(*tableSource); ok {
			read = func() error { return u.places.readAll(ctx, t, add) }
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
	// turnLease is how soon another takes over from one that died while it read.
	turnLease = 10 * time.Second
	// turnWait is longer than a reading should take.
	turnWait = time.Hour
)

// errTurnLost is why a reading ends whose lease is lost.
var errTurnLost = errors.New("the lease was lost, another ordergate may be reading the sources")

// turn waits until no other ordergate reads the sources of a filter again. The fence
// is greater than that of each turn before.
func (m *Engine) turn(ctx context.Context, filter string) (work context.Context, fence int64, done func(), err error) {
	return m.takeTurn(ctx, filter, "expand")
}

// takeTurn is turn for work of any kind.
func (m *Engine) takeTurn(ctx context.Context, filter, kind string) (work context.Context, fence int64, done func(), err error) {
	locker, err := redislock.New(m.redis, redislock.Options{
		Lease: turnLease, Wait: redislock.Wait{UpTo: turnWait}, MaxWaitersPerKey: 1, Process: m.process, Logger: m.warnings.Logger(m.log),
	})
	if err != nil {
		return nil, 0, nil, err
	}
	lease, err := locker.Acquire(ctx, "ordergate:{"+filter+"}:"+kind, redislock.Request(kind+" of filter "+filter))
	if err != nil {
		locker.Close()
		return nil, 0, nil, err
	}
	work, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	go func() {
		select {
		case <-lease.Lost():
			cancel(errTurnLost)
		case <-stop:
		}
	}()
	return work, lease.Fence(), func() {
		close(stop)
		cancel(nil)
		if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
			m.log.Warn("giving up a turn", "filter", filter, "turn", kind, "error", err)
		}
		locker.Close()
	}, nil
}
