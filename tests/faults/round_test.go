package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/lockmw/redislock"
)

const (
	roundCallers = 6 // over the two Lockers
	// mostWait is when a caller gives up that has not been told to, in a round that
	// does not end otherwise.
	mostWait = 30 * time.Second
	// givenBack is how soon a lock has to be free after the last caller has gone:
	// what is given back may have to be repeated on another connection.
	givenBack = 5 * time.Second
)

// round is one lane's play with a few keys.
type round struct {
	t      *testing.T
	lane   *lane
	name   string
	script string // the plan, for who reads of a failure
	keys   []string
	guards map[string]*guardian
	cuts   bool // a connection was cut
	ctx    context.Context
	unsure context.CancelFunc // a caller was told that its release may not have arrived

	mu    sync.Mutex
	trace []string
}

// guardian sees two that are in one place.
type guardian struct {
	inside atomic.Int64 // the fence of who is
	last   atomic.Int64 // the greatest fence so far
}

func (l *lane) round(t *testing.T) {
	l.serial++
	r := &round{t: t, lane: l, name: fmt.Sprintf("%s round %d", l.name, l.serial), guards: make(map[string]*guardian)}
	for i := range 1 + l.random.IntN(2) {
		key := fmt.Sprintf("%s:%d:%d", l.name, l.serial, i)
		r.keys = append(r.keys, key)
		r.guards[key] = &guardian{}
	}
	r.ctx, r.unsure = context.WithCancel(t.Context())
	defer r.unsure()
	r.plan()
	var wg sync.WaitGroup
	for i := range roundCallers {
		choices := rand.New(rand.NewPCG(l.random.Uint64(), 0))
		wg.Go(func() { r.call(i, l.lockers[i%len(l.lockers)], choices) })
	}
	wg.Wait()
	for _, w := range l.wires {
		w.set(nil)
	}
	for _, key := range r.keys {
		r.mustBeFree(key)
	}
}

// plan decides what the wires do in this round: nothing, delays at random packets,
// or one cut, before or after a packet was delivered.
func (r *round) plan() {
	random := r.lane.random
	kind, n := random.IntN(3), 1+random.IntN(40)
	before := random.IntN(2) == 0
	r.cuts = kind == 2
	r.script = fmt.Sprintf("%s, packet %d, before %v", []string{"quiet", "delays", "cut"}[kind], n, before)
	count := 0
	var mu sync.Mutex // of count and choices, which the wires share
	choices := rand.New(rand.NewPCG(random.Uint64(), 0))
	for _, w := range r.lane.wires {
		w.set(func(packet) fate {
			mu.Lock()
			defer mu.Unlock()
			count++
			switch {
			case kind == 1 && choices.IntN(4) == 0:
				r.lane.tally.delayed.Add(1)
				return fate{late: time.Duration(choices.Int64N(int64(20 * time.Millisecond)))}
			case kind == 2 && count == n:
				r.lane.tally.cut.Add(1)
				return fate{cut: true, drop: before}
			}
			return fate{}
		})
	}
}

// call is one caller's part.
func (r *round) call(i int, locker *redislock.Locker, random *rand.Rand) {
	ctx, leave := r.context(random, 40*time.Millisecond)
	defer leave()
	var lease *redislock.Lease
	var err error
	before := r.fences()
	keys := r.keys
	if random.IntN(3) > 0 {
		keys = []string{keys[random.IntN(len(keys))]}
	}
	if random.IntN(2) == 0 {
		lease, err = locker.AcquireAll(ctx, keys)
	} else {
		lease, err = acquireAsync(ctx, locker, keys)
	}
	tally := &r.lane.tally
	r.note("caller %d: %s", i, granted(lease, err))
	switch {
	case err == nil:
		tally.granted.Add(1)
		if r.waited(lease, before) {
			tally.waited.Add(1)
		}
	case errors.Is(err, redislock.ErrBusy):
		tally.busy.Add(1)
		return
	case over(ctx):
		tally.canceled.Add(1)
		return
	default:
		tally.failed.Add(1)
		if !r.cuts {
			r.errorf("acquiring: %v", err)
		}
		return
	}
	r.enter(lease)
	work(random)
	if r.lane.opts.Kind != redislock.Read && len(r.lane.direct) == 1 && random.IntN(5) == 0 {
		r.reenter(locker, lease, random)
	}
	r.exit(lease)
	r.giveUp(lease, random, random.IntN(20) == 0)
}

// acquireAsync is AcquireAll by AcquireAsync.
func acquireAsync(ctx context.Context, locker *redislock.Locker, keys []string) (lease *redislock.Lease, err error) {
	done := make(chan struct{}) // a second call would close it again
	locker.AcquireAsync(ctx, keys, func(granted *redislock.Lease, failed error) {
		lease, err = granted, failed
		close(done)
	})
	<-done
	return lease, err
}

// releaseAsync is Release by ReleaseAsync.
func releaseAsync(ctx context.Context, lease *redislock.Lease) (err error) {
	done := make(chan struct{})
	lease.ReleaseAsync(ctx, func(failed error) {
		err = failed
		close(done)
	})
	<-done
	return err
}

// granted says how an Acquire ended.
func granted(lease *redislock.Lease, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s is %s's, fence %d", lease.Key(), lease.Owner(), lease.Fence())
}

// work takes no time, a moment, or long enough for a lease to be put on record.
func work(random *rand.Rand) {
	switch random.IntN(40) {
	case 0:
		<-time.After(500 * time.Millisecond)
	default:
		<-time.After(time.Duration(random.Int64N(int64(3 * time.Millisecond))))
	}
}

// reenter takes the lock once more and releases it. TestHoldOfReentry has those
// that are held.
func (r *round) reenter(locker *redislock.Locker, lease *redislock.Lease, random *rand.Rand) {
	ctx, leave := r.context(random, 5*time.Millisecond)
	defer leave()
	inner, err := locker.Acquire(ctx, lease.Key(), redislock.Reenter(lease.Owner()))
	r.note("re-entry: %s", granted(inner, err))
	switch {
	case err != nil && !over(ctx) && !r.cuts:
		r.errorf("re-entering: %v", err)
	case err == nil && inner.Fence() != lease.Fence():
		r.errorf("re-entered lease %d with fence %d", lease.Fence(), inner.Fence())
	}
	if err == nil {
		r.giveUp(inner, random, false)
	}
}

// context returns one that ends at a random time within so long, or not before the
// round. It ends when a lock may stay taken.
func (r *round) context(random *rand.Rand, within time.Duration) (context.Context, context.CancelFunc) {
	if random.IntN(2) == 0 {
		return context.WithTimeout(r.ctx, mostWait)
	}
	return context.WithTimeout(r.ctx, time.Duration(random.Int64N(int64(within))))
}

// giveUp releases or holds a lease, on a context that mostly outlasts it.
func (r *round) giveUp(lease *redislock.Lease, random *rand.Rand, hold bool) {
	ctx, cancel := context.WithTimeout(r.t.Context(), mostWait)
	if random.IntN(4) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.Int64N(int64(5*time.Millisecond))))
	}
	defer cancel()
	var err error
	switch {
	case hold:
		r.lane.tally.heldOn.Add(1)
		err = lease.Hold(ctx, "a test")
	case random.IntN(2) == 0:
		err = lease.Release(ctx)
	default:
		err = releaseAsync(ctx, lease)
	}
	r.note("%s gave up: %v", lease.Owner(), err)
	switch {
	case err == nil:
	case errors.Is(err, redislock.ErrLost) && r.cuts:
		// go-redis repeats a release whose answer was cut off. The second finds
		// nothing to release.
		r.lane.tally.late.Add(1)
	case errors.Is(err, redislock.ErrLost):
		r.errorf("giving up lease %d: %v", lease.Fence(), err)
	default:
		r.lane.tally.unsure.Add(1)
		r.unsure()
	}
}

// enter and exit see to it that the holder of a lock is alone.
func (r *round) enter(lease *redislock.Lease) {
	if r.lane.opts.Kind == redislock.Read {
		return
	}
	for i, key := range r.held(lease) {
		g, fence := r.guards[key], lease.Fences()[i]
		if !g.inside.CompareAndSwap(0, fence) {
			r.errorf("%s is held by leases %d and %d", key, g.inside.Load(), fence)
		}
		if last := g.last.Swap(fence); last >= fence {
			r.errorf("%s: fence %d after %d", key, fence, last)
		}
	}
}

func (r *round) exit(lease *redislock.Lease) {
	if r.lane.opts.Kind == redislock.Read {
		return
	}
	for i, key := range r.held(lease) {
		if !r.guards[key].inside.CompareAndSwap(lease.Fences()[i], 0) {
			r.errorf("%s is held by lease %d, which took it from %d", key, r.guards[key].inside.Load(), lease.Fences()[i])
		}
	}
	select {
	case <-lease.Lost():
		r.errorf("lease %d was lost", lease.Fence())
	default:
	}
}

// held returns the keys of a lease.
func (r *round) held(lease *redislock.Lease) []string {
	if len(lease.Fences()) > 1 {
		return r.keys
	}
	return []string{lease.Key()}
}

// fences returns the last fence of each key so far.
func (r *round) fences() map[string]int64 {
	last := make(map[string]int64)
	for key, g := range r.guards {
		last[key] = g.last.Load()
	}
	return last
}

// waited reports whether others were granted a lock of the lease since then.
func (r *round) waited(lease *redislock.Lease, since map[string]int64) bool {
	for _, key := range r.held(lease) {
		if r.guards[key].last.Load() > since[key] {
			return true
		}
	}
	return false
}

// over reports whether a context has ended, or its deadline has passed: go-redis
// has it on the socket as well, where it may be noticed a moment sooner.
func over(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// mustBeFree takes the lock from elsewhere.
func (r *round) mustBeFree(key string) {
	ctx := r.t.Context()
	deadline := time.Now().Add(givenBack)
	for {
		lease, err := r.lane.probe.Acquire(ctx, key)
		switch {
		case err == nil:
			if err := lease.Release(ctx); err != nil {
				r.errorf("releasing the probe of %s: %v", key, err)
			}
			return
		case !errors.Is(err, redislock.ErrBusy):
			r.errorf("probing %s: %v", key, err)
			return
		case time.Now().After(deadline):
			r.errorf("%s stays taken: %v", key, r.lane.direct[0].HGetAll(ctx, key))
			return
		case r.ctx.Err() != nil || r.lane.warned.has(key):
			// It ends with its lease, and is renewed no more: nobody holds it.
			for _, locker := range r.lane.lockers {
				if n := locker.Held(); n != 0 {
					r.errorf("%d leases are renewed that nobody holds", n)
				}
			}
			return
		}
		wait(ctx, time.Millisecond)
	}
}

// note keeps what happened for who reads of a failure.
func (r *round) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, time.Now().Format("05.000000 ")+fmt.Sprintf(format, args...))
}

func (r *round) errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t.Errorf("%s (%s): %s\n%s", r.name, r.script, fmt.Sprintf(format, args...), strings.Join(r.trace, "\n"))
}
