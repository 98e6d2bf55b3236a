package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// NewQuorum returns a Locker of an exclusive lock on several independent servers,
// an odd number of at least three: whoever holds it on most of them has it. It
// outlives the loss of any minority. The algorithm is Redlock
// (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), with
// two differences: waiters are woken, and the fence is the greatest of all
// servers', written back to those that were behind before it is given out.
//
// The servers' clocks must run at the same speed to within one percent. A server
// that restarts without what it had must stay away for a lease, so that it has
// forgotten no lock that is still held.
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
	return min(max(l.opts.Lease/20, 20*time.Millisecond), 500*time.Millisecond)
}

// onAll asks every server at once, and returns what each of them answered.
func (l *Locker) onAll(ctx context.Context, about func(*node) *question) ([]int64, []error) {
	ctx, cancel := context.WithTimeout(ctx, l.nodeTime())
	defer cancel()
	answers, errs := make([]int64, len(l.nodes)), make([]error, len(l.nodes))
	var wg sync.WaitGroup
	for i, n := range l.nodes {
		wg.Go(func() { answers[i], errs[i] = n.pipe.do(ctx, about(n)) })
	}
	wg.Wait()
	return answers, errs
}

// tryQuorum asks once on all servers. When most of them do not grant the lock in
// time, what was granted is given back everywhere.
func (l *Locker) tryQuorum(ctx context.Context, key, owner string) (answer, error) {
	asked := time.Now()
	answers, errs := l.onAll(ctx, func(*node) *question { return l.acquireQuestion(key, owner) })
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
		err = l.raise(ctx, key, owner, answers, fence)
	}
	switch {
	case err == nil && granted >= l.majority() && time.Since(asked) < l.validity():
		l.trouble.over()
		return answer{fence: fence, asked: asked}, nil
	case granted > 0 || slices.ContainsFunc(errs, func(err error) bool { return err != nil && unseen(err) }):
		l.giveBack(ctx, key, owner)
	}
	if err != nil {
		return answer{}, err
	}
	if failed := errors.Join(errs...); failed != nil && len(l.nodes)-count(errs) < l.majority() {
		return answer{}, l.explain(key, failed)
	}
	return answer{left: left, asked: asked}, nil
}

func count(errs []error) (n int) {
	for _, err := range errs {
		if err != nil {
			n++
		}
	}
	return n
}

// raise writes the fence of a grant to the servers that gave a smaller one. Any
// later grant has a server in common with the majority that then knows it, and so
// a greater fence.
func (l *Locker) raise(ctx context.Context, key, owner string, answers []int64, fence int64) error {
	if slices.Min(answers) == fence {
		return nil
	}
	done, errs := l.onAll(ctx, func(*node) *question {
		return ask(l.scripts.raise, key).key(FenceKey(key)).text(owner).text(fmt.Sprint(fence)).number(l.lifeArg)
	})
	if n := sum(done); n < l.majority() {
		return fmt.Errorf("only %d of %d servers took the fence: %w", n, len(l.nodes), errors.Join(errs...))
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
func (l *Locker) releaseQuorum(ctx context.Context, key, owner string) (released, error) {
	answers, errs := l.onAll(ctx, func(n *node) *question { return l.releaseQuestion(n, key, owner) })
	held, heard := 0, int64(0)
	for _, n := range answers {
		if released(n).held() {
			held++
			heard = max(heard, n)
		}
	}
	switch failed := count(errs); {
	case held >= l.majority():
		return released(heard), nil
	case held+failed >= l.majority():
		return 0, errors.Join(errs...)
	}
	return 0, nil
}

// extendQuorum reports whether most servers still have the lock as the owner's.
func (l *Locker) extendQuorum(ctx context.Context, key, owner string, d time.Duration, note string) (bool, error) {
	answers, errs := l.onAll(ctx, func(*node) *question { return l.extendQuestion(key, owner, d, note) })
	switch held := sum(answers); {
	case held >= l.majority():
		return true, nil
	case held+count(errs) >= l.majority():
		return false, errors.Join(errs...)
	}
	return false, nil
}
