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
	"github.com/ordergate/ordergate/internal/wait"
)

const (
	// clockSkew is the largest difference between the clocks of ID generators and instances.
	clockSkew = time.Minute
	// zoneSkew is how far a date in an ID may be behind UTC, since it may be in the backend's
	// time zone.
	zoneSkew = 12 * time.Hour
	// coverageMaxAge is how long a reading proves what a table contains. A later doubt
	// concerns all IDs, until the table has been read again.
	coverageMaxAge = 10 * time.Second
)

// doubt passes a doubt of the change log to the filter.
func (u *Loader) doubt(d changelog.Doubt) {
	if !d.Orders {
		for _, t := range u.tables() {
			t.void()
			if d.Witness != "" {
				t.restart()
			}
		}
	}
	if d.Torn { // the missing entries may be rows anywhere in a followed table
		for _, t := range u.tables() {
			if t.followed {
				t.void()
				t.restart()
			}
		}
	}
	passed := filter.Doubt{Reason: d.Reason, Recovery: recoveryOf(d.Kind), Orders: d.Orders, Since: d.Since, Witness: d.Witness, Entry: entryOf(d.Entry)}
	switch {
	case d.Kind == changelog.Running:
		passed.Late = max(0, u.commitDelay-d.Age)
	case d.Kind == changelog.Crash && len(u.tables()) > 0:
		u.rereadAt.Store(time.Now().Add(u.commitDelay).UnixNano())
	case d.Kind == changelog.Failover && len(u.tables()) == 0: // the others may not have appended their orders again yet
		passed.Late = max(0, peersTime-d.Age)
	}
	u.filter.Doubt(passed)
}

// cleared passes to the filter that the doubts up to a mark are cleared.
func (u *Loader) cleared(upTo changelog.Mark, again bool) {
	u.filter.Confirm(entryOf(upTo), again)
}

func entryOf(at changelog.Mark) filter.Entry {
	return filter.Entry{Log: at.LogID, Number: at.Seq, Nonce: at.Nonce}
}

// reloadTrusted reads the sources for an operator who guarantees that they have every order.
// That clears the earlier doubts here. An entry of the change log clears them for the other
// instances, once these have read their sources, and for later starts.
func (u *Loader) reloadTrusted(ctx context.Context, read func(ctx context.Context, add func(id string) error) error) error {
	var upTo changelog.Mark
	if u.log != nil {
		_ = u.log.Wait(ctx) // entries that cannot be read now stay uncleared
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
		return fmt.Errorf("the sources were read, but the other ordergates were not notified: run it again: %w", err)
	}
	return nil
}

// ErrNotRead says that the read position of the change log is unknown.
var ErrNotRead = errors.New("the change log has not been read to its end yet, or is just being read again")

// dropped adds a doubt about a table that was replaced.
func (u *Loader) dropped(reason string) {
	u.filter.Doubt(filter.Doubt{Reason: reason, Recovery: filter.ByReload})
}

// covered returns the IDs of orders that the last readings of the tables may lack; see
// [filter.Options].
func (u *Loader) covered() (s filter.Scope) {
	for i, t := range u.tables() {
		read := t.covered()
		if read.ended.IsZero() || time.Since(read.ended) > coverageMaxAge {
			return filter.Scope{}
		}
		since := read.began.Add(-u.margin)
		if i == 0 {
			s = filter.Scope{Above: read.number, Since: since}
		}
		s.Above = min(s.Above, read.number)
		if since.Before(s.Since) {
			s.Since = since
		}
	}
	return s
}

// hasTable reports whether a filter has a source with each order as soon as it exists.
func hasTable(c *config.Config, f config.Filter) bool {
	return slices.ContainsFunc(f.Sources, func(s string) bool { return c.Sources[s].Live() })
}

// marginOf returns how much earlier the time in an order's ID may be than the begin of its
// creation, or its latest commit.
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

// createdBeforeOf returns a function that returns the latest creation time of an order by its
// ID, if all formats of the ID contain a time; nil: no format contains one.
func createdBeforeOf(formats []order.Format) func(id string) (time.Time, bool) {
	steps := make([]time.Duration, len(formats)) // 0: it contains no time
	anyTime := false
	for i := range formats {
		if step, ok := formats[i].Resolution(); ok {
			anyTime, steps[i] = true, step
			if formats[i].DependsOnZone() {
				steps[i] += zoneSkew
			}
		}
	}
	if !anyTime {
		return nil
	}
	return func(id string) (latest time.Time, ok bool) {
		for i := range formats {
			if _, is := formats[i].Canonical(id); !is {
				continue
			}
			at, hasTime := formats[i].Time(id)
			if !hasTime || steps[i] == 0 {
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

// logDelay is the delay after which the change log repeats a doubt of this instance.
const logDelay = 2 * time.Second

// awaitCurrentDoubts is awaitDoubts for the present doubts alone. It returns how long it has waited.
func (u *Loader) awaitCurrentDoubts(ctx context.Context) time.Duration {
	began, left := time.Now(), u.filter.UntilClearable()
	if left == 0 {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, left+logDelay)
	defer cancel()
	u.awaitDoubts(ctx)
	return time.Since(began)
}

// awaitDoubts waits until a reading can clear all doubts, or ctx ends.
func (u *Loader) awaitDoubts(ctx context.Context) {
	for left := u.filter.UntilClearable(); left > 0 && ctx.Err() == nil; left = u.filter.UntilClearable() {
		_ = wait.For(ctx, left)
	}
}

// recoveryOf returns the recovery for a doubt without a table. An unknown kind, of a later
// release, needs the operator.
func recoveryOf(k changelog.Kind) filter.Recovery {
	if recovery, ok := recoveries[k]; ok {
		return recovery
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
