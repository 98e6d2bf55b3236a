package locking

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// acquire checks the conditions of a request, and acquires its locks.
func (g GateLocker) acquire(ctx context.Context, request gate.LockRequest, until time.Time) (*heldLease, error) {
	if request.Conditions == nil {
		return g.acquireLocks(ctx, request, until)
	}
	refused := error(nil)
	within := request.PresentedLease != ""
	if !within {
		if refused = checkConditions(ctx, request); refused != nil && request.Stored == "" {
			return nil, refused
		}
	}
	held, err := g.acquireLocks(ctx, request, until)
	switch {
	case err != nil:
		return nil, err // perhaps a stored answer, which comes before the conditions
	case within && !held.Reentered():
		// Only Redis can tell whether the call is within the presented lease. Such a call goes
		// on: the conditions held when that lease was granted. This one is not.
		refused = checkConditions(ctx, request)
	}
	if refused != nil {
		_ = held.Release(context.WithoutCancel(ctx)) // nothing was forwarded; if this fails, the lock expires
		return nil, refused
	}
	return held, nil
}

func checkConditions(ctx context.Context, request gate.LockRequest) error {
	return request.Conditions.Check(ctx, request.IDs, request.Headers)
}
