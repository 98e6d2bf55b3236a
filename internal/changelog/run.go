package changelog

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/ordergate/ordergate/internal/runbook"
)

// errStopped is the error of Wait in phase Stopped.
var errStopped = fmt.Errorf("%w: it is not read any more", ErrUnavailable)

// Run follows the log until ctx ends, and then returns nil. It reads the whole log, or the entries
// after the mark given to [Log.Resume]. Then it reads new entries as soon as they are appended, and
// at least every [Options.PollEvery]. It continues when the log is unavailable or broken; see
// [Log.State]. The process joins as a member at the beginning, and deregisters at the end if it has
// no pending writes. Run returns an error when it is called a second time.
func (l *Log) Run(ctx context.Context) error {
	if !l.started.CompareAndSwap(false, true) {
		return fmt.Errorf("following %s: it was run before", l.keys[keyLog])
	}
	r := &reader{log: l, reported: -1}
	r.resumeAtMark()
	pace := &pacer{
		reader: r, listener: l.startListener(ctx), poll: time.NewTicker(l.opts.PollEvery), interval: time.NewTimer(0),
		limiter: rate.NewLimiter(rate.Inf, readBurst),
	}
	defer pace.poll.Stop()
	defer pace.interval.Stop()
	for {
		callers := l.takeRead()
		pace.poll.Reset(l.opts.PollEvery)
		began := time.Now()
		err := r.readToTail(ctx)
		callers.finish(err)
		l.mu.Lock()
		l.state.ReadTook = time.Since(began)
		l.mu.Unlock()
		if pace.wait(ctx) != nil {
			l.setPhase(Stopped, errStopped, nil)
			l.takeRead().finish(errStopped)
			l.deregister(ctx)
			return nil
		}
	}
}

// deregister ends the membership of this process.
func (l *Log) deregister(ctx context.Context) {
	if l.member == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.opts.Timeout)
	defer cancel()
	if err := l.member.Leave(ctx); err != nil {
		l.opts.Logger.Warn("leaving the change log failed: nothing counts as absent until this ordergate is back, or is expelled",
			"filter", l.filter, "error", err,
			runbook.FilterNotReady.Do("start it again, or wait until it is expelled"))
	}
}
