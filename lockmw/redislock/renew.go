package redislock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// renewer renews all the leases of a Locker from one goroutine, those that are
// due in one pipeline. A lease is due when a third of it has passed.
type renewer struct {
	locker *Locker
	tick   time.Duration
	wg     sync.WaitGroup

	mu     sync.Mutex
	leases map[*Lease]struct{}
}

// ticksPerLease is how often in a lease the renewer looks. At twelve a renewal
// comes no later than 1/3 + 1/12 of the lease, which leaves time for a second
// and third try before the lease ends.
const ticksPerLease = 12

func (r *renewer) start(l *Locker) {
	r.locker = l
	r.tick = max(l.opts.Lease/ticksPerLease, time.Millisecond)
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
	r.mu.Lock()
	var due, over []*Lease
	for l := range r.leases {
		switch left := l.end().Sub(now); {
		case left <= 0:
			over = append(over, l)
		case left <= r.locker.opts.Lease*2/3 && !l.expired(now):
			due = append(due, l)
		}
	}
	r.mu.Unlock()
	for _, l := range over { // outside the lock: lose removes
		if l.expired(now) {
			l.lose("held longer than the maximum")
		} else {
			l.lose("could not be renewed in time")
		}
	}
	return due
}

// expired reports whether the lease has been held for its maximum.
func (l *Lease) expired(now time.Time) bool {
	return l.maxHold > 0 && now.Sub(l.since) >= l.maxHold
}

func (r *renewer) renew(ctx context.Context, due []*Lease) {
	if len(due) == 0 {
		return
	}
	// A renewal that hangs must not keep the others, or the next try, from
	// happening within the lease.
	ctx, cancel := context.WithTimeout(ctx, r.locker.opts.Lease/4)
	defer cancel()
	asked := time.Now()
	replies, err := r.ask(ctx, due)
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // flushed, or a replica took over
		if err = extendScript.Load(ctx, r.locker.client).Err(); err == nil {
			replies, err = r.ask(ctx, due)
		}
	}
	if err != nil && ctx.Err() == nil {
		r.locker.log.Warn("renewing leases", "leases", len(due), "error", err)
	}
	for i, reply := range replies {
		switch held, err := reply.Bool(); {
		case err == nil && held:
			due[i].renewed(asked)
		case err == nil:
			due[i].lose("deleted or taken over in Redis")
		}
	}
}

// ask sends one pipeline and returns the first error in it, besides every reply.
func (r *renewer) ask(ctx context.Context, due []*Lease) ([]*redis.Cmd, error) {
	replies := make([]*redis.Cmd, len(due))
	_, err := r.locker.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, l := range due {
			replies[i] = extendScript.EvalSha(ctx, p, []string{l.key},
				l.owner, r.locker.opts.Lease.Milliseconds())
		}
		return nil
	})
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return replies, err
}
