package redislock

import "sync"

// errands are what goes on in the background. Unlike with a bare sync.WaitGroup,
// some may begin while close waits for the others.
type errands struct {
	mu     sync.Mutex // orders Add before Wait
	wg     sync.WaitGroup
	closed bool
}

// Go runs f in the background. After close it returns when f has: whoever closed
// counts on nothing being left to do.
func (e *errands) Go(f func()) {
	if !e.track(f) {
		f()
	}
}

// start runs f in the background, in any case.
func (e *errands) start(f func()) {
	if !e.track(f) {
		go f()
	}
}

// track runs f in the background, unless it is too late for close to wait for it.
func (e *errands) track(f func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.wg.Go(f)
	}
	return !e.closed
}

// begin has close wait until what it returns is called, unless close is over.
func (e *errands) begin() (done func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return func() {}
	}
	e.wg.Add(1)
	return e.wg.Done
}

// close waits for what has begun.
func (e *errands) close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.wg.Wait()
}
