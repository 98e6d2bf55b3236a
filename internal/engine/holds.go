package engine

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
	// holdPause is the time between two rounds of repeated holds. The shortest lease, one
	// second, leaves time for several.
	holdPause = 100 * time.Millisecond
	// holdTime bounds one repeated hold: a question to Redis, asked twice.
	holdTime = 2 * time.Second
	// holdsAtOnce bounds the goroutines of a round. Questions to one server share round
	// trips, so the bound is about memory.
	holdsAtOnce = 256
)

// holds repeats the holds that Redis did not take, until it takes them or their leases have
// ended. One goroutine does so, and only while there are any. A lease is granted by a Redis
// that answers, so there are never more than there were leases when it went away. The zero
// value is empty. It is safe for concurrent use.
type holds struct {
	mu      sync.Mutex
	pending []*pendingHold
	idle    chan struct{} // closed when nothing is pending; nil: nothing is
	cancel  context.CancelFunc
	closed  bool
	worker  sync.WaitGroup
	taken   atomic.Int64 // holds, since nothing was pending
}

// pendingHold is a lease that is renewed no more, and not held yet.
type pendingHold struct {
	lease  *heldLease
	reason string
}

// add has a hold repeated. After close the lease ends by itself.
func (h *holds) add(p *pendingHold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		p.giveUp()
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
		round := h.pending
		h.pending = nil
		h.mu.Unlock()
		failed := h.repeat(ctx, round)

		h.mu.Lock()
		h.pending = append(failed, h.pending...)
		if len(h.pending) == 0 || ctx.Err() != nil {
			for _, p := range h.pending {
				p.giveUp()
			}
			if n := h.taken.Swap(0); n > 0 {
				round[0].log().Info("locks are held that Redis did not take at first", "count", n)
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

// repeat returns the holds that have to be repeated again.
func (h *holds) repeat(ctx context.Context, round []*pendingHold) (failed []*pendingHold) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(holdsAtOnce)
	for _, p := range round {
		group.Go(func() error {
			if !p.repeat(ctx, &h.taken) {
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

// repeat reports whether there is nothing left to do, and counts a hold that Redis took.
func (p *pendingHold) repeat(ctx context.Context, taken *atomic.Int64) (over bool) {
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	switch err := p.lease.HoldAgain(ctx, p.reason); {
	case err == nil:
		taken.Add(1)
	case errors.Is(err, redislock.ErrLost):
		p.log().Error("a lock ended before it was held: its order may be settled beside a call that still runs", "request", p.lease.Request(), "error", err)
	default:
		return false
	}
	p.lease.end()
	return true
}

// giveUp leaves the lease to end by itself.
func (p *pendingHold) giveUp() {
	p.log().Error("a lock ends with its lease, since there is no time left to hold it", "key", p.lease.Key(), "request", p.lease.Request())
	p.lease.end()
}

func (p *pendingHold) log() *slog.Logger { return p.lease.unit.log }

// await blocks until nothing is pending, or ctx ends.
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

// close gives up what is pending.
func (h *holds) close() {
	h.mu.Lock()
	h.closed = true
	if h.cancel != nil {
		h.cancel()
	}
	h.mu.Unlock()
	h.worker.Wait()
}
