package engine

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/presence"
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
func (f gateFilter) MayContain(id string) presence.Answer {
	return f.answer(id, f.Filter.MayContain(id))
}

// Query implements gate.Filter.
func (f gateFilter) Query(ctx context.Context, id string) presence.Answer {
	return f.answer(id, f.Filter.Query(ctx, id))
}

func (f gateFilter) answer(id string, a presence.Answer) presence.Answer {
	if a == presence.Absent {
		f.measures.onAbsent(id)
	}
	return a
}
