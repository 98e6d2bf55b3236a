package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/lockmw/redislock"
)

// TestHalfOpen has Redis hear nothing more of some leases while their connections
// stay open. The loss of each has to be told when it ends, as counted from before
// Redis was asked the last time, no later than the renewer's next look, although
// the renewals on their way hang for longer.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	const (
		leases = 8
		lease  = 2400 * time.Millisecond
		tick   = lease / 12
		// slack is for a busy machine. A hanging renewal is waited for during a
		// quarter of a lease: tick and slack are less.
		slack = lease / 8
	)
	_, w, l := wired(t, redislock.Options{Lease: lease})
	var mu sync.Mutex
	heard := make(map[string]time.Time) // when Redis last heard of a key
	key := func(i int) string { return fmt.Sprintf("lease-%d-", i) }
	w.set(func(p packet) fate {
		mu.Lock()
		defer mu.Unlock()
		for i := range leases {
			if p.script() && p.says(key(i)) {
				heard[key(i)] = time.Now()
			}
		}
		return fate{}
	})
	var told []chan time.Time
	var all []*redislock.Lease
	for i := range leases {
		wait(t.Context(), tick/leases) // not all at the same distance from the renewer's looks
		held, at := mustAcquire(t, l, key(i)), make(chan time.Time, 1)
		go func() {
			<-held.Lost()
			at <- time.Now()
		}()
		told, all = append(told, at), append(all, held)
	}
	w.set(func(p packet) fate { return fate{drop: p.ask} })
	for i := range told {
		late := (<-told[i]).Sub(heard[key(i)].Add(lease))
		t.Logf("lease %d: told %v after its end", i, late)
		// A question was asked a moment before Redis heard of it.
		if late < -slack || late > tick+slack {
			t.Errorf("lease %d: told %v after its end, not within %v", i, late, tick+slack)
		}
	}
	w.set(nil)
	w.cut() // or Close would wait for what hangs
	// Redis may have them still: they are renewed until they are given up.
	if n := l.Held(); n != leases {
		t.Errorf("%d of %d leases are renewed", n, leases)
	}
	for _, held := range all {
		_ = held.Release(context.Background()) // it is lost, or not
	}
	if n := l.Held(); n != 0 {
		t.Errorf("%d leases are renewed that were given up", n)
	}
}
