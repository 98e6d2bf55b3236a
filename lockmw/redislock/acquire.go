package redislock

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// acquireOne re-enters a lock, or takes it.
func (l *Locker) acquireOne(ctx context.Context, key string, o AcquireOption, end time.Time) (*Lease, error) {
	if o.present != "" {
		p, asked, err := l.reenterOne(ctx, key, o)
		if err != nil {
			return nil, err
		}
		if p.fence > 0 {
			return l.newLease(p.owner, o, asked, p), nil
		}
	}
	return l.take(ctx, key, l.newOwner(), o, end)
}

// take takes one lock for a new owner.
func (l *Locker) take(ctx context.Context, key, owner string, o AcquireOption, end time.Time) (*Lease, error) {
	if l.opts.Kind == Fair && l.opts.waits() {
		return l.takeFair(ctx, key, owner, o, end)
	}
	left := time.Duration(notKnown)
	if !l.waiters.occupied(key) {
		a, err := l.try(ctx, key, owner, o)
		if err != nil {
			return nil, err
		}
		if a.granted() {
			return l.newLease(a.owner, o, a.asked, a.part(key)), nil
		}
		left = a.left
	}
	v := l.startWait(key, &waiter{owner: owner, opts: o}, end)
	if v == nil {
		return nil, ErrBusy
	}
	v.refused(left)
	lease, err := l.await(ctx, v)
	if err == nil {
		_ = v.dequeue(l.opts.Kind.shared())
		return lease, nil
	}
	late := v.dequeue(isStored(err)) // the others find the answer, too
	switch {
	case late != nil && errors.Is(err, ErrBusy): // handed over as the wait ended
		return late, nil
	case late != nil:
		l.releaseAsync(ctx, late)
	}
	return nil, err
}

// takeFair is take for a fair lock that is waited for. Redis puts a caller that it
// refuses into the queue of the lock. So the caller joins our queue first and leaves it
// last: no more callers of this Locker are in Redis's queue than may wait.
func (l *Locker) takeFair(ctx context.Context, key, owner string, o AcquireOption, end time.Time) (*Lease, error) {
	v := l.startWait(key, &waiter{owner: owner, opts: o}, end)
	if v == nil {
		return nil, ErrBusy
	}
	lease, err := l.await(ctx, v)
	if err == nil {
		_ = v.dequeue(false)
		return lease, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	l.cleanup.Go(func() {
		defer cancel()
		l.dequeue(ctx, key, owner)
		_ = v.dequeue(false)
	})
	return nil, err
}

// await waits until the lock is granted or the wait is over.
func (l *Locker) await(ctx context.Context, v *waitLoop) (*Lease, error) {
	s := v.waiter
	for {
		lease, err := v.next(ctx)
		if lease != nil || err != nil {
			return lease, err
		}
		a, err := l.try(ctx, s.queue.key, s.owner, s.opts)
		if err != nil {
			return nil, err
		}
		if a.granted() {
			return l.newLease(a.owner, s.opts, a.asked, a.part(s.queue.key)), nil
		}
		v.refused(a.left)
	}
}

// reenterOne takes part in the lease of the presented owner. The part has no
// fence when that owner does not hold the lock.
func (l *Locker) reenterOne(ctx context.Context, key string, o AcquireOption) (part, time.Time, error) {
	if len(l.nodes) > 1 || !isOwner(o.present) {
		return part{}, time.Time{}, nil
	}
	entry, stored := l.newOwner(), o.storedBefore()
	if stored != "" {
		entry += "=" + stored // see stored_inner.lua
	}
	a, err := l.reenter(ctx, key, o.present, entry, stored)
	if !isStored(err) {
		err = l.explain(key, err)
	}
	return part{key: key, owner: o.present, fence: a.fence, entry: entry}, a.asked, err
}

// reenterEach is reenterOne for several keys at once: the calls share round
// trips. It returns the leases of those that were entered, and the other keys; with
// an error, leases of what was entered nevertheless.
func (l *Locker) reenterEach(ctx context.Context, keys []string, o AcquireOption) (entered []*Lease, rest []string, err error) {
	if len(l.nodes) > 1 || !isOwner(o.present) {
		return nil, keys, nil
	}
	type entry struct {
		part
		asked time.Time
		err   error
	}
	entries := make([]entry, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		wg.Go(func() {
			e := &entries[i]
			e.part, e.asked, e.err = l.reenterOne(ctx, key, o)
		})
	}
	wg.Wait()
	for i, e := range entries {
		switch {
		case e.err != nil:
			err = cmp.Or(err, e.err)
		case e.fence > 0:
			entered = append(entered, l.newLease(e.owner, o, e.asked, e.part))
		default:
			rest = append(rest, keys[i])
		}
	}
	return entered, rest, err
}
