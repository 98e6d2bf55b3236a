package changelog

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// errStopped is why a log in phase Stopped cannot be waited for.
var errStopped = fmt.Errorf("%w: it is not read any more", ErrUnavailable)

// Run follows the log until ctx ends, and then returns nil: first all of it, or all
// behind the mark given to [Log.Resume], then whatever is new, as soon as it is appended, and
// at least every [Options.PollEvery]. A log that is unavailable or broken
// does not end it; see [Log.State]. A member joins when it begins, and leaves when it
// ends if it owes nothing. A log is run once: it returns an error the second time.
func (l *Log) Run(ctx context.Context) error {
	if !l.started.CompareAndSwap(false, true) {
		return fmt.Errorf("following %s: it was run before", l.keys[0])
	}
	r := &reader{log: l, reported: -1}
	r.resumeAtMark()
	rest := &pacer{
		reader: r, listener: l.startListener(ctx), poll: time.NewTicker(l.opts.PollEvery), interval: time.NewTimer(0),
		limiter: rate.NewLimiter(rate.Inf, readBurst),
	}
	defer rest.poll.Stop()
	defer rest.interval.Stop()
	for {
		asked := l.takeRead()
		rest.poll.Reset(l.opts.PollEvery)
		began := time.Now()
		err := r.readToTail(ctx)
		asked.finish(err)
		l.mu.Lock()
		l.state.ReadTook = time.Since(began)
		l.mu.Unlock()
		if rest.wait(ctx) != nil {
			l.setPhase(Stopped, errStopped, nil)
			l.takeRead().finish(errStopped)
			l.deregister(ctx)
			return nil
		}
	}
}

// farewell is the end of a member.
func (l *Log) deregister(ctx context.Context) {
	if l.member == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Timeout)
	defer cancel()
	if err := l.member.Leave(ctx); err != nil {
		l.opts.Logger.Warn("leaving the change log failed: nothing counts as absent until this ordergate is back, or is taken for gone",
			"filter", l.filter, "error", err)
	}
}
