package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrLost says that the lease had ended before it was given up.
var ErrLost = errors.New("lease was lost")

// Lease is a lock that is held. Its methods are safe for concurrent use; it
// renews itself until Release or Hold.
type Lease struct {
	locker  *Locker
	key     string
	owner   string
	fence   int64
	since   time.Time     // when the lock was asked for
	lost    chan struct{} // closed when lost
	maxHold time.Duration // 0: none

	mu    sync.Mutex
	until time.Time // when the lease ends unless renewed
	done  bool      // given up or lost: renewed no more
}

func newLease(l *Locker, key, owner string, fence int64, asked time.Time) *Lease {
	return &Lease{
		locker: l, key: key, owner: owner, fence: fence, since: asked,
		until: asked.Add(l.opts.Lease), lost: make(chan struct{}),
	}
}

// Key returns the Redis key of the lock.
func (l *Lease) Key() string { return l.key }

// Owner returns the unguessable name of this lease.
func (l *Lease) Owner() string { return l.owner }

// Fence returns the number of this grant, greater than that of every earlier
// grant of the key. It is microseconds since 1970 unless the clock of Redis was
// set back.
func (l *Lease) Fence() int64 { return l.fence }

// Lost returns a channel that is closed when the lease has ended without
// Release or Hold: the lock was deleted or taken over, or could not be renewed
// in time.
func (l *Lease) Lost() <-chan struct{} { return l.lost }

// Release gives the lock up and wakes one who waits for it. It returns an error
// that wraps [ErrLost] when the lock was no longer ours (that of another is left
// alone), and any other when Redis could not be told; the lock then ends by
// itself, at the latest a lease from now. Call it on a context that outlives the
// work's. A second call does nothing.
func (l *Lease) Release(ctx context.Context) error {
	if !l.finish() {
		return nil
	}
	held, err := l.locker.release(ctx, l.key, l.owner)
	return l.gaveUp("releasing", held, err)
}

// Hold stops renewing and leaves the lock taken for the Locker's hold time. The
// errors are those of Release.
func (l *Lease) Hold(ctx context.Context) error {
	if !l.finish() {
		return nil
	}
	held, err := extendScript.Run(ctx, l.locker.client, []string{l.key},
		l.owner, l.locker.opts.Hold.Milliseconds()).Bool()
	return l.gaveUp("holding", held, err)
}

func (l *Lease) gaveUp(doing string, held bool, err error) error {
	l.locker.opts.Observer.Released(time.Since(l.since))
	if err == nil && !held {
		l.locker.opts.Observer.Lost()
		err = ErrLost
	}
	if err != nil {
		err = fmt.Errorf("%s lock %s: %w", doing, l.key, err)
		l.locker.log.Warn("lock not given up as planned", "error", err)
	}
	return err
}

// finish ends renewal and reports whether this call was the one that did.
func (l *Lease) finish() bool {
	l.mu.Lock()
	first := !l.done
	l.done = true
	l.mu.Unlock()
	l.locker.leases.remove(l)
	return first
}

// lose marks the lease as lost, unless it was given up meanwhile.
func (l *Lease) lose(why string) {
	if !l.finish() {
		return
	}
	close(l.lost)
	l.locker.opts.Observer.Lost()
	l.locker.opts.Observer.Released(time.Since(l.since))
	l.locker.log.Warn("lease lost", "key", l.key, "fence", l.fence, "reason", why)
}

// renewed records that Redis counts the lease anew from a moment after asked.
func (l *Lease) renewed(asked time.Time) {
	l.mu.Lock()
	l.until = asked.Add(l.locker.opts.Lease)
	l.mu.Unlock()
}

// end returns when the lease ends unless renewed.
func (l *Lease) end() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}
