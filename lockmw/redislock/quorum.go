package redislock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisbatch"
)

// NewQuorum returns a Locker of an exclusive lock on several independent servers,
// an odd number of at least three: the owner that holds it on most of them has it. It
// outlives the loss of any minority. The algorithm is Redlock
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), with
// two differences: waiters are woken, and the fence is the greatest of all
// servers', written back to those that were behind before it is given out.
//
// The servers' clocks must run at the same speed to within one percent. A server
// that restarts without what it had must stay away for the longer of a lease and a
// hold, so that it has forgotten no lock that is still held.
//
// The errors are those of [New]. Leases of a quorum are not re-entered.
func NewQuorum(clients []redis.UniversalClient, opts Options) (*Locker, error) {
	switch n := len(clients); {
	case n < 3 || n%2 == 0:
		return nil, fmt.Errorf("making a locker: a quorum takes an odd number of servers, at least 3, not %d", n)
	case opts.Kind != "" && opts.Kind != Exclusive:
		return nil, fmt.Errorf("making a locker: a quorum is for kind %s, not %s", Exclusive, opts.Kind)
	}
	return build(clients, opts)
}

// drift is what a server's clock may gain in a lease, as Redlock has it: one
// percent, and two milliseconds for the granularity of expiry.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// validity is how long a lease counts after it was asked for.
func (l *Locker) validity() time.Duration {
	if len(l.nodes) > 1 {
		return l.opts.Lease - drift(l.opts.Lease)
	}
	return l.opts.Lease
}

func (l *Locker) majority() int { return len(l.nodes)/2 + 1 }

// nodeTime bounds how long one server of a quorum is waited for: far less than
// the lease, or a server that hangs would use it up.
func (l *Locker) nodeTime() time.Duration {
	return min(max(l.opts.Lease/10, 20*time.Millisecond), 2*time.Second)
}

// errUnanswered is what a server's answer is that was not waited for.
var errUnanswered = errors.New("no answer in time")

// onAll calls every server at once, and returns what each of them answered once
// most have agreed, with yes (above 0) or with no. The others are left to answer in
// their own time: a server that hangs slows no caller down. Settled is closed when
// no call is on its way any more, or cleanupTime after it was given
// up.
func (l *Locker) onAll(ctx context.Context, about func(*node) *redisbatch.ScriptCall) (
	answers []int64, errs []error, settled <-chan struct{},
) {
	type reply struct {
		i   int
		n   int64
		err error
	}
	answers, errs = make([]int64, len(l.nodes)), make([]error, len(l.nodes))
	for i := range errs {
		errs[i] = errUnanswered
	}
	replies, all := make(chan reply, len(l.nodes)), make(chan struct{})
	var open atomic.Int32
	open.Store(int32(len(l.nodes)))
	// The calls go on when the caller leaves, or a release that most servers
	// have answered would not reach the rest.
	long := context.WithoutCancel(ctx)
	for i, n := range l.nodes {
		l.cleanup.Go(func() {
			defer func() {
				if open.Add(-1) == 0 {
					close(all)
				}
			}()
			r := reply{i: i}
			r.n, r.err = l.onOne(long, n, about(n))
			late, abandoned := errors.AsType[redisbatch.AbandonedError](r.err)
			if errors.Is(r.err, context.DeadlineExceeded) {
				r.err = fmt.Errorf("server %d of %d did not answer in %v", i+1, len(l.nodes), l.nodeTime())
			}
			replies <- r
			if abandoned {
				later, cancel := context.WithTimeout(long, cleanupTime)
				defer cancel()
				late.Refused(later)
			}
		})
	}
	for yes, no := 0, 0; yes < l.majority() && no < l.majority(); {
		select {
		case r := <-replies:
			answers[r.i], errs[r.i] = r.n, r.err
			if r.err == nil && r.n > 0 {
				yes++
			} else {
				no++
			}
		case <-ctx.Done():
			for i, err := range errs {
				if errors.Is(err, errUnanswered) {
					errs[i] = ctx.Err()
				}
			}
			return answers, errs, all
		}
	}
	return answers, errs, all
}

// onOne calls one server of a quorum, and leaves as soon as its time is over.
func (l *Locker) onOne(ctx context.Context, n *node, c *redisbatch.ScriptCall) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.nodeTime())
	defer cancel()
	c.Queue = true
	return n.batcher.Do(ctx, c)
}

// tryQuorum asks once on all servers, for an owner of its own: what an earlier
// attempt left to be given back is not this one's. When most servers do not grant
// the lock in time, what was granted is given back everywhere.
func (l *Locker) tryQuorum(ctx context.Context, key string) (answer, error) {
	asked, owner := time.Now(), l.newOwner()
	answers, errs, settled := l.onAll(ctx, func(*node) *redisbatch.ScriptCall { return l.acquireCall(key, owner, AcquireOption{}) })
	granted, fence, left := 0, int64(0), time.Duration(notKnown)
	for i, n := range answers {
		if errs[i] != nil {
			continue
		}
		if a := answerOf(n, asked); a.granted() {
			granted++
			fence = max(fence, a.fence)
		} else if left < 0 || a.left >= 0 && a.left < left {
			left = a.left
		}
	}
	err := ctx.Err()
	if err == nil && granted >= l.majority() {
		err = l.syncFence(ctx, key, owner, answers, fence)
		if err == nil && time.Since(asked) < l.validity() {
			return answer{fence: fence, owner: owner, asked: asked, settled: settled}, nil
		}
	}
	l.undo(ctx, key, owner, granted, errs, settled)
	switch {
	case err != nil:
		return answer{}, err
	case failures(errs) >= l.majority():
		return answer{}, l.explain(key, firstOf(errs))
	case granted > 0:
		// The votes were split. The callers that split them should not ask again together.
		left = rand.N(maxSplitPause)
	}
	return answer{left: left}, nil
}

// maxSplitPause is several round trips: one of those whose votes were split is
// alone then, mostly.
const maxSplitPause = 20 * time.Millisecond

// undo gives back what an attempt was granted, and what it may be granted late: by
// servers whose answer was not seen.
func (l *Locker) undo(ctx context.Context, key, owner string, granted int, errs []error, settled <-chan struct{}) {
	if granted > 0 {
		_, _ = l.releaseQuorum(context.WithoutCancel(ctx), key, owner, false)
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil && redisbatch.IsAmbiguous(err) }) {
		l.releaseLateGrants(ctx, key, owner, settled)
	}
}

// hasLateReplies reports whether a server is still to answer. On its way to it a
// release may overtake the acquire, so check before the release is sent: what is
// settled afterwards may have been granted after it.
func hasLateReplies(settled <-chan struct{}) bool {
	select {
	case <-settled:
		return false
	default:
		return settled != nil
	}
}

// awaitLateReplies lets the servers that have not answered yet do so, in as much time
// as one is given at most. A hold that overtook the grant would miss it there: it
// is not said again as a renewal is.
func (l *Locker) awaitLateReplies(ctx context.Context, settled <-chan struct{}) {
	if !hasLateReplies(settled) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, l.nodeTime())
	defer cancel()
	select {
	case <-settled:
	case <-ctx.Done():
	}
}

// releaseLateGrants gives back what is granted by servers that had not answered when
// the lock was released.
func (l *Locker) releaseLateGrants(ctx context.Context, key, owner string, settled <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*cleanupTime)
	l.cleanup.Go(func() {
		defer cancel()
		<-settled // soon: within nodeTime and cleanupTime
		l.undoLate(key, func() error { _, err := l.release(ctx, key, owner, "", true); return err })
	})
}

// failures counts the servers that failed.
func failures(errs []error) (n int) {
	for _, err := range errs {
		if err != nil && !errors.Is(err, errUnanswered) {
			n++
		}
	}
	return n
}

// firstOf returns the first failure: those of the others are alike, mostly.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, errUnanswered) {
			return err
		}
	}
	return errors.New("the lock is gone")
}

// syncFence writes the fence of a grant to the servers that gave a smaller one. Any
// later grant has a server in common with the majority that then knows it, and so
// a greater fence.
func (l *Locker) syncFence(ctx context.Context, key, owner string, answers []int64, fence int64) error {
	if slices.Min(answers) == fence { // all servers gave this one
		return nil
	}
	done, errs, _ := l.onAll(ctx, func(*node) *redisbatch.ScriptCall {
		return redisbatch.NewCall(l.scripts.syncFence, key).Key(FenceKey(key)).Text(owner).Text(fmt.Sprint(fence)).Number(l.lifeArg)
	})
	if n := sum(done); n < l.majority() {
		return fmt.Errorf("only %d of %d servers took the fence: %w", n, len(l.nodes), firstOf(errs))
	}
	return nil
}

func sum(answers []int64) (n int) {
	for _, a := range answers {
		n += int(a)
	}
	return n
}

// releaseQuorum gives the lock up everywhere, also where it was not granted.
func (l *Locker) releaseQuorum(ctx context.Context, key, owner string, noted bool) (released, error) {
	answers, errs, _ := l.onAll(ctx, func(n *node) *redisbatch.ScriptCall { return l.releaseCall(n, key, owner, "", noted) })
	held, heard := 0, int64(0)
	for _, n := range answers {
		if released(n).held() {
			held++
			heard = max(heard, n)
		}
	}
	switch {
	case held >= l.majority():
		return released(heard), nil
	case failures(errs) > 0:
		return 0, firstOf(errs)
	}
	return 0, nil
}

// extendQuorum reports whether most servers still have the lock as the owner's.
func (l *Locker) extendQuorum(ctx context.Context, p *part, e extension) (bool, error) {
	answers, errs, _ := l.onAll(ctx, func(*node) *redisbatch.ScriptCall { return l.extendCall(p, e) })
	switch held := sum(answers); {
	case held >= l.majority():
		return true, nil
	case failures(errs) > 0: // they may have said yes
		return false, firstOf(errs)
	}
	return false, nil
}
