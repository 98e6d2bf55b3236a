package loader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/order"
)

const (
	// clockSkew is by how much the clocks of those who make IDs and of ordergates may
	// differ.
	clockSkew = time.Minute
	// zoneSkew is by how much a date in an ID may be behind UTC, in case it is that of the
	// backend's own zone.
	zoneSkew = 12 * time.Hour
	// coverageMaxAge is for how long a table that was read is taken for the one that it was: a
	// doubt that comes later is about all IDs, until the table has been read again.
	coverageMaxAge = 10 * time.Second
)

// doubt passes one of the change log on to the filter.
func (u *Loader) doubt(d changelog.Doubt) {
	if !d.Orders {
		for _, t := range u.tables() {
			t.void()
		}
	}
	told := filter.Doubt{Reason: d.Reason, Recovery: recoveryOf(d.Kind), Orders: d.Orders, Since: d.Since, Entry: entryOf(d.Entry)}
	switch {
	case d.Kind == changelog.Running:
		told.Late = max(0, u.commitDelay-d.Age)
	case d.Kind == changelog.Crash && len(u.tables()) > 0:
		u.rereadAt.Store(time.Now().Add(u.commitDelay).UnixNano())
	case d.Kind == changelog.Failover && len(u.tables()) == 0: // others may not have said yet what they know
		told.Late = max(0, settleTime-d.Age)
	}
	u.filter.Doubt(told)
}

// cleared passes it on that somebody knows of the doubts up to a place.
func (u *Loader) cleared(upTo changelog.Mark, again bool) {
	u.filter.Confirm(entryOf(upTo), again)
}

func entryOf(at changelog.Mark) filter.Entry {
	return filter.Entry{Log: at.LogID, Number: at.Seq}
}

// reloadTrusted has the sources read for somebody who says that they have every order. That
// clears the doubts from before, here, and by an entry of the change log for the others,
// once they have read their sources, and for whoever starts later.
func (u *Loader) reloadTrusted(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	var upTo changelog.Mark
	if u.log != nil {
		_ = u.log.Wait(ctx) // what cannot be read now is not cleared
		upTo = u.log.Mark()
	}
	if err := u.filter.Reload(ctx, read); err != nil {
		return err
	}
	if u.log == nil || len(u.tables()) > 0 {
		return nil
	}
	err := ErrNotRead
	if upTo.LogID != "" {
		err = u.log.ClearDoubts(ctx, upTo)
	}
	if err != nil {
		return fmt.Errorf("the sources were read, and the other ordergates were not told of it: run it again: %w", err)
	}
	return nil
}

// ErrNotRead says that nobody can tell how far a log was read.
var ErrNotRead = errors.New("the change log has not been read to its end yet, or is just being read again")

// dropped is for a table that is not what it was.
func (u *Loader) dropped(reason string) {
	u.filter.Doubt(filter.Doubt{Reason: reason, Recovery: filter.ByReload})
}

// covered returns what IDs an order may have that the tables have not told of; see
// [filter.Options].
func (u *Loader) covered() (s filter.Scope) {
	for i, t := range u.tables() {
		told := t.covered()
		if told.ended.IsZero() || time.Since(told.ended) > coverageMaxAge {
			return filter.Scope{}
		}
		since := told.began.Add(-u.margin)
		if i == 0 {
			s = filter.Scope{Above: told.number, Since: since}
		}
		s.Above = min(s.Above, told.number)
		if since.Before(s.Since) {
			s.Since = since
		}
	}
	return s
}

// hasTable reports whether a filter has a source that has each order as soon as it exists.
func hasTable(c *config.Config, f config.Filter) bool {
	return slices.ContainsFunc(f.Sources, func(s string) bool { return c.Sources[s].Live() })
}

// marginOf returns by how much the ID of an order may tell an earlier time than that at
// which its creation began, or at which it is committed at the latest.
func marginOf(c *config.Config, name string) time.Duration {
	return clockSkew + longestOverlap(c, name)
}

// longestOverlap returns the greatest overlap of a filter's sources, 0 without a table.
func longestOverlap(c *config.Config, name string) (longest time.Duration) {
	for _, s := range c.Filters[name].Sources {
		longest = max(longest, c.Sources[s].Overlap)
	}
	return longest
}

// createdBeforeOf returns what tells the latest time at which an order with an ID can have been
// made, if all formats that it is in tell that; nil: none does.
func createdBeforeOf(formats []order.Format) func(id string) (time.Time, bool) {
	steps := make([]time.Duration, len(formats)) // 0: it tells no time
	tells := false
	for i := range formats {
		if step, ok := formats[i].Resolution(); ok {
			tells, steps[i] = true, step
			if formats[i].Kind == order.Timestamped {
				steps[i] += zoneSkew
			}
		}
	}
	if !tells {
		return nil
	}
	return func(id string) (latest time.Time, ok bool) {
		for i := range formats {
			if _, is := formats[i].Canonical(id); !is {
				continue
			}
			at, tells := formats[i].Time(id)
			if !tells || steps[i] == 0 {
				return time.Time{}, false
			}
			if at = at.Add(steps[i]); !ok || at.After(latest) {
				latest = at
			}
			ok = true
		}
		return latest, ok
	}
}

// logDelay is how much later the change log brings a doubt once more that was told of here.
const logDelay = 2 * time.Second

// awaitCurrentDoubts is awaitDoubts for the doubts that there are now, whatever comes meanwhile.
func (u *Loader) awaitCurrentDoubts(ctx context.Context) {
	left := u.filter.UntilClearable()
	if left == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, left+logDelay)
	defer cancel()
	u.awaitDoubts(ctx)
}

// awaitDoubts waits until a reading can clear the doubts that there are, or ctx ends.
func (u *Loader) awaitDoubts(ctx context.Context) {
	for left := u.filter.UntilClearable(); left > 0 && ctx.Err() == nil; left = u.filter.UntilClearable() {
		sleep(ctx, left)
	}
}

// recoveryOf tells what clears a doubt where no source tells of each order at once. One of a
// kind that a later release has needs the most.
func recoveryOf(k changelog.Kind) filter.Recovery {
	if cure, ok := recoveries[k]; ok {
		return cure
	}
	return filter.ByOperator
}

var recoveries = map[changelog.Kind]filter.Recovery{
	changelog.Failover: filter.ByWaiting,
	changelog.Crash:    filter.ByWaiting,
	changelog.Start:    filter.ByReload,
	changelog.Lost:     filter.ByOperator,
	changelog.Running:  filter.ByOperator,
	changelog.Gap:      filter.ByOperator,
}
