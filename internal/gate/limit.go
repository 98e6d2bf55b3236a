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

// errLockLost is the reason to refuse a settlement that has acquired its permit.
var errLockLost = errors.New("the order's lock was lost while the permit was waited for")

// acquire acquires the lock, and then the permit of the limit if there is one. Without a
// permit it releases the lock.
func (s *Settle) acquire(ctx context.Context, request LockRequest, limit string) (Lease, error) {
	presented, permit, _ := strings.Cut(request.PresentedLease, ownerSeparator)
	request.PresentedLease = presented
	lease, err := s.Lock.Acquire(ctx, request)
	if err != nil || s.Limit == nil {
		return lease, err
	}
	limitRequest := LockRequest{IDs: []string{limit}, Purpose: request.Purpose, Client: request.Client}
	// A call within another call is not one more settlement, and shares its permit. A call
	// that only presents a permit, for another order, needs a permit of its own.
	if presented != "" && lease.Owner() == presented {
		limitRequest.PresentedLease = permit
	}
	second, err := s.Limit.Acquire(ctx, limitRequest)
	if err != nil {
		// Nothing was forwarded. If the release fails, the lock expires.
		_ = lease.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	both := &limited{order: lease, permit: second, done: make(chan struct{})}
	select {
	case <-lease.Lost(): // lost during the wait for the permit
		_ = both.Release(context.WithoutCancel(ctx))
		return nil, errLockLost
	default:
		return both, nil
	}
}

// limited is the lease of an order together with a permit. Both are lost, released and held
// together.
type limited struct {
	order, permit Lease

	watch sync.Once
	lost  chan struct{} // closed when one of them is lost
	end   sync.Once
	done  chan struct{} // closed by Release and Hold
}

// Fences returns the fences of the orders. A backend has no use for the fence of a permit.
func (l *limited) Fences() []int64 { return l.order.Fences() }

// Owner returns both owners.
func (l *limited) Owner() string { return l.order.Owner() + ownerSeparator + l.permit.Owner() }

// Lost is closed when either lease is lost.
func (l *limited) Lost() <-chan struct{} {
	l.watch.Do(func() {
		l.lost = make(chan struct{})
		go func() {
			select {
			case <-l.order.Lost():
				close(l.lost)
			case <-l.permit.Lost():
				close(l.lost)
			case <-l.done:
			}
		}()
	})
	return l.lost
}

// Release releases both, even if one fails.
func (l *limited) Release(ctx context.Context) error {
	return l.both(func(lease Lease) error { return lease.Release(ctx) })
}

// Hold holds both.
func (l *limited) Hold(ctx context.Context, reason string) error {
	return l.both(func(lease Lease) error { return lease.Hold(ctx, reason) })
}

// both runs do for the two leases at once, so that neither uses up the time of the other.
func (l *limited) both(do func(Lease) error) error {
	l.end.Do(func() { close(l.done) })
	var permit error
	var wg sync.WaitGroup
	wg.Go(func() { permit = do(l.permit) })
	order := do(l.order)
	wg.Wait()
	return errors.Join(order, permit)
}
