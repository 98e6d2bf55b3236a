package redislock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// acquisition takes the locks of sorted keys, group by group, all or none. What was taken is
// renewed while the rest is waited for.
//
// No two calls wait for each other: groups, and the keys of each, are taken in one
// order everywhere.
type acquisition struct {
	locker *Locker
	ctx    context.Context // the caller's, for as long as this exists
	owner  string
	opts   AcquireOption
	end    time.Time // of the wait
	then   func(*Lease, error)

	groups [][]string // what is left to take
	taken  []*Lease
}

func (l *Locker) acquireAll(ctx context.Context, keys []string, o AcquireOption, end time.Time, then func(*Lease, error)) {
	a := &acquisition{locker: l, ctx: ctx, owner: l.newOwner(), opts: o, end: end, then: then}
	taken, rest, err := l.reenterEach(ctx, keys, o)
	a.taken = taken
	if err != nil {
		a.fail(err)
		return
	}
	a.groups = l.groups(rest)
	a.next()
}

// next takes what is left: of each group as many as are free by one script. For the first that is
// taken it waits in the queue like any other caller, holding those before it: so a group is passed
// over no more often than a single lock. A Locker that does not wait takes all or none.
func (a *acquisition) next() {
	for len(a.groups) > 0 {
		group := a.groups[0]
		if len(group) > 1 {
			lease, err := a.locker.tryGroup(a.ctx, group, a.owner, a.opts)
			if lease != nil {
				a.taken = append(a.taken, lease)
				group = group[len(lease.parts):]
			}
			if err == nil && len(group) > 0 && !a.locker.opts.waits() {
				err = ErrBusy
			}
			if err != nil {
				a.fail(err)
				return
			}
		}
		if len(group) == 0 {
			a.groups = a.groups[1:]
			continue
		}
		a.groups[0] = group[1:]
		a.locker.take(a.ctx, group[0], a.owner, a.opts, a.end, func(lease *Lease, err error) {
			if err != nil {
				a.fail(err)
				return
			}
			a.taken = append(a.taken, lease)
			go a.next()
		})
		return
	}
	if len(a.taken) == 1 {
		a.then(a.taken[0], nil)
		return
	}
	lease, err := a.locker.join(a.taken[0].owner, a.opts, a.taken) // the presented owner, if any part has it
	if err != nil {
		a.fail(err)
		return
	}
	a.then(lease, nil)
}

// fail gives back what was taken. A lock that was taken has no stored answer.
func (a *acquisition) fail(err error) {
	if len(a.taken) > 0 && isGiven(err) {
		err = &StoredAnswer{Withheld: true}
	}
	for _, lease := range a.taken {
		a.locker.releaseAsync(a.ctx, lease)
	}
	a.then(nil, err)
}

// groups splits sorted keys into those that one script can take.
func (l *Locker) groups(keys []string) [][]string {
	n := l.nodes[0]
	switch {
	case len(keys) == 0:
		return nil
	case l.scripts.acquireAll == nil || len(l.nodes) > 1:
		return slices.Collect(slices.Chunk(keys, 1))
	case n.cluster == nil:
		return [][]string{keys}
	}
	bySlot := make(map[uint16][]string)
	for _, key := range keys {
		slot := slotOf(key)
		bySlot[slot] = append(bySlot[slot], key)
	}
	var groups [][]string
	for _, slot := range slices.SortedFunc(maps.Keys(bySlot), cmp.Compare) {
		groups = append(groups, bySlot[slot])
	}
	return groups
}

// join makes one lease of several, unless one of them was lost while the others
// were waited for.
func (l *Locker) join(owner string, o AcquireOption, leases []*Lease) (*Lease, error) {
	var parts []part
	asked := time.Now()
	for _, lease := range leases {
		if lease.Ended() {
			return nil, ErrLost
		}
		lease.mu.Lock()
		since := lease.until.Add(-l.validity())
		lease.mu.Unlock()
		if since.Before(asked) {
			asked = since
		}
		parts = append(parts, lease.parts...)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.key, b.key) })
	joined := l.newLease(owner, o, asked, parts...)
	joined.mu.Lock()
	joined.named = true // what waited for the others may be on record
	joined.mu.Unlock()
	for _, lease := range leases {
		lease.finish() // renewed by the joined one now
	}
	return joined, nil
}

// tryGroup asks Redis once for the locks of one slot. The lease is of those before the first
// that is taken; nil when that is the first of all, or when the Locker does not wait.
func (l *Locker) tryGroup(ctx context.Context, keys []string, owner string, o AcquireOption) (*Lease, error) {
	asked := time.Now()
	script := l.scripts.acquireAll
	if o.stored != "" {
		script = l.scripts.acquireAllStored
	}
	c := redisbatch.NewCall(script, keys[0])
	for _, key := range keys[1:] {
		c.Key(key)
	}
	for _, key := range keys {
		c.Key(FenceKey(key))
	}
	some := ""
	if l.opts.waits() {
		some = "some"
	}
	if o.stored != "" {
		for _, key := range keys {
			c.Key(StoredKey(key, o.stored))
		}
		c.MayAnswerText = true
	}
	c.Number(l.leaseArg).Text(owner).Number(l.lifeArg).Text(some).Number(len(keys))
	c.Confirm = true
	fences, err := l.nodes[0].batcher.DoList(ctx, c)
	if found := asStored(err); found != nil {
		return nil, found
	}
	if err == nil && len(fences) > len(keys) {
		err = fmt.Errorf("the script answered %d values for %d keys", len(fences), len(keys))
	}
	if err == nil && len(fences) > 0 {
		err = l.unusable(ctx, asked)
	}
	if err != nil {
		for _, key := range keys {
			l.rollbackAcquire(ctx, key, owner, err)
		}
		return nil, l.explain(failingKey(keys, err), err)
	}
	if len(fences) == 0 {
		return nil, nil
	}
	parts := make([]part, len(fences))
	for i, fence := range fences {
		parts[i] = part{key: keys[i], owner: owner, fence: fence}
	}
	return l.newLease(owner, o, asked, parts...), nil
}

// failingKey returns the key that an error of lua/acquire_all.lua is about: the one that
// it ends with.
func failingKey(keys []string, err error) string {
	longest := ""
	for _, key := range keys {
		if len(key) > len(longest) && strings.HasSuffix(err.Error(), ": "+key) {
			longest = key
		}
	}
	return cmp.Or(longest, keys[0])
}
