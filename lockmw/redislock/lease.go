package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// ErrLost says that the lease had ended before it was given up.
var ErrLost = errors.New("lease was lost")

// Lease is a lock that is held, or several that were taken together. Its methods
// are safe for concurrent use; it renews itself until Release or Hold.
type Lease struct {
	locker  *Locker
	owner   string
	since   time.Time     // when the lock was asked for
	maxHold time.Duration // 0: none
	request string        // what it is for
	parts   []part        // in the order of their keys
	single  [1]part       // the memory of parts, mostly

	meanwhile bool // its stored answer is for callers that came meanwhile: see [StoredSince]

	mu       sync.Mutex
	lost     chan struct{} // closed when a part is lost; made by the first call of Lost
	watch    func()        // called then; nil: nothing to call
	gone     bool          // the loss of a part was reported
	notified bool          // lost and watch were notified of a loss
	done     bool          // given up, or nothing left to renew
	unstored bool          // nothing is left to renew, and the release, which may store an answer, is to come
	until    time.Time     // when the lease ends unless renewed; once given up, when at the latest
	noted    bool          // it is on record in Redis
	named    bool          // it may be: a call that records it was sent, or is about to be
	asked    bool          // a renewal is on its way
	storing  *storing      // what the release does with stored answers; nil: nothing
}

// part is one lock of a lease.
type part struct {
	key   string
	owner string
	fence int64
	entry string // the name of a re-entry; "" for a lock of its own

	handed handovers // before it came to this lease

	settled <-chan struct{} // of a quorum: closed when no server is still to answer

	lost bool // guarded by the lease's mu
}

// newLease makes a lease of granted parts.
func (l *Locker) newLease(owner string, o AcquireOption, asked time.Time, parts ...part) *Lease {
	lease := &Lease{
		locker: l, owner: owner, since: asked, maxHold: o.maxHold, request: o.request, meanwhile: !o.since.IsZero(),
		until: asked.Add(l.validity()),
	}
	if len(parts) == 1 {
		lease.single[0] = parts[0]
		lease.parts = lease.single[:]
	} else {
		lease.parts = parts
	}
	l.leases.add(lease)
	return lease
}

// Key returns the Redis key of the lock, or the first one in sorted order.
func (l *Lease) Key() string { return l.parts[0].key }

// Owner returns the unguessable name of this lease. One that re-entered another
// has its owner.
func (l *Lease) Owner() string { return l.owner }

// Reentered reports whether all that the lease locks was locked by the lease that its caller
// presented: see [Reenter].
func (l *Lease) Reentered() bool {
	return !slices.ContainsFunc(l.parts, func(p part) bool { return p.entry == "" })
}

// hasEntry reports whether a part of the lease is a call within an earlier one.
func (l *Lease) hasEntry() bool {
	return slices.ContainsFunc(l.parts, func(p part) bool { return p.entry != "" })
}

// Fence returns the number of this grant, greater than that of every earlier
// grant of the key: microseconds since 1970 unless the clock of Redis was set
// back. Of several keys it is that of the first.
func (l *Lease) Fence() int64 { return l.parts[0].fence }

// Fences returns the number of each key's grant, in the sorted order of the keys.
func (l *Lease) Fences() []int64 {
	fences := make([]int64, len(l.parts))
	for i := range l.parts {
		fences[i] = l.parts[i].fence
	}
	return fences
}

// Ended reports whether the lease, or the part of it at one key, has ended by now: it was lost,
// or its time has passed, which a process that stood still may not have noticed.
func (l *Lease) Ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gone || !l.until.After(time.Now())
}

// Lost returns a channel that is closed when the lease has ended without
// Release or Hold: the lock was deleted or taken over, or could not be renewed
// in time. Of several keys, one is enough. What Redis may still have is renewed on.
// It is closed before that, in time for a Hold, when the lease has been held for its
// maximum: it is no longer renewed then.
func (l *Lease) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		l.lost = make(chan struct{})
		if l.notified {
			close(l.lost)
		}
	}
	return l.lost
}

// NotifyLost is [Lease.Lost] without a goroutine that waits: f is called, in one of its
// own, when the lease is lost. A second f takes the place of the first.
func (l *Lease) NotifyLost(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = f
	if l.notified {
		go f()
	}
}

// reportLoss counts a lease that was marked as gone.
func (l *Lease) reportLoss() {
	l.locker.opts.Observer.Lost()
	l.notify(true) // last: a notified caller finds all the rest done
}

// notify notifies the callers of Lost and NotifyLost of a loss, once. A lease that was given up is of
// interest only if it was lost before.
func (l *Lease) notify(gone bool) {
	l.mu.Lock()
	first, listening, watch := !l.notified && (gone || !l.done), l.lost, l.watch
	l.notified = l.notified || first
	l.mu.Unlock()
	if !first {
		return
	}
	if listening != nil {
		close(listening)
	}
	if watch != nil {
		go watch()
	}
}

// Release releases the lock and wakes one waiter. It returns an error
// that wraps [ErrLost] when the lock was no longer ours (that of another is left
// alone), and any other when Redis did not answer; the lock then ends by
// itself, at the latest a lease from now. Call it on a context that outlives the
// work's. A second call does nothing: for a lease that stores an answer, see ReleaseAgain.
func (l *Lease) Release(ctx context.Context) error {
	if l.finish() {
		return l.finished("releasing", l.locker.releaseLease(ctx, l))
	}
	l.mu.Lock()
	stores := l.unstored && l.storing != nil
	l.unstored = false
	l.mu.Unlock()
	if stores {
		return l.ReleaseAgain(ctx)
	}
	return nil
}

// ReleaseAsync is Release for a caller that must not block. It calls then once, with what Release would
// return: nil in a goroutine that may serve others, so then must not block, and an error in one of its own.
func (l *Lease) ReleaseAsync(ctx context.Context, then func(error)) {
	locker, p := l.locker, &l.parts[0]
	n := locker.nodes[0]
	if len(l.parts) > 1 || len(locker.nodes) > 1 || n.cluster != nil || locker.waiters.occupied(p.key) || !l.finish() {
		go func() { then(l.Release(ctx)) }()
		return
	}
	if s := l.stores(); s != nil {
		n.batcher.Start(ctx, locker.releaseStoringCall(n, p, s), func(r int64, err error) {
			l.endRelease(locker.releasedStoring(p, released(r), err), then)
		})
		return
	}
	n.batcher.Start(ctx, locker.releaseCall(n, p.key, p.owner, p.entry, l.mayBeNoted()), func(r int64, err error) {
		l.endRelease(locker.releasedPart(p, released(r), err), then)
	})
}

// endRelease calls then. What follows an error may block: it is logged first.
func (l *Lease) endRelease(err error, then func(error)) {
	end := func() { then(l.finished("releasing", err)) }
	if err != nil {
		go end()
		return
	}
	end()
}

// Hold stops renewing and leaves the lock taken for the Locker's hold time, with
// the reason on record for [Inspect]. The errors are those of Release; as long as one
// does not wrap ErrLost, the lock may be held yet: see HoldAgain.
func (l *Lease) Hold(ctx context.Context, reason string) error {
	if !l.finish() {
		return nil
	}
	l.mu.Lock()
	l.until = time.Now().Add(l.locker.opts.Lease) // a renewal may have been done just now, and its answer lost
	l.mu.Unlock()
	return l.finished("holding", l.locker.holdLease(ctx, l, reason))
}

// HoldAgain repeats a Hold whose error does not wrap [ErrLost]. Its own error does once
// the lease has ended by itself; before that, HoldAgain may be called again.
func (l *Lease) HoldAgain(ctx context.Context, reason string) error {
	err := l.locker.holdLease(ctx, l, reason)
	if err == nil {
		return nil
	}
	if !errors.Is(err, ErrLost) {
		l.mu.Lock()
		ended := !time.Now().Before(l.until)
		l.mu.Unlock()
		if !ended {
			return fmt.Errorf("holding lock %s: %w", l.Key(), err)
		}
		err = fmt.Errorf("%w before it was held: %w", ErrLost, err)
	}
	l.countLoss()
	return fmt.Errorf("holding lock %s: %w", l.Key(), err)
}

func (l *Lease) finished(doing string, err error) error {
	l.locker.opts.Observer.Released(time.Since(l.since))
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrLost) {
		l.countLoss()
	}
	err = fmt.Errorf("%s lock %s: %w", doing, l.Key(), err)
	l.locker.log.Warn("lock not released as planned", "request", l.request, "error", err,
		runbook.LocksFail.Do("look at Redis and the way to it; the lock ends with its lease at the latest"))
	return err
}

// countLoss reports the loss of a lease that was given up, once.
func (l *Lease) countLoss() {
	l.mu.Lock()
	known := l.gone
	l.gone = true
	l.mu.Unlock()
	if !known {
		l.locker.opts.Observer.Lost()
	}
}

// Request returns what the lease is for, as it was given to [Request].
func (l *Lease) Request() string { return l.request }

// finish ends renewal and reports whether this call was the one that did.
func (l *Lease) finish() bool {
	l.mu.Lock()
	first := !l.done
	l.done = true
	l.mu.Unlock()
	if first {
		l.locker.leases.remove(l)
	}
	return first
}

// lose marks a part as lost, unless the lease was given up meanwhile. When none is
// left, the lease is over.
func (l *Lease) lose(i int, why string) {
	l.mu.Lock()
	if l.done || l.parts[i].lost {
		l.mu.Unlock()
		return
	}
	l.parts[i].lost = true
	first := !l.gone
	l.gone = true
	over := true
	for _, p := range l.parts {
		over = over && p.lost
	}
	l.done, l.unstored = over, over
	l.mu.Unlock()
	if over {
		l.locker.leases.remove(l)
		l.locker.opts.Observer.Released(time.Since(l.since))
	}
	if first {
		l.reportLoss()
	}
	l.logLoss(l.parts[i].key, l.parts[i].fence, why)
}

// loseAll marks every part as lost.
func (l *Lease) loseAll(why string) {
	for i := range l.parts {
		l.lose(i, why)
	}
}

// held returns the indexes of the parts that are not lost.
func (l *Lease) held() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make([]int, 0, len(l.parts))
	for i := range l.parts {
		if !l.parts[i].lost {
			held = append(held, i)
		}
	}
	return held
}

// renewalState returns whether the lease is to be renewed now, which the asker then says by
// renewed, and whether its end has passed. It is renewed after that too: Redis may have
// it still, where only the answers were lost, or another of its keys failed.
func (l *Lease) renewalState(now time.Time) (due, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := l.until.Sub(now)
	if !l.done && !l.asked && !l.expired(now) && (left <= l.locker.opts.Lease*2/3 || !l.noted && now.Sub(l.since) >= noteAge) {
		l.asked, l.named, due = true, true, true
	}
	return due, left <= 0
}

// late reports, once, that the lease could not be renewed in time.
func (l *Lease) late() {
	l.mu.Lock()
	first := !l.gone && !l.done
	l.gone = l.gone || first
	l.mu.Unlock()
	if !first {
		return
	}
	l.reportLoss()
	l.logLoss(l.Key(), l.Fence(), "could not be renewed in time")
}

// logLoss has a line for each: what was settled by that order's calls has to be compared.
func (l *Lease) logLoss(key string, fence int64, why string) {
	l.locker.log.Error("lease lost", "key", key, "fence", fence, "reason", why, "request", l.request,
		runbook.LeaseLost.Do("compare the payouts of this order, unless the database checks the fence"))
}

// renewed records how a renewal ended. When it succeeded, Redis counts the lease
// anew from a moment after asked, and has its note. It returns whether the lease was
// reported as lost.
func (l *Lease) renewed(asked time.Time, success bool) (lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = false
	if success {
		if until := asked.Add(l.locker.validity()); until.After(l.until) {
			l.until = until
		}
		l.noted = true
	}
	return l.gone
}

// onRecord reports whether an operator can see what the lease is for.
func (l *Lease) onRecord() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.noted
}

// mayBeNoted reports whether an operator may see it. Of a lease that was given up the
// answer stays the same.
func (l *Lease) mayBeNoted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.named
}

// expired reports whether the lease has been held for its maximum.
func (l *Lease) expired(now time.Time) bool {
	return l.maxHold > 0 && now.Sub(l.since) >= l.maxHold
}

// record returns what to put on record about the lease.
func (l *Lease) record() *Record {
	return &Record{Process: l.locker.opts.Process, Request: l.request, Since: l.since}
}
