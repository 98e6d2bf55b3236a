package changelog

import (
	"context"
	"time"
)

// A read costs Redis and this process some 50 µs of CPU in all, whoever waits for it, and
// a moment's patience lets one read answer many. So a read for a few begins at once as
// long as there are few reads, and otherwise after up to a millisecond, which is as short
// as a timer can be relied on; one that many wait for begins when they are many.
const (
	calm  = time.Millisecond // between reads that few wait for, on average
	burst = 8                // of them may follow each other at once
	crowd = 32               // is how many are many
)

// pace says when a read may begin. Wait is for one goroutine at a time.
type pace struct {
	least time.Duration // between reads, even with a crowd
	each  time.Duration // between others, on average
	next  time.Time     // when the reads so far would have ended at that pace
}

// newPace allows so many reads a second at most.
func newPace(perSecond int) *pace {
	least := time.Second / time.Duration(perSecond)
	return &pace{least: least, each: max(least, calm)}
}

// wait blocks until another read may begin. What comes over the channel is that many
// wait for it, and that it may.
func (p *pace) wait(ctx context.Context, crowded <-chan struct{}) {
	now := time.Now()
	// What a crowd was granted counts no further than to the end of the burst.
	p.next = p.next.Add(p.each)
	if most := now.Add((burst + 1) * p.each); p.next.After(most) {
		p.next = most
	}
	if p.next.Before(now) {
		p.next = now
	}
	pause := p.next.Sub(now) - burst*p.each
	if pause <= 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-crowded:
	case <-ctx.Done():
	}
}
