package locking

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/timeouts"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

const (
	// retryPause is the time between two batches. The shortest lease, one second, leaves time
	// for several.
	retryPause = 100 * time.Millisecond
	// retryTimeout bounds one attempt: a command, sent twice.
	retryTimeout = 2 * time.Second
	// maxParallelRetries bounds the goroutines of a batch. Commands to one server share round
	// trips, so the bound limits memory.
	maxParallelRetries = 256
	// storeWithin bounds the time in which an answer is stored after its call. The lock may end
	// before that; the answer is stored even so.
	storeWithin = 10 * time.Minute
)

// lateEnds runs what ends a lease, and repeats what Redis did not take at first, until it has or the
// lease has ended. One goroutine repeats, and only while any are pending. Only a Redis that
// replies grants leases, so there are at most as many as there were leases when it became
// unreachable. The zero value is empty. It is safe for concurrent use.
type lateEnds struct {
	mu      sync.Mutex
	running int // of run; one more while any are pending
	pending []*lateEnd
	repeats bool          // a goroutine repeats those that are pending
	idle    chan struct{} // closed when nothing is running; nil: nothing is
	cancel  context.CancelFunc
	closed  bool
	worker  sync.WaitGroup
	held    atomic.Int64 // locks, since none was pending
}

// run ends a lease in the background, within timeouts.Cleanup.
func (l *lateEnds) run(do func(context.Context)) {
	ctx, done := l.begin()
	go func() {
		defer done()
		do(ctx)
	}()
}

// begin begins the end of a lease. Done must follow.
func (l *lateEnds) begin() (ctx context.Context, done func()) {
	l.mu.Lock()
	l.beginLocked()
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeouts.Cleanup)
	return ctx, func() {
		cancel()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.doneLocked()
	}
}

func (l *lateEnds) beginLocked() {
	if l.running++; l.running == 1 {
		l.idle = make(chan struct{})
	}
}

func (l *lateEnds) doneLocked() {
	if l.running--; l.running == 0 {
		close(l.idle)
		l.idle = nil
	}
}

// lateEnd is the hold of a lease, or its release if that stores an answer.
type lateEnd struct {
	lease  *heldLease
	reason string    // of a hold
	until  time.Time // of a release: when it is given up; zero: it is a hold
}

// add repeats an end in the background. After close the lease expires instead.
func (l *lateEnds) add(p *lateEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		p.abandon()
		return
	}
	l.pending = append(l.pending, p)
	if !l.repeats {
		l.repeats = true
		l.beginLocked()
		var ctx context.Context
		ctx, l.cancel = context.WithCancel(context.Background())
		l.worker.Go(func() { l.repeat(ctx) })
	}
}

func (l *lateEnds) repeat(ctx context.Context) {
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		l.mu.Lock()
		batch := l.pending
		l.pending = nil
		l.mu.Unlock()
		failed := l.retry(ctx, batch)

		l.mu.Lock()
		l.pending = append(failed, l.pending...)
		if len(l.pending) == 0 || ctx.Err() != nil {
			for _, p := range l.pending {
				p.abandon()
			}
			if n := l.held.Swap(0); n > 0 {
				batch[0].log().Info("locks are held that Redis did not take at first", "count", n)
			}
			l.pending = nil
			l.repeats = false
			l.doneLocked()
			l.cancel()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		timer.Reset(retryPause)
	}
}

// retry returns those that failed again.
func (l *lateEnds) retry(ctx context.Context, batch []*lateEnd) (failed []*lateEnd) {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(maxParallelRetries)
	for _, p := range batch {
		group.Go(func() error {
			if !p.retry(ctx, &l.held) {
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

// retry reports whether the end is done, and counts it if it is a hold.
func (p *lateEnd) retry(ctx context.Context, held *atomic.Int64) (done bool) {
	ctx, cancel := context.WithTimeout(ctx, retryTimeout)
	defer cancel()
	if !p.until.IsZero() {
		return p.retryStore(ctx)
	}
	switch err := p.lease.HoldAgain(ctx, p.reason); {
	case err == nil:
		held.Add(1)
	case errors.Is(err, redislock.ErrLost):
		p.log().Error("a lock ended before it was held: its order may be settled beside a call that still runs", "request", p.lease.Request(), "error", err,
			runbook.LeaseLost.Do("compare the payouts of this order, unless the database checks the fence"))
	default:
		return false
	}
	p.lease.end()
	return true
}

// retryStore reports whether the answer is stored, or is given up.
func (p *lateEnd) retryStore(ctx context.Context) (done bool) {
	err := p.lease.ReleaseAgain(ctx)
	if err != nil && !errors.Is(err, redislock.ErrLost) {
		if time.Now().Before(p.until) {
			return false
		}
		p.log().Error("an answer is not stored: the same call would reach the backend again", "request", p.lease.Request(), "error", err,
			runbook.AnswersNotStored.Do("look at Redis and the way to it"))
	}
	p.lease.end()
	return true
}

// abandon leaves the lease to expire.
func (p *lateEnd) abandon() {
	if !p.until.IsZero() {
		p.log().Error("what a call stores, deletes or gives back is not written, since there is no time left: its stored answer is as before, or suspended", "key", p.lease.Key(), "request", p.lease.Request(),
			runbook.AnswersNotStored.Do("look at Redis; ordergate once shows the stored answer of the order"))
		p.lease.end()
		return
	}
	p.log().Error("a lock ends with its lease, since there is no time left to hold it", "key", p.lease.Key(), "request", p.lease.Request(),
		runbook.LocksFail.Do("look at Redis; compare the payouts of this order, unless the database checks the fence"))
	p.lease.end()
}

func (p *lateEnd) log() *slog.Logger { return p.lease.unit.log }

// await blocks until nothing is running or pending, or ctx ends.
func (l *lateEnds) await(ctx context.Context) {
	l.mu.Lock()
	idle := l.idle
	l.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// close abandons those that are pending, and waits for what is running.
func (l *lateEnds) close() {
	l.mu.Lock()
	l.closed = true
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	l.worker.Wait()
	l.await(context.Background())
}
