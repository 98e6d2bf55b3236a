package redislock

import "sync"

// errands are what a Locker does for callers that have gone. Unlike a bare
// sync.WaitGroup they may begin while Close waits for them.
type errands struct {
	mu     sync.Mutex // orders Add before Wait
	wg     sync.WaitGroup
	closed bool
}

// Go runs f in the background. After close it returns when f has.
func (e *errands) Go(f func()) {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		f()
		return
	}
	e.wg.Add(1)
	e.mu.Unlock()
	go func() {
		defer e.wg.Done()
		f()
	}()
}

// close waits for what has begun.
func (e *errands) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.wg.Wait()
}
