package engine

import (
	"context"

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

// Followed implements gate.Filter.
func (f gateFilter) Followed() bool { return f.caughtUp != nil }

// CaughtUp implements gate.Filter.
func (f gateFilter) CaughtUp(ctx context.Context) bool { return f.caughtUp(ctx) }

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
