package redislock

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	// usualPoll is the longest pause of a wait that may not be woken: the server has
	// not confirmed the subscription, or a holder may publish nothing.
	usualPoll = time.Second
	// rarePoll is about the longest pause of a wait that is woken.
	rarePoll = 10 * time.Second
	// fairWaiterTimeout is how long a waiter of a fair lock counts as alive after it last asked
	// Redis: a few polls.
	fairWaiterTimeout = 5 * time.Second
)

// waits reports whether a lock that is taken is waited for at all.
func (o *Options) waits() bool {
	return o.MaxWaitersPerKey > 0 && (o.Wait.UpTo > 0 || o.Wait.Tries > 1)
}

// end returns when a wait that begins now is over. Counted tries vary by a tenth:
// callers that came together would otherwise ask Redis together for ever, and
// find the lock free only at those instants.
func (w Wait) end(now time.Time) time.Time {
	if w.UpTo > 0 {
		return now.Add(w.UpTo)
	}
	return now.Add(vary(w.Every) * time.Duration(max(0, w.Tries-1)))
}

func vary(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

// pause returns how long to wait for the next attempt, given how long the lock
// stays taken unless it is released or renewed, and whether a release wakes. Where
// that is not known, only the poll notices the end of a lease.
func (w Wait) pause(left time.Duration, wakes bool) time.Duration {
	d := usualPoll
	switch {
	case w.UpTo == 0:
		d = vary(w.Every)
	case wakes && left >= 0:
		d = vary(rarePoll)
	}
	if left >= 0 {
		d = min(d, left+time.Millisecond) // its last millisecond may just have begun
	}
	return d
}

// waitLoop is the wait of one caller.
type waitLoop struct {
	locker  *Locker
	waiter  *waiter
	channel string // its release is published there
	poll    *time.Timer
	over    *time.Timer
	head    bool // the poll is ours to do
	last    bool // the wait is over: there is one more attempt at most
	asked   bool // that attempt was made
}

// startWait queues a waiter and begins its wait; its first poll comes at once. It returns
// nil when as many wait already as may. Call dequeue when the wait is over.
func (l *Locker) startWait(key string, s *waiter, end time.Time) *waitLoop {
	v := l.enqueue(key, s)
	if v != nil {
		v.poll, v.over = time.NewTimer(0), time.NewTimer(time.Until(end))
	}
	return v
}

// enqueue is startWait without the timers.
func (l *Locker) enqueue(key string, s *waiter) *waitLoop {
	if !l.opts.waits() {
		return nil
	}
	channel, ok := l.waiters.enqueue(key, s)
	if !ok {
		return nil
	}
	return &waitLoop{locker: l, waiter: s, channel: channel, head: l.waiters.first(s)}
}

// dequeue ends the wait. It returns the lease that was handed over at the last moment, if
// any. Next wakes the next waiter to ask Redis at once.
func (v *waitLoop) dequeue(next bool) *Lease {
	v.poll.Stop()
	v.over.Stop()
	lease := v.locker.waiters.dequeue(v.waiter, next)
	v.locker.subscribe(v.channel)
	return lease
}

// next blocks until the lock was handed over (a lease), until it is time to ask
// Redis (neither lease nor error), or until the wait is over.
func (v *waitLoop) next(ctx context.Context) (*Lease, error) {
	for !v.asked {
		polled := false
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-v.locker.closed.Done():
		case <-v.over.C:
			v.last = true
		case <-v.poll.C:
			polled = true
		case <-v.waiter.signal:
		}
		if lease, ask, err := v.step(polled); lease != nil || ask || err != nil {
			return lease, err
		}
	}
	return nil, ErrBusy
}

// step returns what the caller is to do now: take a lease that was handed over, ask Redis,
// end with an error, or nothing. Polled: its poll has come.
func (v *waitLoop) step(polled bool) (lease *Lease, ask bool, err error) {
	switch {
	case v.locker.closed.Err() != nil:
		return nil, false, ErrClosed
	case v.asked:
		return nil, false, ErrBusy
	}
	t := v.locker.waiters.nextAction(v.waiter, time.Now(), polled || v.last)
	switch {
	case t.grant != nil:
		return t.grant, false, nil
	case t.claimed: // a grant comes within a round trip, or unclaim puts the waiter back
	case t.ask:
		v.head, v.asked = true, v.last
		return nil, true, nil
	case v.last:
		return nil, false, ErrBusy // the lock is taken: the head's poll would have found it free
	case t.wait > 0: // woken, but other processes come first
		v.poll.Reset(t.wait)
	case t.head && !v.head: // this waiter polls from now on
		v.head = true
		v.poll.Reset(v.pause(notKnown))
	}
	return nil, false, nil
}

// refused has the next attempt come when the lock may be free.
func (v *waitLoop) refused(left time.Duration) {
	v.locker.waiters.refused(v.waiter)
	v.locker.subscribe(v.channel)
	v.poll.Reset(v.pause(left))
}

// pause returns how long to wait for the next attempt. A fair lock is asked for often
// enough to stay in its queue in Redis; a lock in format String may have holders that
// publish nothing.
func (v *waitLoop) pause(left time.Duration) time.Duration {
	o := &v.locker.opts
	wakes := o.Kind != Fair && o.Format == Redisson && v.locker.subscribed(v.channel)
	return o.Wait.pause(left, wakes)
}

// shared reports whether several may hold a lock of this kind at a time.
func (k Kind) shared() bool { return k == Read || k == Semaphore }
