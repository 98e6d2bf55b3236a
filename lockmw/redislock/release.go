package redislock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// releaseLease gives up the parts of a finished lease. The error is the first
// that Redis gave, or ErrLost when a part was no longer held.
func (l *Locker) releaseLease(ctx context.Context, lease *Lease) error {
	if len(lease.parts) > 1 {
		return l.eachPart(lease, func(p *part) error { return l.releasePart(ctx, lease, p) })
	}
	p := &lease.parts[0]
	able := l.scripts.handover != nil && len(l.nodes) == 1 && lease.stores() == nil
	if s := l.waiters.claim(p, able); s != nil {
		return l.handOver(ctx, lease, s)
	}
	return l.releasePart(ctx, lease, p)
}

func (l *Locker) releasePart(ctx context.Context, lease *Lease, p *part) error {
	if s := lease.stores(); s != nil {
		return l.releaseStoring(ctx, p, s)
	}
	late := hasLateReplies(p.settled)
	r, err := l.release(ctx, p.key, p.owner, p.entry, lease.mayBeNoted())
	if late {
		l.releaseLateGrants(ctx, p.key, p.owner, p.settled)
	}
	return l.releasedPart(p, r, err)
}

// releasedPart acts on the answer to the release of a part.
func (l *Locker) releasedPart(p *part, r released, err error) error {
	l.waiters.onReleased(p.key, r.receivers())
	switch {
	case err != nil:
		return l.explain(p.key, err)
	case !r.held():
		return ErrLost
	}
	l.health.released() // every command of a lock's life was let through
	return nil
}

// eachPart does something for all parts at once: the calls to one server
// share a round trip.
func (l *Locker) eachPart(lease *Lease, do func(*part) error) error {
	errs := make([]error, len(lease.parts))
	var wg sync.WaitGroup
	for i := range lease.parts {
		wg.Go(func() { errs[i] = do(&lease.parts[i]) })
	}
	wg.Wait()
	// A part without a reply has to be repeated, whether or not others are lost.
	unknown := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return errors.Is(err, ErrLost) })
	return cmp.Or(errors.Join(unknown...), errors.Join(errs...))
}

// holdLease leaves the parts of a finished lease taken for the hold time.
func (l *Locker) holdLease(ctx context.Context, lease *Lease, reason string) error {
	note := lease.record()
	note.Reason, note.Held = reason, true
	e := extension{to: l.opts.Hold, note: note, hold: true}
	return l.eachPart(lease, func(p *part) error {
		held, err := l.extend(ctx, p, e)
		if err == nil && !held {
			err = ErrLost
		}
		return err
	})
}

// handOver gives the lock to a waiter of this process.
//
// The waiter is claimed: it stays until deliver or unclaim, or has left, which its state
// then says.
func (l *Locker) handOver(ctx context.Context, lease *Lease, s *waiter) error {
	key, asked := lease.parts[0].key, time.Now()
	c := redisbatch.NewCall(l.scripts.handover, key).Key(FenceKey(key))
	l.kindKeys(c, key)
	c.Key(after(key, recordSuffix))
	c.Number(l.leaseArg).Text(s.owner).Number(l.lifeArg).Text(lease.owner)
	c.Confirm, c.Repeated = true, -1
	n, err := l.nodes[0].batcher.Do(ctx, c)
	if err == nil && n > 0 && time.Since(asked) >= l.validity() {
		// The old lease is over. This grant is released, and the waiter asks again.
		err = errLate
	}
	if err != nil {
		// Either of the two may hold the lock now. Both are released: the grant that
		// may have been made, and the old lease. The waiter asks again under another
		// name, or the rollback would release its next grant too.
		owner := s.owner
		l.waiters.unclaim(s, l.newOwner())
		l.rollbackAcquire(ctx, key, owner, err)
		if isMoving(err) {
			return l.releasePart(ctx, lease, &lease.parts[0])
		}
		l.rollbackAcquire(ctx, key, lease.owner, err)
		if errors.Is(err, redisbatch.ErrNotReplicated) || errors.Is(err, errLate) {
			return nil // the old lease is released in any case
		}
		return err
	}
	if n <= 0 {
		l.waiters.unclaim(s, s.owner)
		if n == 0 {
			return ErrLost
		}
		return nil
	}
	handed, _ := lease.parts[0].handed.more(asked)
	grant := l.newLease(s.owner, s.opts, asked, part{key: key, owner: s.owner, fence: n, handed: handed})
	if !l.waiters.deliver(s, grant) {
		l.releaseAsync(ctx, grant)
	}
	return nil
}

// releaseAsync releases a lease whose caller has left, or hands it to the next waiter.
func (l *Locker) releaseAsync(ctx context.Context, lease *Lease) {
	if !lease.finish() { // at once: no caller has it from now on
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	release := func() {
		defer cancel()
		_ = lease.finished("releasing", l.releaseLease(ctx, lease)) // it logs
	}
	if !l.cleanup.tryGo(release) {
		go release()
	}
}
