package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
)

// ownerSeparator stands between the owner of an order's lease and that of the
// permit beside it, where a lease has both. Neither has it in it.
const ownerSeparator = "+"

// errLockLost is why a settlement is refused that has its permit by now.
var errLockLost = errors.New("the order's lock was lost while the permit was waited for")

// acquire takes the lock, and then the permit of the limit if there is one. When
// there is no permit, the lock is given back.
func (s *Settle) acquire(ctx context.Context, request LockRequest, limit string) (Lease, error) {
	presented, permit, _ := strings.Cut(request.PresentedLease, ownerSeparator)
	request.PresentedLease = presented
	lease, err := s.Lock.Acquire(ctx, request)
	if err != nil || s.Limit == nil {
		return lease, err
	}
	limitRequest := LockRequest{IDs: []string{limit}, Purpose: request.Purpose, Client: request.Client}
	// A call within another is no settlement more, and shares the permit of that
	// one. Whoever only presents a permit, for another order, needs one of its own.
	if presented != "" && lease.Owner() == presented {
		limitRequest.PresentedLease = permit
	}
	second, err := s.Limit.Acquire(ctx, limitRequest)
	if err != nil {
		// Nothing was forwarded. What cannot be released ends by itself.
		_ = lease.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	both := &limited{order: lease, permit: second, done: make(chan struct{})}
	select {
	case <-lease.Lost(): // while the permit was waited for
		_ = both.Release(context.WithoutCancel(ctx))
		return nil, errLockLost
	default:
		return both, nil
	}
}

// limited is the lease of an order with a permit beside it. They are lost and
// given up together.
type limited struct {
	order, permit Lease

	watch sync.Once
	lost  chan struct{} // closed when one of them is lost
	end   sync.Once
	done  chan struct{} // closed when they are given up
}

// Fences returns those of the orders. A permit has none that a backend could use.
func (l *limited) Fences() []int64 { return l.order.Fences() }

// Owner returns both owners.
func (l *limited) Owner() string { return l.order.Owner() + ownerSeparator + l.permit.Owner() }

// Lost is closed when one of the two is lost.
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

// Release gives both up, whatever becomes of each.
func (l *limited) Release(ctx context.Context) error {
	return l.both(func(lease Lease) error { return lease.Release(ctx) })
}

// Hold holds both.
func (l *limited) Hold(ctx context.Context, reason string) error {
	return l.both(func(lease Lease) error { return lease.Hold(ctx, reason) })
}

// both does something for the two at once: one that takes all the time that ctx
// gives must leave the other some.
func (l *limited) both(do func(Lease) error) error {
	l.end.Do(func() { close(l.done) })
	var permit error
	var wg sync.WaitGroup
	wg.Go(func() { permit = do(l.permit) })
	order := do(l.order)
	wg.Wait()
	return errors.Join(order, permit)
}
