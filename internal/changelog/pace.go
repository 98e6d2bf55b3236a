package changelog

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// burst is how many reads may follow each other at once.
const burst = 8

// pause is how long a reader waits between two reads: a crowd that all report each entry would leave
// Redis no time for others. Each reader costs Redis two calls a pause, and a create waits for about one: the
// pause grows with the crowd, from 1.2 ms for four members to 29 ms for fifty.
func (l *Log) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(max(1, len(l.known)-2)) * l.opts.Pause
}

// rest is what the reader does between two reads.
type rest struct {
	*reader
	news   *news
	poll   *time.Ticker
	pace   *rate.Limiter
	turn   *time.Timer // when it may read before the next poll
	turned bool        // that was reached
	polled bool        // the last read was a poll, and took no turn
}

// wait blocks until the log is to be read again. It listens for what is appended only when its turn has
// come: what it hears, it reports at once, and what was appended before is reported with it. The error is ctx's.
func (r *rest) wait(ctx context.Context) error {
	if !r.polled {
		r.turned = false
		r.turn.Reset(r.next())
	}
	wanted := r.answered && r.log.member.begins() // the sooner others need not wait for it
	listened := make(<-chan time.Time)
	r.listens(&listened)
	for !wanted || !r.turned {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.poll.C:
			r.polled = true
			return nil
		case <-r.turn.C:
			r.turned = true
			r.listens(&listened)
		case <-r.log.kick:
			wanted = true
		case <-listened:
			wanted = true
		case entries := <-r.news.arrived:
			if wanted = r.hear(r.news, entries) || wanted; !wanted {
				r.listens(&listened)
			}
		}
	}
	r.polled = false
	return nil
}

// listens has what is new brought when it is the reader's turn. If something that the last read brought is to be
// reported, it waits for no longer than a pause: most often there is something, which is reported too.
func (r *rest) listens(listened *<-chan time.Time) {
	if !r.turned || !r.answered || !r.steady || r.log.reader == "" {
		return
	}
	r.news.ask(r.heardUpTo().seq)
	if r.unreported() {
		*listened = time.After(r.log.pause())
	}
}

// next returns after how long it is the reader's turn.
func (r *rest) next() time.Duration {
	r.pace.SetLimit(rate.Every(r.log.pause()))
	return r.pace.Reserve().Delay()
}
