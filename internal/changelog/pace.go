package changelog

import (
	"context"
	"time"
)

// burst is how many reads may follow each other without a pause: a timer that is
// asked for a fraction of a millisecond can take a whole one.
const burst = 8

// pace keeps reads to so many a second, on average. It is not safe for concurrent use.
type pace struct {
	each time.Duration
	next time.Time // when the reads so far would have ended at that pace
}

func newPace(perSecond int) *pace { return &pace{each: time.Second / time.Duration(perSecond)} }

// wait blocks until another read may begin.
func (p *pace) wait(ctx context.Context) {
	now := time.Now()
	if p.next = p.next.Add(p.each); p.next.Before(now) {
		p.next = now
	}
	ahead := p.next.Sub(now)
	if ahead <= burst*p.each {
		return
	}
	timer := time.NewTimer(ahead)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
