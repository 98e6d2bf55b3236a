package changelog

import (
	"context"
	"fmt"
	"time"
)

// round is one read of the log to its tail, shared by all that wait for it.
type sharedRead struct {
	done    chan struct{}
	err     error // set before done is closed
	waiters int   // guarded by Log.mu
}

// Wait blocks until everything that was appended, and acknowledged, before the
// call has been applied here, and then returns nil; nobody was away then, so nobody
// had told a client of an order that is not there. This takes one read of the
// log that starts after the call, plus the rest of the one under way; all callers
// that wait at one moment share it. It returns [ErrBroken]; or [ErrUnavailable]
// when Redis cannot be asked within [Options.Limit], and at once while the last
// read failed; or [ErrAway], [ErrEarlier] or [ErrUnfollowed]; or ctx's error. Without Run it never succeeds.
func (l *Log) Wait(ctx context.Context) error {
	r, err := l.joinNextRead()
	if err != nil {
		return err
	}
	limit := time.NewTimer(l.opts.Timeout)
	defer limit.Stop()
	select {
	case <-r.done:
		return r.err
	case <-limit.C:
		return fmt.Errorf("%w: %s could not be read to its tail within %v", ErrUnavailable, l.keys[0], l.opts.Timeout)
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", l.keys[0], context.Cause(ctx))
	}
}

// enroll enters the caller for the next read. A round is taken off l.next before its read
// is sent, under the same mutex, so whoever finds it there is early enough for all of it.
func (l *Log) joinNextRead() (*sharedRead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state.Phase {
	case Unavailable, Broken, Blind, Stopped:
		return nil, l.state.Err // the reader tries again by itself
	}
	if l.nextRead == nil {
		l.nextRead = &sharedRead{done: make(chan struct{})}
		signal(l.wakeReader)
	}
	l.nextRead.waiters++
	return l.nextRead, nil
}

// signal is for a channel of capacity 1 that tells that there is something.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been told
	}
}

// begin takes the round that the coming read is for: nil if nobody waits. The signal of
// those who wait in it is taken too, or a read for nobody would follow.
func (l *Log) takeRead() *sharedRead {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.wakeReader:
	default:
	}
	r := l.nextRead
	l.nextRead = nil
	return r
}

// end tells all that wait.
func (r *sharedRead) finish(err error) {
	if r != nil {
		r.err = err
		close(r.done)
	}
}
