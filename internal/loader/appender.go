package loader

import (
	"context"
	"errors"
	"time"

	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/changelog"
)

// appender is the adapter of a change log to its filter.
type appender struct{ *changelog.Log }

// Spread implements filter.Appender. The caller's deadline is derived from the windows and
// leases of this instance. Others may have longer ones, and the log waits for them.
func (a appender) Spread(ctx context.Context) error { return withoutDeadline(ctx, a.Log.WaitForPeers) }

// Withdraw implements filter.Appender, in the same way.
func (a appender) Withdraw(ctx context.Context) error { return withoutDeadline(ctx, a.Log.Withdraw) }

// withoutDeadline calls do with a context that is cancelled like ctx, and has no deadline.
func withoutDeadline(ctx context.Context, do func(context.Context) error) error {
	within, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel(context.Cause(ctx))
		}
	})()
	return do(within)
}

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
