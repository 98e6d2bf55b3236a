package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// order is settled by looking whether it is, and settling it if not, with a pause
// in between in which others look too. That is wrong without a lock.
type order struct{ settled atomic.Int64 }

// settleTime is how long a settlement takes.
const settleTime = time.Millisecond

func (o *order) settle() {
	settled := o.settled.Load() > 0
	<-time.After(settleTime)
	if !settled {
		o.settled.Add(1)
	}
}

const (
	instances = 10 // each with a Redis client and a Locker of its own
	callers   = 50 // of each
)

// TestStorm has all callers of all instances settle the same order at once, one
// order after the other.
func TestStorm(t *testing.T) {
	t.Parallel()
	orders := 3
	if soak {
		orders = 100
	}
	addr := bedtest.New(t).Redis().Addr()
	var lockers []*redislock.Locker
	for range instances {
		lockers = append(lockers, newLocker(t, connect(t, addr), redislock.Options{
			Lease: time.Minute, Wait: redislock.Wait{UpTo: time.Minute}, MaxWaitersPerKey: callers,
		}))
	}
	start := time.Now()
	for i := range orders {
		var o order
		var inside atomic.Int64
		var wg sync.WaitGroup
		for _, l := range lockers {
			for range callers {
				wg.Go(func() {
					lease, err := l.Acquire(t.Context(), fmt.Sprintf("order:%d", i))
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two hold the lock")
					}
					o.settle()
					inside.Add(-1)
					if err := lease.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		if n := o.settled.Load(); n != 1 {
			t.Errorf("order %d was settled %d times", i, n)
		}
	}
	n := orders * instances * callers
	t.Logf("%d callers, %d orders, %.0f turns a second", n, orders, float64(n)/time.Since(start).Seconds())
}

// TestStormImpatient has callers of which most find the lock taken for as long as
// they will wait, as a flood of retries does. Those that are let in settle once.
func TestStormImpatient(t *testing.T) {
	addr := bedtest.New(t).Redis().Addr()
	var o order
	var granted, busy atomic.Int64
	var wg sync.WaitGroup
	for i := range instances {
		w := redislock.Wait{Tries: 3, Every: 10 * time.Millisecond}
		if i%2 == 0 {
			w = redislock.Wait{UpTo: 20 * time.Millisecond}
		}
		l := newLocker(t, connect(t, addr), redislock.Options{Lease: time.Minute, Wait: w, MaxWaitersPerKey: callers / 2})
		for range callers {
			wg.Go(func() {
				lease, err := l.Acquire(t.Context(), "order")
				switch {
				case errors.Is(err, redislock.ErrBusy):
					busy.Add(1)
					return
				case err != nil:
					t.Error(err)
					return
				}
				granted.Add(1)
				o.settle()
				if err := lease.Release(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if n := o.settled.Load(); n != 1 {
		t.Errorf("settled %d times", n)
	}
	if granted.Load() == 0 || busy.Load() == 0 {
		t.Errorf("%d were let in, %d turned away: some of each were expected", granted.Load(), busy.Load())
	}
}

// TestStormWithoutLock checks that the order tells when the lock is missing.
func TestStormWithoutLock(t *testing.T) {
	var o order
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(o.settle)
	}
	wg.Wait()
	if n := o.settled.Load(); n < 2 {
		t.Errorf("settled %d times without a lock: the order sees nothing", n)
	}
}
