package abi

/*
#include "module.h"
*/
import "C"

import (
	"unsafe"

	"github.com/ordergate/ordergate/internal/envoymodule"
)

// envoy implements envoymodule.Envoy. It is a pointer of Envoy's to one of its streams,
// valid as long as that is.
type envoy struct{ stream unsafe.Pointer }

var headersOf = [...]C.envoy_dynamic_module_type_http_header_type{
	envoymodule.Request:  C.envoy_dynamic_module_type_http_header_type_RequestHeader,
	envoymodule.Response: C.envoy_dynamic_module_type_http_header_type_ResponseHeader,
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
	// Go's memory, which C fills with pointers into Envoy's.
	C.envoy_dynamic_module_callback_http_get_headers(e.stream, headersOf[of],
		(*C.envoy_dynamic_module_type_envoy_http_header)(unsafe.Pointer(&h[0])))
	return h
}

func (e envoy) Set(of envoymodule.Message, name, value string) {
	C.envoy_dynamic_module_callback_http_set_header(e.stream, headersOf[of], buffer(name), buffer(value))
}

func (e envoy) Remove(of envoymodule.Message, name string) {
	// To set nothing is to remove.
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
	var text C.envoy_dynamic_module_type_envoy_buffer
	if !C.envoy_dynamic_module_callback_http_filter_get_attribute_string(e.stream,
		C.envoy_dynamic_module_type_attribute_id_ResponseCodeDetails, &text) {
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
	return waker{C.envoy_dynamic_module_callback_http_filter_scheduler_new(e.stream)}
}

// waker is a scheduler of Envoy's for one stream.
type waker struct{ scheduler unsafe.Pointer }

func (w waker) Wake() {
	C.envoy_dynamic_module_callback_http_filter_scheduler_commit(w.scheduler, 0)
}

func (w waker) Free() { C.envoy_dynamic_module_callback_http_filter_scheduler_delete(w.scheduler) }
