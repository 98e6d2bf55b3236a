package changelog

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// round is one read of the log to its tail, shared by all that wait for it, and by
// one timer: a timer for each of a flood of waiters would cost more than the read.
type round struct {
	once    sync.Once
	done    chan struct{}
	err     error // set before done is closed
	limit   *time.Timer
	waiters int // guarded by Log.mu

	mu    sync.Mutex
	calls []func(error) // for when it ends
	ended bool
}

// end tells all that wait, the first time.
func (r *round) end(err error) {
	r.once.Do(func() {
		r.mu.Lock()
		r.err, r.ended = err, true
		calls := r.calls
		r.mu.Unlock()
		close(r.done)
		for _, call := range calls {
			call(err)
		}
	})
}

// then has a function called when the round ends.
func (r *round) then(call func(error)) {
	r.mu.Lock()
	if !r.ended {
		r.calls = append(r.calls, call)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	call(r.err)
}

// Wait blocks until everything that was appended, and acknowledged, before the
// call has been applied here, and then returns nil; nobody was away then, so nobody
// had told a client of an order that is not there. This takes one read of the
// log that starts after the call, plus the rest of the one under way; all callers
// that wait at one moment share it. It returns [ErrBroken]; or [ErrUnavailable]
// when Redis cannot be asked within [Options.Limit], and at once while the last
// read failed; or [ErrAway] or [ErrUnfollowed]; or ctx's error. Without Run it never succeeds.
func (l *Log) Wait(ctx context.Context) error {
	r, err := l.enroll()
	if err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for %s: %w", l.keys[0], context.Cause(ctx))
	}
}

// Notify is Wait for somebody who must not block: what Wait would return is given to a
// function, which is called once, by the caller or by another goroutine, and must not
// block either. A flood of waiters costs a goroutine each otherwise.
func (l *Log) Notify(call func(error)) {
	r, err := l.enroll()
	if err != nil {
		call(err)
		return
	}
	r.then(call)
}

// Within is Wait, but for returning nil at once if a read that began within the given
// time before the call came to what Wait returns nil for.
func (l *Log) Within(ctx context.Context, age time.Duration) error {
	if l.Fresh(age) {
		return nil
	}
	return l.Wait(ctx)
}

// Fresh reports whether Within would return nil at once.
func (l *Log) Fresh(age time.Duration) bool {
	began := l.fresh.Load()
	return began != nil && time.Since(*began) <= age
}

// enroll enters the caller for the next read. This is what makes Wait a barrier: a
// round is taken off l.next before its read is sent, under the same mutex, so
// whoever finds it there is early enough for all of it.
func (l *Log) enroll() (*round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state.Phase {
	case Unavailable, Broken, Blind, Stopped:
		// The reader tries again by itself. Waiting for it here would hold up every
		// lookup for the whole limit, for as long as Redis is away. A member that is away
		// holds up nobody, and may be back by now.
		return nil, l.state.Err
	}
	if l.next == nil {
		r, limit := &round{done: make(chan struct{})}, l.opts.Limit
		r.limit = time.AfterFunc(limit, func() {
			r.end(fmt.Errorf("%w: %s could not be read to its tail within %v", ErrUnavailable, l.keys[0], limit))
		})
		l.next = r
	}
	l.next.waiters++
	switch n := l.next.waiters; {
	case n == 1:
		signal(l.kick)
	case n >= crowd && time.Since(l.began) >= l.pace.least:
		signal(l.crowded)
	}
	return l.next, nil
}

// signal is for a channel of capacity 1 that tells that there is something.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has been told
	}
}

// begin takes the round that the coming read is for: nil if nobody waits. The
// signals of those who wait in it are taken too, or a read for nobody would follow.
func (l *Log) begin() *round {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range []chan struct{}{l.kick, l.crowded} {
		select {
		case <-c:
		default:
		}
	}
	r := l.next
	l.next, l.began = nil, time.Now()
	return r
}

func (l *Log) finish(r *round, began time.Time, err error) {
	if r == nil {
		return
	}
	r.limit.Stop()
	r.end(err)
	l.mu.Lock()
	l.state.LastWait = time.Since(began)
	l.mu.Unlock()
}
