package gate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// ownerSeparator separates the owner of an order's lease from the owner of its permit.
// Neither contains it.
const ownerSeparator = "+"

// errLockLost is the reason to refuse a call whose lease has ended before it is forwarded.
var errLockLost = errors.New("the lock was lost before the call was forwarded")

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
	if err != nil && request.Marks {
		return lease, err
	}
	if err != nil {
		// Nothing was forwarded. If the release fails, the lock expires.
		_ = lease.Release(context.WithoutCancel(ctx))
		return nil, err
	}
	return join(lease, second, lease.Owner()+ownerSeparator+second.Owner()), nil
}

// join makes one lease of two.
func join(main, extra Lease, owner string) Lease {
	return &pair{main: main, extra: extra, owner: owner, done: make(chan struct{})}
}

// pair is the lease of an order with a second one: that of a permit or of a key. Both are
// lost, released and held together.
type pair struct {
	main, extra Lease
	owner       string

	watch sync.Once
	lost  chan struct{} // closed when one of them is lost
	end   sync.Once
	done  chan struct{} // closed by Release and Hold
}

// Fences returns the fences of the orders. A backend has no use for those of permits and keys.
func (l *pair) Fences() []int64 { return l.main.Fences() }

// Owner returns the owner that the backend sees.
func (l *pair) Owner() string { return l.owner }

// Ended reports whether either lease has ended.
func (l *pair) Ended() bool { return l.main.Ended() || l.extra.Ended() }

// Lost is closed when either lease is lost.
func (l *pair) Lost() <-chan struct{} {
	l.watch.Do(func() {
		l.lost = make(chan struct{})
		go func() {
			select {
			case <-l.main.Lost():
				close(l.lost)
			case <-l.extra.Lost():
				close(l.lost)
			case <-l.done:
			}
		}()
	})
	return l.lost
}

// Release releases both, even if one fails.
func (l *pair) Release(ctx context.Context) error {
	return l.both(func(lease Lease) error { return lease.Release(ctx) })
}

// Hold holds both.
func (l *pair) Hold(ctx context.Context, reason string) error {
	return l.both(func(lease Lease) error { return lease.Hold(ctx, reason) })
}

// StoreAnswer implements StoringLease, for the order.
func (l *pair) StoreAnswer(name, text, brief string, keep time.Duration) {
	if storing, ok := l.main.(StoringLease); ok {
		storing.StoreAnswer(name, text, brief, keep)
	}
}

// ForgetAnswers implements StoringLease, for the order.
func (l *pair) ForgetAnswers(keep time.Duration, names ...string) {
	if storing, ok := l.main.(StoringLease); ok {
		storing.ForgetAnswers(keep, names...)
	}
}

// KeepSuspended implements StoringLease, for the order.
func (l *pair) KeepSuspended() {
	if storing, ok := l.main.(StoringLease); ok {
		storing.KeepSuspended()
	}
}

// SuspendAnswers implements StoringLease, for the order.
func (l *pair) SuspendAnswers(ctx context.Context, keep time.Duration, names ...string) error {
	if storing, ok := l.main.(StoringLease); ok {
		return storing.SuspendAnswers(ctx, keep, names...)
	}
	return nil
}

// both runs do for the two leases at once, so that neither uses up the time of the other.
func (l *pair) both(do func(Lease) error) error {
	l.end.Do(func() { close(l.done) })
	var extra error
	var wg sync.WaitGroup
	wg.Go(func() { extra = do(l.extra) })
	main := do(l.main)
	wg.Wait()
	return errors.Join(main, extra)
}
