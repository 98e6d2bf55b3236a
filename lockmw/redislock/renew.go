package redislock

import (
	"context"
	"sync"
	"time"
)

// renewer renews all the leases of a Locker from one goroutine, those that are
// due in one pipeline. A lease is due when a third of it has passed, and once,
// soon after it began, to put it on record for an operator who looks.
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
			r.renew(ctx, r.due(time.Now()))
		}
	}
}

// due returns the leases to renew now. Those whose end has passed are lost: a
// renewal may still succeed if nobody took the key, but the lock was not held in
// between.
func (r *renewer) due(now time.Time) []*Lease {
	lease := r.locker.opts.Lease
	r.mu.Lock()
	var due, over []*Lease
	for l := range r.leases {
		switch left := l.end().Sub(now); {
		case left <= 0:
			over = append(over, l)
		case l.expired(now):
		case left <= lease*2/3, !l.onRecord() && now.Sub(l.since) >= noteAge:
			due = append(due, l)
		}
	}
	r.mu.Unlock()
	for _, l := range over { // outside the lock: lose removes
		if l.expired(now) {
			l.loseAll("held longer than the maximum")
		} else {
			l.loseAll("could not be renewed in time")
		}
	}
	return due
}

// renew asks for all of them at once: the questions of one server share a round
// trip. It waits for a quarter of the lease at most, so that an answer that does
// not come leaves time for another try.
func (r *renewer) renew(ctx context.Context, due []*Lease) {
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, r.locker.opts.Lease/4)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range due {
		wg.Go(func() { r.renewOne(ctx, l) })
	}
	wg.Wait()
}

// renewOne renews the parts of a lease that are held. All of them have to succeed
// for its end to move.
func (r *renewer) renewOne(ctx context.Context, l *Lease) {
	note := ""
	if !l.onRecord() {
		note = l.note("")
	}
	asked, held := time.Now(), l.held()
	results := make([]error, len(held))
	var wg sync.WaitGroup
	for n, i := range held {
		p := &l.parts[i]
		wg.Go(func() {
			ok, err := r.locker.extend(ctx, p.key, p.owner, r.locker.opts.Lease, note)
			if err == nil && !ok {
				l.lose(i, "deleted or taken over in Redis")
			}
			results[n] = err
		})
	}
	wg.Wait()
	for _, err := range results {
		if err != nil {
			if r.locker.closed.Err() == nil {
				r.locker.log.Warn("renewing a lease", "key", l.Key(), "error", err)
			}
			return
		}
	}
	l.renewed(asked, true)
}
