package changelog

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// burst is how many reads may follow each other at once.
const readBurst = 8

// pause is how long a reader waits between two reads: a crowd that all report each entry would leave
// Redis no time for others. Each reader costs Redis two calls a pause, and a create waits for about one: the
// pause grows with the crowd, from 1.2 ms for four members to 29 ms for fifty.
func (l *Log) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(max(1, len(l.members)-2)) * l.opts.Pause
}

// rest is what the reader does between two reads.
type pacer struct {
	*reader
	listener     *listener
	poll         *time.Ticker
	limiter      *rate.Limiter
	interval     *time.Timer // when it may read before the next poll
	intervalOver bool        // that was reached
	polled       bool        // the last read was a poll, and took no turn
}

// wait blocks until the log is to be read again. It listens for what is appended only when its turn has
// come: what it hears, it reports at once, and what was appended before is reported with it. The error is ctx's.
func (r *pacer) wait(ctx context.Context) error {
	if !r.polled {
		r.intervalOver = false
		r.interval.Reset(r.nextInterval())
	}
	wanted := r.lastReadOK && r.log.member.isFirstRenewalDue() // the sooner others need not wait for it
	listened := make(<-chan time.Time)
	r.listenIfDue(&listened)
	for !wanted || !r.intervalOver {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.poll.C:
			r.polled = true
			return nil
		case <-r.interval.C:
			r.intervalOver = true
			r.listenIfDue(&listened)
		case <-r.log.wakeReader:
			wanted = true
		case <-listened:
			wanted = true
		case entries := <-r.listener.arrived:
			if wanted = r.receive(r.listener, entries) || wanted; !wanted {
				r.listenIfDue(&listened)
			}
		}
	}
	r.polled = false
	return nil
}

// listens has what is new brought when it is the reader's turn. If something that the last read brought is to be
// reported, it waits for no longer than a pause: most often there is something, which is reported too.
func (r *pacer) listenIfDue(listened *<-chan time.Time) {
	if !r.intervalOver || !r.lastReadOK || !r.caughtUp || r.log.reader == "" {
		return
	}
	r.listener.request(r.lastReceived().seq)
	if r.hasUnreported() {
		*listened = time.After(r.log.pause())
	}
}

// next returns after how long it is the reader's turn.
func (r *pacer) nextInterval() time.Duration {
	r.limiter.SetLimit(rate.Every(r.log.pause()))
	return r.limiter.Reserve().Delay()
}
