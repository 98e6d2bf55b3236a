//go:build asan

package abi

// See sanitize.c.

/*
#cgo linux LDFLAGS: -Wl,--wrap=malloc
#cgo linux LDFLAGS: -Wl,--wrap=calloc
#cgo linux LDFLAGS: -Wl,--wrap=free
#cgo linux LDFLAGS: -Wl,--wrap=ordergateRequest
#cgo linux LDFLAGS: -Wl,--wrap=ordergateEvent
#cgo linux LDFLAGS: -Wl,--wrap=ordergateNotFound
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_get_header
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_get_headers
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_set_header
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_set_dynamic_metadata_string
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_set_dynamic_metadata_number
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_get_body_chunks
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_filter_get_attribute_string
#cgo linux LDFLAGS: -Wl,--wrap=envoy_dynamic_module_callback_http_send_response
*/
import "C"
