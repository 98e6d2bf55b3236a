package changelog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// errStopped is why a log in phase Stopped cannot be waited for.
var errStopped = fmt.Errorf("%w: it is not read any more", ErrUnavailable)

// round is one read of the log to its tail, shared by all that wait for it, and by
// one timer: a timer for each of a flood of waiters would cost more than the read.
type round struct {
	once    sync.Once
	done    chan struct{}
	err     error // set before done is closed
	limit   *time.Timer
	waiters int // guarded by Log.mu
}

// end tells all that wait, the first time.
func (r *round) end(err error) {
	r.once.Do(func() {
		r.err = err
		close(r.done)
	})
}

// Wait blocks until everything that was appended, and acknowledged, before the
// call has been applied here, and then returns nil. This takes one read of the
// log that starts after the call, plus the rest of the one under way; all callers
// that wait at one moment share it. It returns [ErrBroken]; or [ErrUnavailable]
// when Redis cannot be asked within [Options.Limit], and at once while the last
// read failed; or ctx's error. Without Run it never succeeds.
func (l *Log) Wait(ctx context.Context) error {
	r, err := l.join()
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

// join enters the caller for the next read. This is what makes Wait a barrier: a
// round is taken off l.next before its read is sent, under the same mutex, so
// whoever finds it there is early enough for all of it.
func (l *Log) join() (*round, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state.Phase {
	case Unavailable, Broken, Stopped:
		// The reader tries again by itself. Waiting for it here would hold up every
		// lookup for the whole limit, for as long as Redis is away.
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
	select {
	case l.kick <- struct{}{}:
	default: // already kicked
	}
	return l.next, nil
}

// Run follows the log until ctx ends, and then returns nil: first all of it, or all
// behind the mark given to [Log.Resume], then whatever is new every
// [Options.PollEvery] and whenever a Wait asks. A log that is unavailable or broken
// does not end it; see [Log.State]. A log is run once: it returns an error the
// second time.
func (l *Log) Run(ctx context.Context) error {
	if !l.running.CompareAndSwap(false, true) {
		return fmt.Errorf("following %s: it was run before", l.keys[0])
	}
	r := &reader{log: l}
	r.resume()
	poll := time.NewTicker(l.opts.PollEvery)
	defer poll.Stop()
	for {
		l.finish(l.begin(), r.readToTail(ctx))
		select {
		case <-ctx.Done():
			l.settle(Stopped, errStopped)
			l.finish(l.begin(), errStopped)
			return nil
		case <-l.kick:
		case <-poll.C:
		}
	}
}

// begin takes the round that the coming read is for: nil if nobody waits. The
// kick of whoever waits in it is taken too, or a read for nobody would follow.
func (l *Log) begin() *round {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.kick:
	default:
	}
	r := l.next
	l.next = nil
	return r
}

func (l *Log) finish(r *round, err error) {
	if r != nil {
		r.limit.Stop()
		r.end(err)
	}
}

// reader is what the one goroutine in Run knows.
type reader struct {
	log    *Log
	epoch  string // "" until the log is open
	last   entry  // applied most recently
	from   Mark   // that it begins behind, zero once the log was found to have it
	broken error
}

// readToTail applies everything up to where the log ended when the first of its
// pages was read. What is appended meanwhile is for the next time: under a steady
// stream of creations this one would never end.
func (r *reader) readToTail(ctx context.Context) error {
	if r.broken != nil {
		return r.broken
	}
	phase, err := Following, r.pages(ctx)
	if b, ok := errors.AsType[*breakage](err); ok && r.from != (Mark{}) {
		r.startOver(fmt.Errorf("%s: %w", b.keys[0], b.cause))
		err = r.pages(ctx)
	}
	switch {
	case err == nil:
	case errors.Is(err, ErrBroken):
		phase, r.broken = Broken, err
	case ctx.Err() != nil:
		return errStopped // Run ends for its own reason, not for Redis's
	default:
		phase = Unavailable
	}
	r.log.settle(phase, err)
	return err
}

func (r *reader) pages(ctx context.Context) error {
	if r.epoch == "" {
		if err := r.open(ctx); err != nil {
			return err
		}
	}
	r.log.epoch.Store(&r.epoch)
	goal, err := r.page(ctx)
	for err == nil && r.last.seq < goal {
		_, err = r.page(ctx)
	}
	return err
}

// open learns which log this is. From here on another one is not accepted.
func (r *reader) open(ctx context.Context) error {
	l := r.log
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	epoch, err := l.open.Run(ctx, l.client, l.keys, newNonce()).Text()
	if err != nil {
		return l.readError(err)
	}
	if epoch == "" {
		return l.brokenError("its identity is gone")
	}
	r.epoch = epoch
	if r.from.Epoch != "" && r.from.Epoch != epoch {
		return l.brokenError("it was recreated, or belongs to another deployment: its identity is %q, was %q", epoch, r.from.Epoch)
	}
	return nil
}

// page reads and applies one page, and returns where the log ended at that time.
func (r *reader) page(ctx context.Context) (tail uint64, err error) {
	fresh, tail, err := r.fetch(ctx)
	if err != nil {
		return 0, err
	}
	r.from = Mark{}
	for _, e := range fresh {
		r.log.apply(e.id)
		r.last = e
	}
	r.applied(tail)
	return tail, nil
}

// fetch reads the page that follows the last entry, and returns what is new in it
// and where the log ended at that time.
func (r *reader) fetch(ctx context.Context) (fresh []entry, tail uint64, err error) {
	l := r.log
	ctx, cancel := context.WithTimeout(ctx, l.opts.Limit)
	defer cancel()
	own := l.asking(r.epoch)
	count := l.opts.PageSize + 1 // one more for the entry that we have
	reply, err := l.page.Run(ctx, l.client, l.keys, r.last.seq, count).Slice()
	if err != nil {
		return nil, 0, l.readError(err)
	}
	p, err := parsePage(reply)
	if err != nil {
		return nil, 0, l.brokenError("%w", err)
	}
	fresh, err = p.after(r.epoch, r.last, len(p.entries) >= count)
	if err != nil {
		return nil, 0, l.brokenError("%w", err)
	}
	// Ours were acknowledged before this read was sent. A log without them has lost
	// them, and perhaps others' too.
	if p.tail < own.seq {
		return nil, 0, l.brokenError("it lost entry %d, which was acknowledged, and ends at %d", own.seq, p.tail)
	}
	for _, e := range fresh {
		if e.seq == own.seq && e.nonce != own.nonce {
			return nil, 0, l.brokenError("entry %d is not the one that was acknowledged", e.seq)
		}
	}
	return fresh, p.tail, nil
}

// Replay reads the whole log once more, beside Run, and calls each with every ID
// that was appended and acknowledged before the call, in order. It returns each's
// first error; [ErrBroken] when the log is not what it was for Run; or
// [ErrUnavailable]. It is for whoever builds a second set of the IDs.
func (l *Log) Replay(ctx context.Context, each func(id string) error) error {
	r := &reader{log: l}
	if err := r.open(ctx); err != nil {
		return err
	}
	if epoch := l.epoch.Load(); epoch != nil && *epoch != r.epoch {
		return l.brokenError("it was recreated: its identity is %q, was %q", r.epoch, *epoch)
	}
	for goal, first := uint64(0), true; first || r.last.seq < goal; first = false {
		fresh, tail, err := r.fetch(ctx)
		if err != nil {
			return err
		}
		if first {
			goal = tail // what comes meanwhile is told to the second set by others
		}
		for _, e := range fresh {
			if err := each(e.id); err != nil {
				return err
			}
			r.last = e
		}
	}
	return nil
}

// applied publishes how far the reader is.
func (r *reader) applied(tail uint64) {
	l := r.log
	l.position.Store(r.last.seq)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Tail = tail
	l.mark = Mark{Epoch: r.epoch, Seq: r.last.seq, Nonce: r.last.nonce}
}

// asking counts a page, and returns the newest entry of our own that must be in a
// log of the given epoch which is read from now on.
func (l *Log) asking(epoch string) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Reads++
	if l.ownIn != epoch {
		return entry{}
	}
	return l.own
}

// readError tells a log that is no log from a Redis that does not answer.
func (l *Log) readError(err error) error {
	if _, ok := errors.AsType[redis.Error](err); ok && strings.Contains(err.Error(), "WRONGTYPE") {
		return l.brokenError("its keys hold something else: %w", err)
	}
	return fmt.Errorf("%w: reading %s: %w", ErrUnavailable, l.keys[0], err)
}
