package changelog

import (
	"context"
	"fmt"
	"time"
)

// sharedRead is one read of the log to its tail, shared by all callers that wait for it.
type sharedRead struct {
	done    chan struct{}
	err     error // set before done is closed
	waiters int   // guarded by Log.mu; tests count on it
}

// Wait blocks until every entry acknowledged before the call has been applied here, and then
// returns nil. No member was away then, so no client had received an order that is not in the log.
// It takes one read that starts after the call, and the rest of the one under way. All callers that
// wait at one time share that read. Wait returns [ErrBroken]; [ErrUnavailable] when a read takes
// longer than [Options.Timeout], and at once while the last read failed; [ErrAway],
// [ErrEarlierRelease] or [ErrNotFollowed]; or the error of ctx. Without Run it never succeeds.
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
		return fmt.Errorf("%w: %s could not be read to its tail within %v", ErrUnavailable, l.keys[keyLog], l.opts.Timeout)
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", l.keys[keyLog], context.Cause(ctx))
	}
}

// joinNextRead adds the caller to the next read. The reader takes nextRead under the same mutex
// before it sends the request, so the read includes every entry acknowledged before this call.
func (l *Log) joinNextRead() (*sharedRead, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state.Phase {
	case Unavailable, Broken, Blind, Stopped:
		return nil, l.state.Err // the reader retries by itself
	}
	if l.nextRead == nil {
		l.nextRead = &sharedRead{done: make(chan struct{})}
		signal(l.wakeReader)
	}
	l.nextRead.waiters++
	return l.nextRead, nil
}

// signal sets a channel of capacity 1.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is set
	}
}

// takeRead takes the callers of the coming read; nil if there are none. It also clears their
// signal, or a read without a caller would follow.
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

// finish releases all callers.
func (r *sharedRead) finish(err error) {
	if r != nil {
		r.err = err
		close(r.done)
	}
}
