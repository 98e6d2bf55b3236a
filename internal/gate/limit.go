package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// ownerSeparator separates the owner of an order's lease from the owner of its permit.
// Neither contains it.
const ownerSeparator = "+"

// errLockLost is the reason to refuse a call whose lease has ended before it is forwarded.
var errLockLost = errors.New("the lock was lost before the call was forwarded")

// acquire acquires the lock, and then the permit of the limit if there is one. Without a
// permit it releases the lock.
func (s *Settle) acquire(ctx context.Context, request LockRequest, limit string, then func(Lease, error)) {
	presented, permit, _ := strings.Cut(request.PresentedLease, ownerSeparator)
	request.PresentedLease = presented
	s.Lock.Acquire(ctx, request, func(lease Lease, err error) {
		if err != nil || s.Limit == nil {
			then(lease, err)
			return
		}
		limitRequest := LockRequest{IDs: []string{limit}, Purpose: request.Purpose, Client: request.Client}
		// A call within another call is not one more settlement, and shares its permit. A call
		// that only presents a permit, for another order, needs a permit of its own.
		if presented != "" && lease.Owner() == presented {
			limitRequest.PresentedLease = permit
		}
		s.Limit.Acquire(ctx, limitRequest, func(second Lease, err error) {
			switch {
			case err != nil && request.Marks:
				then(lease, err)
				return
			case err != nil:
				giveBack(lease)
				then(nil, err)
				return
			}
			then(join(lease, second, lease.Owner()+ownerSeparator+second.Owner()), nil)
		})
	})
}

// join makes one lease of two.
func join(main, extra Lease, owner string) Lease {
	return &pair{Lease: main, extra: extra, owner: owner}
}

// pair is the lease of an order with a second one: that of a permit or of a key. Both are lost,
// released and held together. Fences and stored answers are those of the order.
type pair struct {
	Lease
	extra Lease
	owner string
}

// Owner returns the owner that the backend sees.
func (l *pair) Owner() string { return l.owner }

// Ended reports whether either lease has ended.
func (l *pair) Ended() bool { return l.Lease.Ended() || l.extra.Ended() }

// NotifyLost calls lost once, when the first of them is lost.
func (l *pair) NotifyLost(lost func()) {
	once := sync.OnceFunc(lost)
	l.Lease.NotifyLost(once)
	l.extra.NotifyLost(once)
}

// Release releases both at once, even if one fails.
func (l *pair) Release(then func(error)) {
	var mu sync.Mutex
	var errs []error
	end := func(err error) {
		mu.Lock()
		errs = append(errs, err)
		both := len(errs) == 2
		mu.Unlock()
		if both {
			then(errors.Join(errs...))
		}
	}
	l.Lease.Release(end)
	l.extra.Release(end)
}

// Hold holds both.
func (l *pair) Hold(reason string) {
	l.Lease.Hold(reason)
	l.extra.Hold(reason)
}

// LimitKey returns the key of the permit that the call also needs, or "".
func (c *Call) LimitKey() string {
	if c.policy.Settle == nil || c.policy.Settle.Limit == nil {
		return ""
	}
	return c.policy.Settle.Limit.Key(c.limitID)
}
