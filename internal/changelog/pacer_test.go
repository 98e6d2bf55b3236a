package changelog

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestReadsAreBounded keeps many callers of Wait waiting. It checks only the upper bound: the
// number of reads depends on the machine.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	onEveryRedis(t, func(t *testing.T, s server) {
		const most = 100
		opts := idle
		opts.Pause = time.Second / most
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
		if limit := most*1.1*took.Seconds() + readBurst + 2; float64(reads) > limit {
			t.Errorf("%d reads in %v, want %.0f at most", reads, took, limit)
		}
		if reads < 2 {
			t.Errorf("%d reads", reads)
		}
	})
}
