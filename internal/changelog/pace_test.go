package changelog

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestReadsAreBounded has many lookups wait all the time. Only the most that there may be
// is looked at: how many there are is a matter of the machine.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		const most = 100
		opts := idle
		opts.MaxReads = most
		b := runInstance(t, s, opts)
		b.mustWait(t)
		before, began := b.State().Reads, time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := b.Wait(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		reads, took := b.State().Reads-before, time.Since(began)
		if limit := most*1.1*took.Seconds() + burst + 1; float64(reads) > limit {
			t.Errorf("%d reads in %v, want %.0f at most", reads, took, limit)
		}
		if reads < 2 {
			t.Errorf("%d reads", reads)
		}
	})
}

// TestPace lets a burst go, then makes a few wait for their turn, and a crowd not.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPace(4000)
	p.each = time.Hour
	for range burst + 1 {
		p.wait(t.Context(), nil)
	}
	for range 3 { // whatever a crowd has had
		crowded := make(chan struct{}, 1)
		signal(crowded)
		p.wait(t.Context(), crowded)
		if len(crowded) > 0 {
			t.Error("it did not wait")
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	p.wait(ended, nil)
	if ahead := p.next.Sub(began); ahead > (burst+1)*p.each+time.Minute {
		t.Errorf("the next ones have to wait for %v", ahead-burst*p.each)
	}
}

// TestCrowd has many wait for reads that few would have to be patient for.
func TestCrowd(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		opts := idle
		opts.Limit, opts.MaxReads = 20*time.Second, 1_000_000
		b := newInstance(t, s, opts)
		b.pace.each, b.pace.next = time.Hour, time.Now().Add(burst*time.Hour)
		b.start(t)
		ctx, cancel := context.WithCancel(t.Context())
		var waits atomic.Int32
		var wg sync.WaitGroup
		for range 2 * crowd {
			wg.Go(func() {
				for ctx.Err() == nil {
					if err := b.Wait(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
					if waits.Add(1) == 20*crowd {
						cancel()
					}
				}
			})
		}
		wg.Wait()
		cancel()
	})
}
