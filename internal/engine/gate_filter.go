package engine

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/presence"
)

// gateFilter adapts a filter to the gate, and reports Absent answers to the filter's measures.
type gateFilter struct {
	*filter.Filter
	measures *measures
	verify   *verifier
	caughtUp func(context.Context) bool // [loader.Loader.CaughtUp]; nil: the filter is not followed
}

// Abandoned implements gate.Filter. It records no doubt if every table sends its changes as they
// are committed. The follower then adds the order when the backend commits it, like orders that
// are created in another way. A follower that has lost its table makes the filter answer
// Unknown. With a doubt, one aborted create a minute could stop the rejection of absent IDs.
func (f gateFilter) Abandoned(ctx context.Context, reason string, began time.Time) error {
	if f.caughtUp != nil {
		return nil
	}
	return f.Filter.Abandoned(ctx, reason, began)
}

// CaughtUp implements gate.Filter.
func (f gateFilter) CaughtUp(ctx context.Context) bool { return f.caughtUp != nil && f.caughtUp(ctx) }

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
	f.verify.onAnswer(id, a)
	return a
}
