package locking

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// acquire acquires the locks of a request, and checks its conditions under them: what another
// call of the same order has changed counts. A stored answer is found before that.
func (g GateLocker) acquire(ctx context.Context, request gate.LockRequest, until time.Time) (*heldLease, error) {
	held, err := g.acquireLocks(ctx, request, until)
	if err != nil || request.Conditions == nil || held.Reentered() {
		// A call within the presented lease goes on: the conditions held when it was granted.
		return held, err
	}
	if err := request.Conditions.Check(ctx, request.IDs, request.Headers); err != nil {
		_ = held.Release(context.WithoutCancel(ctx)) // nothing was forwarded; if this fails, the lock expires
		return nil, err
	}
	return held, nil
}
