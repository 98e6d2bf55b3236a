package redislock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// AcquireAsync is [Locker.Acquire] for a caller that must not block, or that should not
// keep a goroutine while it waits: then is called once, before AcquireAsync returns or by
// another goroutine, with what Acquire would return. That goroutine has other callers, so
// then must not block either.
// AcquireAsync returns false, and does nothing, for what only Acquire does: fair locks,
// several servers (a cluster, a quorum), and the presented owner of a lease.
func (l *Locker) AcquireAsync(ctx context.Context, key string, then func(*Lease, error), opts ...AcquireOption) bool {
	o := merge(opts)
	if l.opts.Kind == Fair || len(l.nodes) > 1 || l.nodes[0].cluster != nil || o.present != "" ||
		o.stored != "" && l.scripts.acquireStored == nil {
		return false
	}
	a := &acquisition{locker: l, ctx: ctx, key: key, start: time.Now(), then: then}
	a.waiter = waiter{owner: l.newOwner(), opts: o, wake: a.woken}
	a.mu.Lock()
	a.unwatch = context.AfterFunc(ctx, a.canceled)
	if l.waiters.occupied(key) {
		a.wait(notKnown)
		return true
	}
	a.try()
	a.mu.Unlock()
	return true
}

// acquisition is an Acquire without a goroutine. Each event has it take the next step, and
// between two of them it is a waiter and two timers.
type acquisition struct {
	locker  *Locker
	ctx     context.Context // of the caller, for as long as this exists
	key     string
	start   time.Time
	then    func(*Lease, error)
	unwatch func() bool // of ctx
	waiter  waiter

	mu     sync.Mutex
	loop   *waitLoop // nil: it has not been refused yet
	asking bool      // Redis. What happens meanwhile is looked at when it has answered
	due    bool      // the poll has come
	over   bool      // then was called, or is about to be
	late   func()    // the end of an answer that comes after that; nil: none does
}

// try asks Redis for the lock. The mutex is held.
func (a *acquisition) try() {
	a.asking = true
	owner, asked := a.waiter.owner, time.Now()
	a.locker.nodes[0].batcher.DoAsync(a.ctx, a.locker.acquireCall(a.key, owner, a.waiter.opts), func(n int64, err error) {
		found := asStored(err)
		if err == nil && n > 0 {
			err = a.locker.unusable(a.ctx, asked)
		}
		a.mu.Lock()
		a.asking = false
		if a.late != nil {
			defer a.late()
		}
		got := answerOf(n, asked)
		switch {
		case found != nil:
			a.finish(nil, found)
		case err != nil:
			// As in try. Not here: rollbackAcquire waits for what it does once the Locker is closed.
			a.locker.cleanup.start(func() { a.locker.rollbackAcquire(a.ctx, a.key, owner, err) })
			a.finish(nil, a.locker.explain(a.key, err))
		case got.granted():
			a.finish(a.locker.newLease(owner, a.waiter.opts, asked, part{key: a.key, owner: owner, fence: n}), nil)
		case a.over:
			a.mu.Unlock()
		case a.loop == nil:
			a.wait(got.left)
		default:
			a.loop.refused(got.left)
			a.step()
		}
	})
}

// wait joins the queue. The mutex is held, and unlocked.
func (a *acquisition) wait(left time.Duration) {
	v := a.locker.enqueue(a.key, &a.waiter)
	if v == nil {
		a.finish(nil, ErrBusy)
		return
	}
	a.loop = v
	v.poll = time.AfterFunc(math.MaxInt64, a.polled)
	v.over = time.AfterFunc(time.Until(a.waiter.opts.end(a.locker.opts.Wait, a.start)), a.ended)
	v.refused(left)
	a.step()
}

func (a *acquisition) woken() {
	a.mu.Lock()
	a.step()
}

func (a *acquisition) polled() {
	a.mu.Lock()
	a.due = true
	a.step()
}

func (a *acquisition) ended() {
	a.mu.Lock()
	a.loop.last = true
	a.step()
}

// step does what is to be done now. The mutex is held, and unlocked.
func (a *acquisition) step() {
	if a.over || a.asking {
		a.mu.Unlock()
		return
	}
	lease, ask, err := a.loop.step(a.due)
	a.due = false
	if lease != nil || err != nil {
		a.finish(lease, err)
		return
	}
	if ask {
		a.try()
	}
	a.mu.Unlock()
}

// canceled is the end of the caller's context. It does not wait for Redis: what that
// grants yet is given back.
func (a *acquisition) canceled() {
	a.mu.Lock()
	if a.asking && !a.over {
		a.late = a.locker.cleanup.begin()
	}
	a.finish(nil, a.ctx.Err())
}

// finish calls then, unless that was done before: a lease that comes too late is given
// back. The mutex is held, and unlocked.
func (a *acquisition) finish(lease *Lease, err error) {
	over, v, l := a.over, a.loop, a.locker
	a.over = true
	a.mu.Unlock()
	if over {
		if lease != nil {
			l.releaseAsync(a.ctx, lease)
		}
		return
	}
	a.unwatch()
	if v != nil {
		late := v.dequeue(err == nil && l.opts.Kind.shared() || isStored(err))
		switch {
		case late == nil || late == lease:
		case errors.Is(err, ErrBusy): // handed over as the wait ended
			lease, err = late, nil
		default:
			l.releaseAsync(a.ctx, late)
		}
	}
	l.opts.Observer.Acquired(resultOf(a.ctx, err), time.Since(a.start))
	if err != nil {
		err = fmt.Errorf("acquiring lock %s: %w", a.key, err)
	}
	a.then(lease, err)
}

// ReleaseAsync is [Lease.Release] for a caller that must not block. Then is called at the
// end with what Release would return, and must not block either. What goes wrong is logged.
func (l *Lease) ReleaseAsync(then func(error)) {
	k, p, s := l.locker, &l.parts[0], l.stores()
	done := k.cleanup.begin()
	end := func(err error) {
		then(err)
		done()
	}
	if len(l.parts) > 1 || len(k.nodes) > 1 || k.nodes[0].cluster != nil || s == nil && k.waiters.occupied(p.key) || !l.finish() {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
			defer cancel()
			end(l.Release(ctx))
		}()
		return
	}
	n, ended := k.nodes[0], k.releasedPart
	var call *redisbatch.ScriptCall
	if s != nil {
		call, ended = k.releaseStoringCall(n, p, s), k.releasedStoring
	} else {
		call = k.releaseCall(n, p.key, p.owner, p.entry, l.mayBeNoted())
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	n.batcher.DoAsync(ctx, call, func(r int64, err error) {
		cancel()
		end(l.finished("releasing", ended(p, released(r), err)))
	})
}
