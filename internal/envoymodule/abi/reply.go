package abi

/*
#include "module.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ordergate/ordergate/internal/envoymodule"
	"github.com/ordergate/ordergate/internal/gate"
)

// replies are the replies in C's memory, by content. They are never freed, so that a worker
// can send one while the rules change. There are only as many as operators configure.
var replies = struct {
	mu  sync.Mutex
	all map[string]*C.ordergate_reply // guarded by mu
}{all: make(map[string]*C.ordergate_reply)}

// Native copies a reply to C's memory, from where module.c sends it. It implements Native
// of envoymodule.Options.
func Native(r *envoymodule.Reply) unsafe.Pointer {
	replies.mu.Lock()
	defer replies.mu.Unlock()
	key := fmt.Sprintf("%d %q %q %q", r.Status, r.Headers, r.Body, r.Details)
	c := replies.all[key]
	if c == nil {
		c = (*C.ordergate_reply)(C.malloc(C.size_t(sizeOf(r))))
		write(r, unsafe.Pointer(c), permanent)
		replies.all[key] = c
	}
	return unsafe.Pointer(c)
}

// sizeOf returns the size of a reply in C's memory with its headers, but without its texts.
func sizeOf(r *envoymodule.Reply) int {
	return C.sizeof_ordergate_reply + len(r.Headers)*C.sizeof_envoy_dynamic_module_type_module_http_header
}

// write writes a reply to the beginning of a block of C's memory. Place copies its texts.
func write(r *envoymodule.Reply, block unsafe.Pointer, place func(text string) C.envoy_dynamic_module_type_module_buffer) {
	c := (*C.ordergate_reply)(block)
	*c = C.ordergate_reply{temporary: C.bool(r.Temporary), status: C.uint32_t(r.Status), body: place(r.Body), details: place(r.Details)}
	c.headers_size = C.size_t(len(r.Headers))
	c.headers = (*C.envoy_dynamic_module_type_module_http_header)(unsafe.Add(block, C.sizeof_ordergate_reply))
	headers := unsafe.Slice(c.headers, len(r.Headers))
	for i, h := range r.Headers {
		name, value := place(h.Name), place(h.Value)
		headers[i] = C.envoy_dynamic_module_type_module_http_header{
			key_ptr: name.ptr, key_length: name.length, value_ptr: value.ptr, value_length: value.length,
		}
	}
}

// temporary copies a reply to one block of C's memory, which act frees in module.c.
func temporary(r *envoymodule.Reply) *C.ordergate_reply {
	texts := sizeOf(r)
	size := texts + len(r.Body) + len(r.Details)
	for _, h := range r.Headers {
		size += len(h.Name) + len(h.Value)
	}
	block := C.malloc(C.size_t(size))
	memory := unsafe.Slice((*byte)(block), size)
	write(r, block, func(text string) C.envoy_dynamic_module_type_module_buffer {
		if text == "" {
			return C.envoy_dynamic_module_type_module_buffer{}
		}
		at := texts
		texts += copy(memory[at:], text)
		return C.envoy_dynamic_module_type_module_buffer{ptr: (*C.char)(unsafe.Pointer(&memory[at])), length: C.size_t(len(text))}
	})
	return (*C.ordergate_reply)(block)
}

// permanent copies a text to C's memory.
func permanent(s string) C.envoy_dynamic_module_type_module_buffer {
	if s == "" {
		return C.envoy_dynamic_module_type_module_buffer{}
	}
	return C.envoy_dynamic_module_type_module_buffer{ptr: C.CString(s), length: C.size_t(len(s))}
}

func init() {
	C.ordergate_verdict_header = permanent(gate.HeaderVerdict)
	verdicts := C.ordergate_verdicts[:]
	for v := range gate.Verdicts {
		verdicts[v] = permanent(gate.Verdict(v).String())
	}
}

// There must be room for every verdict.
var _ [C.ORDERGATE_VERDICTS - gate.Verdicts]struct{}
