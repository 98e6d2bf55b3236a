package redislock

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
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

// wait is the wait of one caller for one lock. It needs no goroutine: each event (a release, the
// poll, the end of the wait, of the caller's context or of the Locker) comes in one of its own,
// which asks Redis if that is due. An event that comes before the answer is looked at with it.
type wait struct {
	locker  *Locker
	ctx     context.Context // the caller's, for as long as this exists
	then    func(*Lease, error)
	waiter  waiter
	channel string      // its release is published there
	unwatch func() bool // of ctx

	mu       sync.Mutex
	poll     *time.Timer
	deadline *time.Timer
	due      bool // the poll has come
	head     bool // the poll is ours to do
	last     bool // the wait is over: there is one more attempt at most
	asked    bool // that attempt was made
	asking   bool // an attempt is on its way
	over     bool // then was called, or is about to be
}

// take takes one lock for a new owner. It asks Redis, in the caller's goroutine if that may block, and waits
// without one. It calls then once: with a stored answer in the caller's goroutine or in one of its own, and with
// anything else in any, where then must not block.
//
// Redis puts a caller to which it refuses a fair lock into the queue of the lock. So such a caller
// joins our queue first and leaves it last: no more callers of this Locker are in Redis's queue
// than may wait.
func (l *Locker) take(ctx context.Context, key, owner string, o AcquireOption, end time.Time, then func(*Lease, error)) {
	if l.opts.Kind == Fair && l.opts.waits() || l.waiters.occupied(key) {
		l.wait(ctx, key, owner, o, end, notKnown, then)
		return
	}
	tried := func(a answer, err error) {
		if err != nil || a.granted() {
			then(l.leaseOf(key, o, a), err)
			return
		}
		l.wait(ctx, key, owner, o, end, a.left, then)
	}
	if o.blocks {
		tried(l.try(ctx, key, owner, o))
	} else {
		l.tryAsync(ctx, key, owner, o, tried)
	}
}

// wait waits for a lock that stays taken for as long as left, and takes it.
func (l *Locker) wait(ctx context.Context, key, owner string, o AcquireOption, end time.Time, left time.Duration, then func(*Lease, error)) {
	fair := l.opts.Kind == Fair
	v := &wait{locker: l, ctx: ctx, then: then, due: fair, waiter: waiter{owner: owner, opts: o}}
	v.waiter.wake = func() { v.on(nil) }
	v.mu.Lock() // it may be woken as soon as it is in its queue
	var ok bool
	if v.channel, ok = l.enqueue(key, &v.waiter); !ok {
		v.mu.Unlock()
		then(nil, ErrBusy)
		return
	}
	v.head = l.waiters.first(&v.waiter)
	v.poll = time.AfterFunc(math.MaxInt64, func() { v.on(&v.due) })
	v.deadline = time.AfterFunc(time.Until(end), func() { v.on(&v.last) })
	v.unwatch = context.AfterFunc(ctx, v.waiter.wake)
	if !fair {
		v.refused(left)
	}
	v.run()
}

// enqueue adds a waiter to its queue, if another one may wait.
func (l *Locker) enqueue(key string, w *waiter) (channel string, ok bool) {
	if !l.opts.waits() {
		return "", false
	}
	return l.waiters.enqueue(key, w)
}

// leaseOf returns the lease of an answer; nil: it was not granted.
func (l *Locker) leaseOf(key string, o AcquireOption, a answer) *Lease {
	if !a.granted() {
		return nil
	}
	return l.newLease(a.owner, o, a.asked, a.part(key))
}

// on is an event, which sets what it is about.
func (v *wait) on(what *bool) {
	v.mu.Lock()
	if what != nil {
		*what = true
	}
	v.run()
}

// run does what is due. The mutex is held, and unlocked.
func (v *wait) run() {
	if v.over || v.asking {
		v.mu.Unlock()
		return
	}
	switch lease, ask, err := v.step(); {
	case ask:
		v.ask()
	case lease != nil || err != nil:
		v.finish(lease, err)
	default:
		v.mu.Unlock()
	}
}

// ask asks Redis for the lock. The mutex is held, and unlocked.
func (v *wait) ask() {
	v.asking = true
	v.mu.Unlock()
	key, o := v.waiter.queue.key, v.waiter.opts
	v.locker.tryAsync(v.ctx, key, v.waiter.owner, o, func(a answer, err error) {
		v.mu.Lock()
		v.asking = false
		if err != nil || a.granted() {
			v.finish(v.locker.leaseOf(key, o, a), err)
			return
		}
		v.refused(a.left)
		v.run()
	})
}

// finish ends the wait and has then called. The mutex is held, and unlocked.
func (v *wait) finish(lease *Lease, err error) {
	v.over = true
	v.mu.Unlock()
	if err != nil { // what follows an error may block
		go v.end(nil, err)
		return
	}
	v.end(lease, nil)
}

// end calls then. A lease that comes too late is given back.
func (v *wait) end(lease *Lease, err error) {
	v.unwatch()
	v.poll.Stop()
	v.deadline.Stop()
	l := v.locker
	if l.opts.Kind == Fair && err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(v.ctx), cleanupTime)
		l.cleanup.Go(func() {
			defer cancel()
			l.dequeue(ctx, v.waiter.queue.key, v.waiter.owner)
			v.dequeue(false)
		})
		v.then(nil, err)
		return
	}
	// The others find a stored answer, too.
	late := v.dequeue(err == nil && l.opts.Kind.shared() || isStored(err))
	switch {
	case late == nil || late == lease:
	case errors.Is(err, ErrBusy): // handed over as the wait ended
		lease, err = late, nil
	default:
		l.releaseAsync(v.ctx, late)
	}
	v.then(lease, err)
}

// dequeue leaves the queue. It returns the lease that was handed over at the last moment, if any.
// Next wakes the next waiter to ask Redis at once.
func (v *wait) dequeue(next bool) *Lease {
	lease := v.locker.waiters.dequeue(&v.waiter, next)
	v.locker.subscribe(v.channel)
	return lease
}

// step returns what is to be done now: take a lease that was handed over, ask Redis, end with an
// error, or nothing. The mutex is held.
func (v *wait) step() (lease *Lease, ask bool, err error) {
	switch {
	case v.ctx.Err() != nil:
		return nil, false, v.ctx.Err()
	case v.locker.closed.Err() != nil:
		return nil, false, ErrClosed
	case v.asked:
		return nil, false, ErrBusy
	}
	t := v.locker.waiters.nextAction(&v.waiter, time.Now(), v.due || v.last)
	v.due = false
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
func (v *wait) refused(left time.Duration) {
	v.locker.waiters.refused(&v.waiter)
	v.locker.subscribe(v.channel)
	v.poll.Reset(v.pause(left))
}

// pause returns how long to wait for the next attempt. A fair lock is asked for often
// enough to stay in its queue in Redis; a lock in format String may have holders that
// publish nothing.
func (v *wait) pause(left time.Duration) time.Duration {
	o := &v.locker.opts
	wakes := o.Kind != Fair && o.Format == Redisson && v.locker.subscribed(v.channel)
	return o.Wait.pause(left, wakes)
}

// shared reports whether several may hold a lock of this kind at a time.
func (k Kind) shared() bool { return k == Read || k == Semaphore }
