package loader

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
)

// appender is the adapter of a change log to its filter.
type appender struct{ *changelog.Log }

// Spread implements filter.Appender.
func (a appender) Spread(ctx context.Context) error { return a.WaitForPeers(ctx) }

// AppendIncomplete implements filter.Appender.
func (a appender) AppendIncomplete(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, changelog.Doubt{Kind: changelog.Lost, Reason: reason, Orders: true, Since: since})
}

// AppendAbandoned implements filter.Appender.
func (a appender) AppendAbandoned(ctx context.Context, reason string, since time.Time) (filter.Entry, error) {
	return a.doubt(ctx, changelog.Doubt{Kind: changelog.Running, Reason: reason, Orders: true, Since: since})
}

func (a appender) doubt(ctx context.Context, d changelog.Doubt) (filter.Entry, error) {
	at, err := a.AppendDoubt(ctx, d)
	return entryOf(at), err
}
