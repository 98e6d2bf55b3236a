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
	// fairAlive is how long a waiter of a fair lock counts as alive after it was
	// heard of: a few polls.
	fairAlive = 5 * time.Second
)

// waits reports whether a lock that is taken is waited for at all.
func (o *Options) waits() bool {
	return o.MaxWaitersPerKey > 0 && (o.Wait.UpTo > 0 || o.Wait.Tries > 1)
}

// end returns when a wait that begins now is over. Counted tries vary by a tenth:
// callers that came together would otherwise ask together for ever after, and
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
// nobody can tell how long, a lease that ends is noticed by the poll alone.
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

// vigil is the wait of one caller in its seat.
type vigil struct {
	locker  *Locker
	seat    *seat
	channel string // its release is published there
	poll    *time.Timer
	over    *time.Timer
	head    bool // the poll is ours to do
	last    bool // the wait is over: there is one more attempt at most
	asked   bool // that attempt was made
}

// sit takes a seat and begins the wait, in which it is time to ask at once. It returns
// nil when there is no seat. Call rise when it is over.
func (l *Locker) sit(key string, s *seat, end time.Time) *vigil {
	v := l.enter(key, s)
	if v != nil {
		v.poll, v.over = time.NewTimer(0), time.NewTimer(time.Until(end))
	}
	return v
}

// enter is sit without the timers.
func (l *Locker) enter(key string, s *seat) *vigil {
	if !l.opts.waits() {
		return nil
	}
	channel, ok := l.room.enter(key, s)
	if !ok {
		return nil
	}
	return &vigil{locker: l, seat: s, channel: channel, head: l.room.first(s)}
}

// rise gives the seat up. It returns the lease that was handed over at the last
// moment, if any. Next tells whether the next in line should ask at once.
func (v *vigil) rise(next bool) *Lease {
	v.poll.Stop()
	v.over.Stop()
	lease := v.locker.room.leave(v.seat, next)
	v.locker.subscribe(v.channel)
	return lease
}

// turn blocks until the lock was handed over (a lease), until it is time to ask
// Redis (neither lease nor error), or until the wait is over.
func (v *vigil) turn(ctx context.Context) (*Lease, error) {
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
		case <-v.seat.signal:
		}
		if lease, ask, err := v.look(polled); lease != nil || ask || err != nil {
			return lease, err
		}
	}
	return nil, ErrBusy
}

// look returns what the caller is to do now: to take a lease that was handed over, to ask
// Redis, to give up with an error, or nothing. Polled tells that its poll has come.
func (v *vigil) look(polled bool) (lease *Lease, ask bool, err error) {
	switch {
	case v.locker.closed.Err() != nil:
		return nil, false, ErrClosed
	case v.asked:
		return nil, false, ErrBusy
	}
	t := v.locker.room.look(v.seat, time.Now(), polled || v.last)
	switch {
	case t.grant != nil:
		return t.grant, false, nil
	case t.claimed: // a grant comes within a round trip, or the seat is put back
	case t.ask:
		v.head, v.asked = true, v.last
		return nil, true, nil
	case v.last:
		return nil, false, ErrBusy // the head knows, and nobody else need ask
	case t.wait > 0: // woken, but it is others' turn
		v.poll.Reset(t.wait)
	case t.head && !v.head: // from now on it is ours to poll
		v.head = true
		v.poll.Reset(v.pause(notKnown))
	}
	return nil, false, nil
}

// refused has the next attempt come when the lock may be free.
func (v *vigil) refused(left time.Duration) {
	v.locker.room.refused(v.seat)
	v.locker.subscribe(v.channel)
	v.poll.Reset(v.pause(left))
}

// pause returns how long to wait for the next attempt. A fair lock is asked for often
// enough to stay in its line in Redis; a lock in format String may have holders that
// publish nothing.
func (v *vigil) pause(left time.Duration) time.Duration {
	o := &v.locker.opts
	wakes := o.Kind != Fair && o.Format == Redisson && v.locker.subscribed(v.channel)
	return o.Wait.pause(left, wakes)
}

// shared reports whether a grant leaves room for another.
func (k Kind) shared() bool { return k == Read || k == Semaphore }
