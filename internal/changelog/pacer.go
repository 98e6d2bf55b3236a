package changelog

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// readBurst is how many reads may follow each other without a pause.
const readBurst = 8

// pause returns the time between two reads. Without it, many readers that all report each entry
// would leave Redis no time for others. Each reader sends Redis two calls a pause, and a create
// waits for about one. The pause grows with the members: 1.2 ms for four, 29 ms for fifty.
func (l *Log) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(max(1, len(l.members)-2)) * l.opts.Pause
}

// quickRechecks is how many of the reads after one that found a member away come before the next
// poll is due. Mostly that member is an ordergate that starts, and has its lease a moment later.
const quickRechecks = 3

// pacer decides when the next read begins.
type pacer struct {
	*reader
	listener     *listener
	poll         *time.Ticker
	limiter      *rate.Limiter
	interval     *time.Timer // the earliest next read, unless a poll comes before
	intervalOver bool        // interval has fired
	polled       bool        // the last read was a poll, and used no interval
}

// wait blocks until the next read is due. It listens for new entries only once the interval is
// over. The next read then reports an entry as soon as it arrives, together with earlier ones. The
// error is that of ctx.
func (r *pacer) wait(ctx context.Context) error {
	if !r.polled {
		r.intervalOver = false
		r.interval.Reset(r.nextInterval())
	}
	wanted := r.lastReadOK && r.log.member.isFirstRenewalDue() // the sooner the lease begins, the sooner windows open
	deadline := make(<-chan time.Time)
	r.listenIfDue(&deadline)
	recheck := r.recheck()
	for !wanted || !r.intervalOver {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.poll.C:
			r.polled = true
			return nil
		case <-r.interval.C:
			r.intervalOver = true
			r.listenIfDue(&deadline)
		case <-r.log.wakeReader:
			wanted = true
		case <-deadline:
			wanted = true
		case <-recheck:
			wanted = true
		case entries := <-r.listener.arrived:
			if wanted = r.receive(r.listener, entries) || wanted; !wanted {
				r.listenIfDue(&deadline)
			}
		}
	}
	r.polled = false
	return nil
}

// listenIfDue requests new entries if the interval is over. If the last read brought unreported
// entries, it listens for one pause at most. Usually a new entry arrives by then, and one read
// reports them all.
func (r *pacer) listenIfDue(deadline *<-chan time.Time) {
	if !r.intervalOver || !r.lastReadOK || !r.caughtUp || r.log.reader == "" {
		return
	}
	r.listener.request(r.lastReceived().seq)
	if r.hasUnreported() {
		*deadline = time.After(r.log.pause())
	}
}

// recheck fires when the log is to be read again because a member was away: after an eighth of a
// poll, then a fourth, then a half.
func (r *pacer) recheck() <-chan time.Time {
	if r.awayReads == 0 || r.awayReads > quickRechecks {
		return nil
	}
	return time.After(r.log.opts.PollEvery >> (quickRechecks + 1 - r.awayReads))
}

// nextInterval returns the time until the next read may begin.
func (r *pacer) nextInterval() time.Duration {
	r.limiter.SetLimit(rate.Every(r.log.pause()))
	return r.limiter.Reserve().Delay()
}
