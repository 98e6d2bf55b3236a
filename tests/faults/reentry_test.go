package faults

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestHoldOfReentry leaves a re-entry to a hold time that is shorter than what is
// left of the lease around it. That lease is still held and has to go on: it is
// renewed, and nobody else gets the lock. When it is released in the end, the hold
// of the re-entry is over, and the lock free.
func TestHoldOfReentry(t *testing.T) {
	const lease = time.Second
	for _, kind := range []redislock.Kind{redislock.Exclusive, redislock.Fair, redislock.Write, redislock.Semaphore} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			opts := redislock.Options{Kind: kind, Lease: lease, Hold: lease / 10}
			if kind == redislock.Semaphore {
				opts.Permits = 1
			}
			_, _, l := wired(t, opts)
			outer := mustAcquire(t, l, "k")
			inner, err := l.Acquire(t.Context(), "k", redislock.Reenter(outer.Owner()))
			if err != nil {
				t.Fatal(err)
			}
			if err := inner.Hold(t.Context(), "a test"); err != nil {
				t.Fatal(err)
			}
			held := time.Now()
			bedtest.Eventually(t, "a lease has passed", func() bool {
				select {
				case <-outer.Lost():
					t.Fatalf("the outer lease was lost %v after the inner one was held", time.Since(held))
				default:
				}
				if other, err := l.Acquire(t.Context(), "k"); err == nil {
					t.Fatalf("lease %d is held beside %d", other.Fence(), outer.Fence())
				}
				return time.Since(held) > lease*3/2
			})
			if err := outer.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if err := mustAcquire(t, l, "k").Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
