package abi

/*
#cgo linux LDFLAGS: -Wl,--wrap=pthread_create
*/
import "C"

import (
	"runtime"
	"sync"
)

// threads are the worker threads of Envoy that have called Go.
var threads struct {
	mu    sync.Mutex
	own   int // GOMAXPROCS without them
	count int
}

// ordergateThread is called once by each worker: it brings its P with it, see threads.c.
//
//export ordergateThread
func ordergateThread() {
	threads.mu.Lock()
	defer threads.mu.Unlock()
	if threads.own == 0 {
		threads.own = runtime.GOMAXPROCS(0)
	}
	threads.count++
	runtime.GOMAXPROCS(threads.own + threads.count)
}
