package redislock

import "sync"

// taskGroup is a group of background tasks. Unlike with a bare sync.WaitGroup,
// some may begin while close waits for the others.
type taskGroup struct {
	mu     sync.Mutex // orders Add before Wait
	wg     sync.WaitGroup
	closed bool
}

// Go runs f in the background. After close it returns when f has: close promises
// that nothing is left to do.
func (e *taskGroup) Go(f func()) {
	if !e.tryGo(f) {
		f()
	}
}

// tryGo is Go before close. After it, it does nothing, and returns false.
func (e *taskGroup) tryGo(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.wg.Go(f)
	}
	return !e.closed
}

// close waits for what has begun.
func (e *taskGroup) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.wg.Wait()
}
