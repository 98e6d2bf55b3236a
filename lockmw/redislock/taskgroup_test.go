package redislock

import (
	"sync"
	"testing"
)

// Wait waits for what has begun, where nothing begins meanwhile.
func (e *taskGroup) Wait() { e.wg.Wait() }

func TestErrandsBeginWhileClosing(t *testing.T) {
	t.Parallel()
	for range 1000 {
		var e taskGroup
		var mu sync.Mutex
		done := 0
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				e.Go(func() {
					mu.Lock()
					done++
					mu.Unlock()
				})
			})
		}
		e.close()
		wg.Wait()
		e.Wait()
		if done != 4 {
			t.Fatalf("%d of 4 were done", done)
		}
	}
}
