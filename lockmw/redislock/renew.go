package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// renewer renews all the leases of a Locker from one goroutine, those that are
// due in one pipeline. A lease is due when a third of it has passed, and once,
// soon after it began, to put it on record for operators.
type renewer struct {
	locker *Locker
	tick   time.Duration
	wg     sync.WaitGroup

	mu     sync.Mutex
	leases map[*Lease]struct{}
}

const (
	// ticksPerLease is how often in a lease the renewer looks. At twelve a renewal
	// comes no later than 1/3 + 1/12 of the lease, which leaves time for a second
	// and third try before the lease ends.
	ticksPerLease = 12
	// noteAge is how old a lease is when it is put on record: most calls end
	// before, and cost nothing. It is the longest tick as well.
	noteAge = 250 * time.Millisecond
)

func (r *renewer) start(l *Locker) {
	r.locker = l
	r.tick = min(max(l.opts.Lease/ticksPerLease, time.Millisecond), noteAge)
	r.leases = make(map[*Lease]struct{})
	r.wg.Go(func() { r.run(l.closed) })
}

func (r *renewer) stop() { r.wg.Wait() }

func (r *renewer) add(l *Lease) {
	r.mu.Lock()
	r.leases[l] = struct{}{}
	r.mu.Unlock()
}

func (r *renewer) remove(l *Lease) {
	r.mu.Lock()
	delete(r.leases, l)
	r.mu.Unlock()
}

func (r *renewer) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.leases)
}

func (r *renewer) run(ctx context.Context) {
	ticker := time.NewTicker(r.tick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.look(ctx, time.Now())
		}
	}
}

// look renews the leases that are due, notifies the holders of those that are renewed no
// more, and reports those as lost whose end has passed. It does not wait for the renewals:
// those that take long must not keep it from seeing the end of another lease.
func (r *renewer) look(ctx context.Context, now time.Time) {
	r.mu.Lock()
	var renew, lost, ending []*Lease
	for l := range r.leases {
		due, late := l.renewalState(now)
		if l.expired(now) {
			ending = append(ending, l)
		}
		if due {
			renew = append(renew, l)
		}
		if late {
			lost = append(lost, l)
		}
	}
	r.mu.Unlock()
	for _, l := range lost { // outside the lock: lose removes
		if l.expired(now) {
			l.loseAll("held longer than the maximum")
		} else {
			l.late()
		}
	}
	for _, l := range ending {
		l.notify(false)
	}
	// All at once: the calls to one server share a round trip.
	for _, l := range renew {
		r.wg.Go(func() { r.renew(ctx, l) })
	}
}

// renew renews the parts of a lease that are held. All of them have to succeed for
// its end to move. It waits for a quarter of the lease at most, so that an answer
// that does not come leaves time for another try.
func (r *renewer) renew(ctx context.Context, l *Lease) {
	ctx, cancel := context.WithTimeout(ctx, r.locker.opts.Lease/4)
	defer cancel()
	var note *Record
	if !l.onRecord() {
		note = l.record()
	}
	asked, held := time.Now(), l.held()
	results := make([]error, len(held))
	var wg sync.WaitGroup
	for n, i := range held {
		p := &l.parts[i]
		wg.Go(func() {
			ok, err := r.locker.extend(ctx, p, extension{to: r.locker.opts.Lease, note: note})
			if err == nil && !ok {
				l.lose(i, "deleted or taken over in Redis")
			}
			results[n] = err
		})
	}
	wg.Wait()
	err := errors.Join(results...)
	lost := l.renewed(asked, err == nil)
	if err != nil && !lost && r.locker.closed.Err() == nil {
		r.locker.log.Warn("renewing a lease", "key", l.Key(), "request", l.request, "error", err,
			runbook.LocksFail.Do("look at Redis and the way to it; ordergate tries again until the lease ends"))
	}
}
