package abi

/*
#include "module.h"

// None of these calls Go or keeps a pointer.
#cgo nocallback envoy_dynamic_module_callback_http_get_headers_size
#cgo nocallback envoy_dynamic_module_callback_http_get_headers
#cgo noescape envoy_dynamic_module_callback_http_get_headers
#cgo nocallback envoy_dynamic_module_callback_http_set_header
#cgo noescape envoy_dynamic_module_callback_http_set_header
#cgo nocallback envoy_dynamic_module_callback_http_get_body_chunks_size
#cgo nocallback envoy_dynamic_module_callback_http_get_body_chunks
#cgo noescape envoy_dynamic_module_callback_http_get_body_chunks
#cgo nocallback envoy_dynamic_module_callback_http_filter_get_attribute_string
#cgo noescape envoy_dynamic_module_callback_http_filter_get_attribute_string
#cgo nocallback envoy_dynamic_module_callback_http_filter_get_attribute_int
#cgo noescape envoy_dynamic_module_callback_http_filter_get_attribute_int
#cgo nocallback envoy_dynamic_module_callback_http_filter_scheduler_new
#cgo nocallback ordergate_describe
#cgo noescape ordergate_describe
#cgo nocallback ordergate_wake
#cgo nocallback ordergate_free

// A number in place of a pointer, so that Go does not check whether the pointer is its own.
static void ordergate_wake(uintptr_t scheduler) {
  envoy_dynamic_module_callback_http_filter_scheduler_commit((void*)scheduler, 0);
}

static void ordergate_free(uintptr_t scheduler) {
  envoy_dynamic_module_callback_http_filter_scheduler_delete((void*)scheduler);
}

typedef envoy_dynamic_module_type_module_buffer own;

// One call for all fields of gate.Metadata. Texts that are empty, and a wait of 0, are left out.
static void ordergate_describe(void* stream, own ns, own rule, own action, own verdict, own reason,
                               own order, own fence, own outcome, double wait_ms) {
  const own keys[] = {{"rule", 4}, {"action", 6}, {"verdict", 7}, {"reason", 6}, {"order", 5},
                      {"fence", 5}, {"outcome", 7}, {"wait_ms", 7}};
  const own values[] = {rule, action, verdict, reason, order, fence, outcome};
  for (int i = 0; i < 7; i++)
    if (values[i].length > 0)
      envoy_dynamic_module_callback_http_set_dynamic_metadata_string(stream, ns, keys[i], values[i]);
  if (wait_ms > 0)
    envoy_dynamic_module_callback_http_set_dynamic_metadata_number(stream, ns, keys[7], wait_ms);
}
*/
import "C"

import (
	"unsafe"

	"github.com/ordergate/ordergate/internal/envoymodule"
	"github.com/ordergate/ordergate/internal/gate"
)

// envoy implements envoymodule.Envoy. It is Envoy's pointer to a stream, and valid as long
// as the stream.
type envoy struct{ stream unsafe.Pointer }

var headersOf = [...]C.envoy_dynamic_module_type_http_header_type{
	envoymodule.Request:  C.envoy_dynamic_module_type_http_header_type_RequestHeader,
	envoymodule.Response: C.envoy_dynamic_module_type_http_header_type_ResponseHeader,

	envoymodule.ResponseTrailer: C.envoy_dynamic_module_type_http_header_type_ResponseTrailer,
}

var bodyOf = [...]C.envoy_dynamic_module_type_http_body_type{
	envoymodule.Request:  C.envoy_dynamic_module_type_http_body_type_ReceivedRequestBody,
	envoymodule.Response: C.envoy_dynamic_module_type_http_body_type_ReceivedResponseBody,
}

func (e envoy) Headers(of envoymodule.Message) envoymodule.Headers {
	n := C.envoy_dynamic_module_callback_http_get_headers_size(e.stream, headersOf[of])
	if n == 0 {
		return nil
	}
	h := make(envoymodule.Headers, n)
	// Go's memory, which C fills with pointers into Envoy's memory.
	C.envoy_dynamic_module_callback_http_get_headers(e.stream, headersOf[of],
		(*C.envoy_dynamic_module_type_envoy_http_header)(unsafe.Pointer(&h[0])))
	return h
}

func (e envoy) Set(of envoymodule.Message, name, value string) {
	C.envoy_dynamic_module_callback_http_set_header(e.stream, headersOf[of], buffer(name), buffer(value))
}

func (e envoy) Describe(m *gate.Metadata) {
	C.ordergate_describe(e.stream, buffer(gate.MetadataNamespace), buffer(m.Rule), buffer(m.Action), buffer(m.Verdict), buffer(m.Reason),
		buffer(m.Order), buffer(m.Fence), buffer(m.Outcome), C.double(m.WaitMS()))
}

func (e envoy) Remove(of envoymodule.Message, name string) {
	// Setting an empty value removes the header.
	C.envoy_dynamic_module_callback_http_set_header(e.stream, headersOf[of], buffer(name), C.envoy_dynamic_module_type_module_buffer{})
}

func (e envoy) Chunks(of envoymodule.Message) []envoymodule.Text {
	n := C.envoy_dynamic_module_callback_http_get_body_chunks_size(e.stream, bodyOf[of])
	if n == 0 {
		return nil
	}
	chunks := make([]envoymodule.Text, n)
	C.envoy_dynamic_module_callback_http_get_body_chunks(e.stream, bodyOf[of],
		(*C.envoy_dynamic_module_type_envoy_buffer)(unsafe.Pointer(&chunks[0])))
	return chunks
}

func (e envoy) Details() string {
	return e.attribute(C.envoy_dynamic_module_type_attribute_id_ResponseCodeDetails)
}

func (e envoy) Client() string {
	return e.attribute(C.envoy_dynamic_module_type_attribute_id_SourceAddress)
}

func (e envoy) attribute(id C.envoy_dynamic_module_type_attribute_id) string {
	text := new(C.envoy_dynamic_module_type_envoy_buffer)
	ok := C.envoy_dynamic_module_callback_http_filter_get_attribute_string(e.stream, id, text)
	if !bool(ok) {
		return ""
	}
	return C.GoStringN(text.ptr, C.int(text.length))
}

func (e envoy) Attempts() (int, bool) {
	var n C.uint64_t
	ok := C.envoy_dynamic_module_callback_http_filter_get_attribute_int(e.stream,
		C.envoy_dynamic_module_type_attribute_id_UpstreamRequestAttemptCount, &n)
	return int(n), bool(ok)
}

func (e envoy) Waker() envoymodule.Waker {
	return waker(uintptr(C.envoy_dynamic_module_callback_http_filter_scheduler_new(e.stream)))
}

// waker is Envoy's scheduler for one stream.
type waker uintptr

func (w waker) Wake() { C.ordergate_wake(C.uintptr_t(w)) }

func (w waker) Free() { C.ordergate_free(C.uintptr_t(w)) }
