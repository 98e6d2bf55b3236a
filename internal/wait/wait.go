// Package wait waits for a time, unless a context ends before: once with [For], or again and again
// with [Every].
package wait

import (
	"context"
	"iter"
	"time"
)

// For blocks for a time. If ctx ends before, it returns the cause.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Every yields the time after each interval, until ctx ends. As with a [time.Ticker], a slow body
// of the loop skips ticks.
func Every(ctx context.Context, interval time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				if !yield(now) {
					return
				}
			}
		}
	}
}
