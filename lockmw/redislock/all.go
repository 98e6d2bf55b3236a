package redislock

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// acquireAll takes the locks of sorted keys, group by group, all or none. What
// was taken is renewed while the rest is waited for.
//
// No two calls wait for each other: groups are taken in one order everywhere, and
// within a group all or none in one step.
func (l *Locker) acquireAll(ctx context.Context, keys []string, o AcquireOption, end time.Time) (*Lease, error) {
	owner := l.newOwner()
	var taken []*Lease
	fail := func(err error) (*Lease, error) {
		for _, lease := range taken {
			l.giveUp(ctx, lease)
		}
		return nil, err
	}
	taken, rest, err := l.reenterEach(ctx, keys, o)
	if err != nil {
		return fail(err)
	}
	for _, group := range l.groups(rest) {
		var lease *Lease
		var err error
		if len(group) == 1 {
			lease, err = l.take(ctx, group[0], owner, o, end)
		} else {
			lease, err = l.acquireGroup(ctx, group, owner, o, end)
		}
		if err != nil {
			return fail(err)
		}
		taken = append(taken, lease)
	}
	if len(taken) == 1 {
		return taken[0], nil
	}
	return l.join(taken[0].owner, o, taken, fail) // the presented owner, if any part has it
}

// groups splits sorted keys into those that one script can take.
func (l *Locker) groups(keys []string) [][]string {
	n := l.nodes[0]
	switch {
	case len(keys) == 0:
		return nil
	case l.scripts.acquireAll == nil || len(l.nodes) > 1:
		return slices.Collect(slices.Chunk(keys, 1))
	case n.pipe.cluster == nil:
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
func (l *Locker) join(owner string, o AcquireOption, leases []*Lease, fail func(error) (*Lease, error)) (*Lease, error) {
	var parts []part
	now := time.Now()
	asked := now
	for _, lease := range leases {
		lease.mu.Lock()
		lost, since := lease.gone || !lease.until.After(now), lease.until.Add(-l.validity())
		lease.mu.Unlock()
		if lost {
			return fail(ErrLost)
		}
		if since.Before(asked) {
			asked = since
		}
		parts = append(parts, lease.parts...)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.key, b.key) })
	joined := l.newLease(owner, o, asked, parts...)
	for _, lease := range leases {
		lease.finish() // renewed by the joined one now
	}
	return joined, nil
}

// acquireGroup takes locks of one slot, all or none. When one of them is taken,
// it waits for that one and holds none meanwhile.
func (l *Locker) acquireGroup(ctx context.Context, keys []string, owner string, o AcquireOption, end time.Time) (*Lease, error) {
	var v *vigil
	// Whoever waited behind us asks when we leave: the key may be free.
	rise := func() {
		if v != nil {
			_ = v.rise(true) // a group is never handed a lock
			v = nil
		}
	}
	defer rise()
	for {
		lease, busy, left, err := l.tryGroup(ctx, keys, owner, o)
		if lease != nil || err != nil {
			return lease, err
		}
		if v != nil && v.seat.line.key != busy {
			rise()
		}
		if v == nil {
			if v = l.sit(busy, &seat{owner: owner, opts: o, group: true}, left, end); v == nil {
				return nil, ErrBusy
			}
		} else {
			v.refused(left)
		}
		if _, err := v.turn(ctx); err != nil {
			return nil, err
		}
	}
}

// tryGroup asks once for the locks of one slot. Without a lease and an error, busy
// is the first that is taken.
func (l *Locker) tryGroup(ctx context.Context, keys []string, owner string, o AcquireOption) (
	lease *Lease, busy string, left time.Duration, err error,
) {
	asked := time.Now()
	q := ask(l.scripts.acquireAll, keys[0])
	for _, key := range keys[1:] {
		q.key(key)
	}
	for _, key := range keys {
		q.key(FenceKey(key))
	}
	q.number(l.leaseArg).text(owner).number(l.lifeArg)
	q.confirm = true
	n, err := l.nodes[0].pipe.doList(ctx, q)
	if err == nil && len(n) != len(keys) && len(n) != 2 {
		err = fmt.Errorf("the script answered %d values for %d keys", len(n), len(keys))
	}
	if err == nil && n[0] > 0 {
		err = l.unusable(ctx, asked)
	}
	if err != nil {
		for _, key := range keys {
			l.giveBack(ctx, key, owner, err)
		}
		return nil, "", 0, l.explain(culprit(keys, err), err)
	}
	if n[0] < 0 {
		return nil, keys[-n[0]-1], answerOf(n[1], asked).left, nil
	}
	parts := make([]part, len(keys))
	for i, key := range keys {
		parts[i] = part{key: key, owner: owner, fence: n[i]}
	}
	return l.newLease(owner, o, asked, parts...), "", 0, nil
}

// culprit returns the key that an error of lua/acquire_all.lua is about: the one that
// it ends with.
func culprit(keys []string, err error) string {
	longest := ""
	for _, key := range keys {
		if len(key) > len(longest) && strings.HasSuffix(err.Error(), ": "+key) {
			longest = key
		}
	}
	return cmp.Or(longest, keys[0])
}
