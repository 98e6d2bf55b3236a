package locking

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/lockmw/redislock"
)

const (
	// holdPause is the time between two batches of repeated holds. The shortest lease, one
	// second, leaves time for several.
	holdPause = 100 * time.Millisecond
	// holdTimeout bounds one repeated hold: a command, sent twice.
	holdTimeout = 2 * time.Second
	// maxParallelHolds bounds the goroutines of a batch. Commands to one server share round
	// trips, so the bound limits memory.
	maxParallelHolds = 256
	// storeWithin bounds the time in which an answer is stored after its call. The lock may end
	// before that; the answer is stored even so.
	storeWithin = 10 * time.Minute
)

// holds repeats failed holds until Redis has stored them or their leases have ended. One
// goroutine does so, and only while any are pending. Only a Redis that replies grants leases,
// so there are at most as many as there were leases when it became unreachable. The zero value
// is empty. It is safe for concurrent use.
type holds struct {
	mu      sync.Mutex
	pending []*pendingHold
	idle    chan struct{} // closed when none is pending; nil: none is
	cancel  context.CancelFunc
	closed  bool
	worker  sync.WaitGroup
	stored  atomic.Int64 // holds, since none was pending
}

// pendingHold is a lease that is no longer renewed and not held yet; or, with until, one whose
// answer is not stored yet.
type pendingHold struct {
	lease  *heldLease
	reason string
	until  time.Time
}

// add repeats a hold in the background. After close the lease expires instead.
func (h *holds) add(p *pendingHold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		p.abandon()
		return
	}
	h.pending = append(h.pending, p)
	if h.idle == nil {
		h.idle = make(chan struct{})
		var ctx context.Context
		ctx, h.cancel = context.WithCancel(context.Background())
		h.worker.Go(func() { h.run(ctx) })
	}
}

func (h *holds) run(ctx context.Context) {
	timer := time.NewTimer(holdPause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		h.mu.Lock()
		batch := h.pending
		h.pending = nil
		h.mu.Unlock()
		failed := h.retry(ctx, batch)

		h.mu.Lock()
		h.pending = append(failed, h.pending...)
		if len(h.pending) == 0 || ctx.Err() != nil {
			for _, p := range h.pending {
				p.abandon()
			}
			if n := h.stored.Swap(0); n > 0 {
				batch[0].log().Info("locks are held that Redis did not take at first", "count", n)
			}
			h.pending = nil
			close(h.idle)
			h.idle = nil
			h.cancel()
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
		timer.Reset(holdPause)
	}
}

// retry returns the holds that failed again.
func (h *holds) retry(ctx context.Context, batch []*pendingHold) (failed []*pendingHold) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxParallelHolds)
	for _, p := range batch {
		group.Go(func() error {
			if !p.retry(ctx, &h.stored) {
				mu.Lock()
				failed = append(failed, p)
				mu.Unlock()
			}
			return nil
		})
	}
	_ = group.Wait()
	return failed
}

// retry reports whether the hold is done, and counts it if Redis has stored it.
func (p *pendingHold) retry(ctx context.Context, stored *atomic.Int64) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	if !p.until.IsZero() {
		return p.retryStore(ctx)
	}
	switch err := p.lease.HoldAgain(ctx, p.reason); {
	case err == nil:
		stored.Add(1)
	case errors.Is(err, redislock.ErrLost):
		p.log().Error("a lock ended before it was held: its order may be settled beside a call that still runs", "request", p.lease.Request(), "error", err)
	default:
		return false
	}
	p.lease.end()
	return true
}

// retryStore reports whether the answer is stored, or is given up.
func (p *pendingHold) retryStore(ctx context.Context) (done bool) {
	err := p.lease.ReleaseAgain(ctx)
	if err != nil && !errors.Is(err, redislock.ErrLost) {
		if time.Now().Before(p.until) {
			return false
		}
		p.log().Error("an answer is not stored: the same call would reach the backend again", "request", p.lease.Request(), "error", err)
	}
	p.lease.end()
	return true
}

// abandon leaves the lease to expire.
func (p *pendingHold) abandon() {
	if !p.until.IsZero() {
		p.log().Error("an answer is not stored, since there is no time left: the same call would reach the backend again", "key", p.lease.Key(), "request", p.lease.Request())
		p.lease.end()
		return
	}
	p.log().Error("a lock ends with its lease, since there is no time left to hold it", "key", p.lease.Key(), "request", p.lease.Request())
	p.lease.end()
}

func (p *pendingHold) log() *slog.Logger { return p.lease.unit.log }

// await blocks until no hold is pending, or ctx ends.
func (h *holds) await(ctx context.Context) {
	h.mu.Lock()
	idle := h.idle
	h.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close abandons the pending holds.
func (h *holds) close() {
	h.mu.Lock()
	h.closed = true
	if h.cancel != nil {
		h.cancel()
	}
	h.mu.Unlock()
	h.worker.Wait()
}
