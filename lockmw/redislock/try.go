package redislock

import (
	"context"
	"errors"
	"time"

	"github.com/ordergate/ordergate/internal/redisbatch"
	"github.com/ordergate/ordergate/internal/runbook"
)

// answer is what Redis answered to an attempt.
type answer struct {
	fence int64         // above 0 when granted
	owner string        // to whom
	left  time.Duration // until the lock may become free; negative when not known
	asked time.Time     // before the call was sent

	settled <-chan struct{} // of a quorum: see onAll
}

func (a answer) granted() bool { return a.fence > 0 }

func (a answer) part(key string) part {
	return part{key: key, owner: a.owner, fence: a.fence, settled: a.settled}
}

// notKnown is an answer's left when that is not known.
const notKnown = -1

// try asks Redis once for a lock. After an error nothing stays taken: what may have been
// granted is released.
func (l *Locker) try(ctx context.Context, key, owner string, o AcquireOption) (answer, error) {
	switch {
	case o.stored != "" && (l.scripts.acquireStored == nil || len(l.nodes) > 1):
		return answer{}, errNoStore
	case len(l.nodes) > 1:
		return l.tryQuorum(ctx, key)
	}
	asked := time.Now()
	n, err := l.nodes[0].batcher.Do(ctx, l.acquireCall(key, owner, o))
	if err == nil && n > 0 {
		err = l.unusable(ctx, asked)
	}
	return l.tried(ctx, key, owner, asked, n, err)
}

// tryAsync is try for a caller that must not block. It calls then once: with an error in a goroutine of its
// own, and without in another one, which then must not block.
func (l *Locker) tryAsync(ctx context.Context, key, owner string, o AcquireOption, then func(answer, error)) {
	if len(l.nodes) > 1 || o.stored != "" && l.scripts.acquireStored == nil {
		go func() { then(l.try(ctx, key, owner, o)) }()
		return
	}
	asked := time.Now()
	l.nodes[0].batcher.Start(ctx, l.acquireCall(key, owner, o), func(n int64, err error) {
		if err == nil && n > 0 {
			if err = l.unusable(ctx, asked); err != nil {
				go func() { then(l.tried(ctx, key, owner, asked, n, err)) }() // it asks Redis again
				return
			}
		}
		then(l.tried(ctx, key, owner, asked, n, err))
	})
}

// tried returns the result of a call that asked Redis for a lock; err is also why its grant is unusable. A lease
// is counted from before the call was sent: Redis counts from when it arrived, so ours ends first.
func (l *Locker) tried(ctx context.Context, key, owner string, asked time.Time, n int64, err error) (answer, error) {
	if found := asStored(err); found != nil {
		return answer{}, found
	}
	if err != nil {
		l.rollbackAcquire(ctx, key, owner, err)
		return answer{}, l.explain(key, err)
	}
	a := answerOf(n, asked)
	a.owner = owner
	return a, nil
}

// errLate is that of a grant whose lease may have ended before its answer came.
var errLate = errors.New("the answer came after the lease had ended")

// unusable returns why a grant that was asked for at a time cannot be used, or nil.
func (l *Locker) unusable(ctx context.Context, asked time.Time) error {
	if time.Since(asked) >= l.validity() {
		return errLate
	}
	return ctx.Err() // the grant may have crossed the caller's leaving
}

// answerOf reads what lua/acquire.lua returns.
func answerOf(n int64, asked time.Time) answer {
	switch {
	case n > 0:
		return answer{fence: n, asked: asked}
	case n > -2:
		return answer{left: notKnown, asked: asked}
	}
	return answer{left: time.Duration(-2-n) * time.Millisecond, asked: asked}
}

func (l *Locker) acquireCall(key, owner string, o AcquireOption) *redisbatch.ScriptCall {
	script := l.scripts.acquire
	switch {
	case o.stored != "" && !o.since.IsZero():
		script = l.scripts.acquireSince
	case o.stored != "":
		script = l.scripts.acquireStored
	}
	c := redisbatch.NewCall(script, key).Key(FenceKey(key))
	l.kindKeys(c, key)
	if o.stored != "" {
		c.Key(StoredKey(key, o.stored))
		c.MayAnswerText = true
	}
	c.Number(l.leaseArg).Text(l.field(owner))
	if l.opts.FenceLife > 0 || !o.since.IsZero() || l.opts.Kind == Fair || l.opts.Kind == Semaphore {
		c.Number(l.lifeArg)
	}
	switch l.opts.Kind {
	case Fair:
		c.Number(l.waiterTimeoutArg)
	case Semaphore:
		c.Number(l.opts.Permits)
	}
	if !o.since.IsZero() {
		c.Number(time.Since(o.since).Microseconds())
	}
	c.Confirm = true
	return c
}

// kindKeys adds the keys that only this kind of lock has.
func (l *Locker) kindKeys(c *redisbatch.ScriptCall, key string) {
	if l.opts.Kind == Exclusive {
		return
	}
	for _, k := range keysOfKind(l.opts.Kind, key) {
		if k != "" {
			c.Key(k)
		}
	}
}

// field is the name of an owner in Redis.
func (l *Locker) field(owner string) string {
	if l.opts.Kind == Write {
		return owner + ":write" // so does Redisson
	}
	return owner
}

// rollbackAcquire releases a lock that may have been granted although its caller got an
// error, if that error leaves it open. It does not wait: the caller has left, or has its
// error.
func (l *Locker) rollbackAcquire(ctx context.Context, key, owner string, why error) {
	if !redisbatch.IsAmbiguous(why) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	l.cleanup.Go(func() {
		// The answer, if it is still to come, says whether the lock was granted. And
		// the release must not overtake the acquire on another connection.
		waiting, stop := context.WithTimeout(ctx, cleanupTime)
		defer stop()
		abandoned, ok := errors.AsType[redisbatch.AbandonedError](why)
		nothing := ok && abandoned.Refused(waiting)
		undoing, cancel := context.WithTimeout(ctx, cleanupTime)
		defer cancel()
		if l.opts.Kind == Fair {
			defer l.dequeue(undoing, key, owner)
		}
		if !nothing {
			l.undoLate(key, func() error { _, err := l.release(undoing, key, owner, "", true); return err })
		}
	})
}

// lateAfter are pauses after which something is undone, and again. What it is to
// undo may lie in the buffers of a connection that was given up, and be read by
// Redis after the first attempt; and a client may have sent it twice.
var lateAfter = []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond}

// undoLate undoes what may have been done to a lock, or may be done yet. An attempt may
// fail as what it undoes did; the next need not.
func (l *Locker) undoLate(key string, undo func() error) {
	var err error
	for _, pause := range lateAfter {
		select {
		case <-time.After(pause):
		case <-l.closed.Done(): // no time to wait; once more all the same
		}
		err = undo()
	}
	if err != nil {
		l.log.Warn("a lock may stay taken until its lease ends", "key", key, "error", err,
			runbook.LocksFail.Do("nothing: the lock ends with its lease"))
	}
}

// withEntry adds the name of a call within a lease, if it is one.
func withEntry(c *redisbatch.ScriptCall, name string) *redisbatch.ScriptCall {
	if name != "" {
		c.Text(name)
	}
	return c
}

// releaseCall is that of lua/release.lua.
func (l *Locker) releaseCall(n *node, key, owner, entry string, noted bool) *redisbatch.ScriptCall {
	c := redisbatch.NewCall(l.scripts.release, key)
	if noted || entry != "" || l.opts.Kind != Exclusive {
		c.Key(after(key, recordSuffix))
	}
	l.kindKeys(c, key)
	c.Text(l.field(owner)).Text(n.publish).Text(Channel(l.opts.Kind, key))
	c.Repeated = 1 // the first time released it, to an unknown number of receivers
	return withEntry(c, entry)
}

// released is what lua/release.lua returns.
type released int64

func (r released) held() bool { return r > 0 }

// receivers returns how many subscriptions got the message, in all processes.
func (r released) receivers() int { return int(max(0, r-2)) }

// release gives up a lock, or, with an entry, a call's part of one.
// Noted says that its owner may be on record.
func (l *Locker) release(ctx context.Context, key, owner, entry string, noted bool) (released, error) {
	if len(l.nodes) > 1 {
		return l.releaseQuorum(ctx, key, owner, noted)
	}
	n, err := l.nodes[0].batcher.Do(ctx, l.releaseCall(l.nodes[0], key, owner, entry, noted))
	if entry == "" && isMoving(err) {
		return l.releaseAlone(ctx, l.nodes[0], key, owner, err)
	}
	return released(n), err
}

// extension is what lua/extend.lua is asked for.
type extension struct {
	to   time.Duration // from now
	note *Record       // what to put on record; nil: nothing
	hold bool          // no renewal
}

func (l *Locker) extendCall(p *part, e extension) *redisbatch.ScriptCall {
	c := redisbatch.NewCall(l.scripts.extend, p.key).Key(after(p.key, recordSuffix))
	l.kindKeys(c, p.key)
	// Renewals come many at once, and none may wait for longer than its context.
	c.Queue, c.Confirm = !e.hold, e.hold
	c.Text(l.field(p.owner)).Number(e.to.Milliseconds()).Text(l.noteOf(p, e)).Text(recordHeld)
	last := "0"
	if e.hold {
		last = "1"
	}
	return withEntry(c.Text(last), p.entry)
}

// noteOf returns what to put on record of a part: nothing of a re-entry, whose
// owner has a record.
func (l *Locker) noteOf(p *part, e extension) string {
	if e.note == nil || p.entry != "" {
		return ""
	}
	note := *e.note
	if l.opts.Kind.shared() {
		note.Fence = p.fence
	}
	return note.text()
}

// extend reports whether the owner holds the lock, which then ends as asked for.
func (l *Locker) extend(ctx context.Context, p *part, e extension) (bool, error) {
	if len(l.nodes) > 1 {
		if e.hold {
			l.awaitLateReplies(ctx, p.settled)
		}
		return l.extendQuorum(ctx, p, e)
	}
	n, err := l.nodes[0].batcher.Do(ctx, l.extendCall(p, e))
	if isMoving(err) && !(e.hold && p.entry != "") { // that has a mark, which stands in another key
		return l.extendAlone(ctx, p, e)
	}
	return n == 1, err
}

// reenter takes part in the lease of a presented owner. The answer is not granted
// when that owner does not hold the lock.
func (l *Locker) reenter(ctx context.Context, key, owner, entry, stored string) (answer, error) {
	script := l.scripts.reenter
	if stored != "" {
		if script = l.scripts.reenterStored; script == nil {
			return answer{}, errNoStore
		}
	}
	asked := time.Now()
	c := redisbatch.NewCall(script, key).Key(after(key, recordSuffix))
	l.kindKeys(c, key)
	if stored != "" {
		c.Key(StoredKey(key, stored))
		c.MayAnswerText = true
	}
	c.Number(l.leaseArg).Text(l.field(owner)).Text(entry).Text(recordHeld)
	c.Confirm = true // after a failover, another call within the lease may have the name of stored answers
	n, err := l.nodes[0].batcher.Do(ctx, c)
	if found := asStored(err); found != nil {
		return answer{}, found
	}
	if err == nil && n > 0 {
		err = l.unusable(ctx, asked)
	}
	if err != nil && redisbatch.IsAmbiguous(err) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		l.cleanup.Go(func() {
			defer cancel()
			l.undoLate(key, func() error { _, err := l.release(ctx, key, owner, entry, true); return err })
		})
	}
	return answerOf(n, asked), err
}

// dequeue removes a waiter from the queue of a fair lock in Redis.
func (l *Locker) dequeue(ctx context.Context, key, owner string) {
	n := l.nodes[0]
	c := redisbatch.NewCall(l.scripts.dequeue, key).Key(after(key, recordSuffix))
	l.kindKeys(c, key)
	c.Text(owner).Text(n.publish).Text(Channel(Fair, key)).Number(l.waiterTimeoutArg)
	if _, err := n.batcher.Do(ctx, c); err != nil {
		// It is passed over once it no longer counts as alive.
		l.log.Warn("leaving the queue of a fair lock", "key", key, "error", err,
			runbook.LocksFail.Do("nothing: the queue passes over it"))
	}
}
