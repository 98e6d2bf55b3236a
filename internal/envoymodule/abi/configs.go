package abi

// #include <stdint.h>
import "C"

import (
	"slices"
	"sync"
	"sync/atomic"
)

// configs are the filter configurations in use. A handle is an index plus one. So a request
// finds its configuration without the hash table of [cgo.Handle].
var configs configList

type configList struct {
	mu  sync.Mutex                      // for writers
	all atomic.Pointer[[]*FilterConfig] // nil where a configuration was removed; read-only
}

// at returns the configuration of a handle that add returned.
func (l *configList) at(handle C.uintptr_t) *FilterConfig { return (*l.all.Load())[handle-1] }

func (l *configList) add(p *FilterConfig) C.uintptr_t {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*FilterConfig
	if now := l.all.Load(); now != nil {
		all = slices.Clone(*now)
	}
	at := slices.Index(all, nil)
	if at < 0 {
		at, all = len(all), append(all, nil)
	}
	all[at] = p
	l.all.Store(&all)
	return C.uintptr_t(at + 1)
}

func (l *configList) forget(handle C.uintptr_t) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.Clone(*l.all.Load())
	all[handle-1] = nil
	l.all.Store(&all)
}
