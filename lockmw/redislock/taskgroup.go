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
	if !e.track(f) {
		f()
	}
}

// start runs f in the background, in any case.
func (e *taskGroup) start(f func()) {
	if !e.track(f) {
		go f()
	}
}

// track runs f in the background, unless it is too late for close to wait for it.
func (e *taskGroup) track(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.wg.Go(f)
	}
	return !e.closed
}

// begin has close wait until what it returns is called, unless close is over.
func (e *taskGroup) begin() (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return func() {}
	}
	e.wg.Add(1)
	return e.wg.Done
}

// close waits for what has begun.
func (e *taskGroup) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.wg.Wait()
}
