package redislock

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// acquireOne re-enters a lock, or takes it.
func (l *Locker) acquireOne(ctx context.Context, key string, o AcquireOption, end time.Time, then func(*Lease, error)) {
	if o.present != "" {
		p, asked, err := l.reenterOne(ctx, key, o)
		switch {
		case err != nil:
			then(nil, err)
			return
		case p.fence > 0:
			then(l.newLease(p.owner, o, asked, p), nil)
			return
		}
	}
	l.take(ctx, key, l.newOwner(), o, end, then)
}

// reenterOne takes part in the lease of the presented owner. The part has no
// fence when that owner does not hold the lock.
func (l *Locker) reenterOne(ctx context.Context, key string, o AcquireOption) (part, time.Time, error) {
	if len(l.nodes) > 1 || !isOwner(o.present) {
		return part{}, time.Time{}, nil
	}
	entry, stored := l.newOwner(), o.storedBefore()
	switch { // see lua/reenter.lua
	case o.undoes:
		entry += "=" + AllAnswers
	case stored != "":
		entry += "=" + stored
	case o.settles:
		entry += "=" + entry
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
