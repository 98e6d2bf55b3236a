package engine

import (
	"context"
	"errors"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
	"github.com/ordergate/ordergate/internal/gate"
)

// gateFilter shows a filter to the gate, and what it answers to its measures.
type gateFilter struct {
	*filter.Filter
	measures *measures
	followed bool // see areFollowed
}

// areFollowed reports whether each table of a filter sends its changes as they are
// committed.
func areFollowed(c *config.Config, filter string) bool {
	followed := false
	for _, name := range c.Filters[filter].Sources {
		source := c.Sources[name]
		switch {
		case !source.Live():
		case source.Follow == config.FollowBinlog, source.Follow == config.FollowLogical:
			followed = true
		default:
			return false
		}
	}
	return followed
}

// Abandoned implements gate.Filter. Where every table is followed as it changes, it is no
// doubt. The follower brings the order when the backend commits it, as it brings orders
// that are created in another way; one that has lost its table makes the filter unknown.
// With a doubt, a client could end the refusal of new IDs by one aborted create a minute.
func (f gateFilter) Abandoned(ctx context.Context, reason string, began time.Time) error {
	if f.followed {
		return nil
	}
	return f.Filter.Abandoned(ctx, reason, began)
}

// MayContain implements gate.Filter.
func (f gateFilter) MayContain(id string) gate.Answer { return f.answer(id, f.Filter.MayContain(id)) }

// Ask implements gate.Filter.
func (f gateFilter) Query(ctx context.Context, id string) gate.Answer {
	return f.answer(id, f.Filter.Query(ctx, id))
}

func (f gateFilter) answer(id string, a filter.Answer) gate.Answer {
	switch a {
	case filter.Absent:
		f.measures.absent(id)
		return gate.Absent
	case filter.Maybe:
		return gate.Maybe
	case filter.NotInMemory:
		return gate.NotInMemory
	default:
		return gate.Unknown
	}
}

// appender shows a change log to its filter.
type appender struct{ *changelog.Log }

// Spread implements filter.Appender. The time that its caller has goes by the windows and leases of this
// ordergate; others may have longer ones, and the log knows for how long to wait.
func (a appender) Spread(ctx context.Context) error { return untimed(ctx, a.Log.WaitForPeers) }

// Withdraw implements filter.Appender, in the same way.
func (a appender) Withdraw(ctx context.Context) error { return untimed(ctx, a.Log.Withdraw) }

// untimed runs something that may be cancelled, but has no deadline.
func untimed(ctx context.Context, do func(context.Context) error) error {
	within, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})()
	return do(within)
}

// Missed implements filter.Appender.
func (a appender) AppendIncomplete(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, changelog.Doubt{Kind: changelog.Lost, Reason: reason, Orders: true, Since: since})
}

// Abandoned implements filter.Appender.
func (a appender) AppendAbandoned(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, changelog.Doubt{Kind: changelog.Running, Reason: reason, Orders: true, Since: since})
}

func (a appender) doubt(ctx context.Context, d changelog.Doubt) (filter.Entry, error) {
	at, err := a.AppendDoubt(ctx, d)
	return placeIn(at), err
}

// cureOf tells what clears a doubt where no source tells of each order at once. One of a
// kind that a later release has needs the most.
func cureOf(k changelog.Kind) filter.Recovery {
	if cure, ok := cures[k]; ok {
		return cure
	}
	return filter.ByOperator
}

var cures = map[changelog.Kind]filter.Recovery{
	changelog.Failover: filter.ByWaiting,
	changelog.Crash:    filter.ByWaiting,
	changelog.Start:    filter.ByReload,
	changelog.Lost:     filter.ByOperator,
	changelog.Running:  filter.ByOperator,
	changelog.Gap:      filter.ByOperator,
}
