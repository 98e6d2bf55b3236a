package redislock

import (
	"context"
	"math/rand/v2"
	"time"
)

// acquire asks until the lock is granted or the wait is over. An attempt comes
// when the pause has passed, and besides when a release was published: those
// cost nothing of the wait's tries.
func (l *Locker) acquire(ctx context.Context, key string, opts []AcquireOption) (*Lease, error) {
	owner := l.newOwner()
	lease, left, err := l.try(ctx, key, owner, opts)
	if err != nil || lease != nil {
		return lease, err
	}
	w := newPatience(l.opts.Wait, time.Now())
	if w.over(time.Now()) {
		return nil, ErrBusy
	}
	seat, ok := l.waiters.enter(key)
	if !ok {
		return nil, ErrBusy
	}
	defer l.waiters.leave(seat)

	timer := time.NewTimer(w.pause(left, time.Now()))
	defer timer.Stop()
	for {
		polled := false
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.closed.Done():
			return nil, context.Canceled
		case <-seat.woken:
		case <-timer.C:
			polled = true
			w.tries--
		}
		lease, left, err = l.try(ctx, key, owner, opts)
		if err != nil || lease != nil {
			return lease, err
		}
		now := time.Now()
		if polled && w.over(now) {
			return nil, ErrBusy
		}
		if polled {
			timer.Reset(w.pause(left, now))
		}
	}
}

// patience is what is left of a wait.
type patience struct {
	every    time.Duration
	tries    int       // attempts still to come, when counted
	deadline time.Time // zero when counted
}

func newPatience(w Wait, now time.Time) patience {
	if w.UpTo > 0 {
		return patience{every: slowestPoll, deadline: now.Add(w.UpTo)}
	}
	return patience{every: w.Every, tries: w.Tries - 1}
}

func (p *patience) over(now time.Time) bool {
	if p.deadline.IsZero() {
		return p.tries <= 0
	}
	return !now.Before(p.deadline)
}

// pause returns how long to wait for the next attempt, given how long the lock
// stays taken unless it is released or renewed (negative: not known). Counted
// pauses vary by a tenth: callers that came together would otherwise ask
// together for ever after, and find the lock free only at those instants.
func (p *patience) pause(left time.Duration, now time.Time) time.Duration {
	if p.deadline.IsZero() {
		return time.Duration(float64(p.every) * (0.9 + 0.2*rand.Float64()))
	}
	d := min(p.every, p.deadline.Sub(now))
	if left >= 0 {
		d = min(d, left+time.Millisecond) // its last millisecond may just have begun
	}
	return max(d, 0)
}
