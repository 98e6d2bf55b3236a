// Package abi ties the filter of internal/envoymodule to Envoy's ABI for dynamic modules:
// importing it makes the shared library one, and [Register] says what filter it has.
//
// The events are in module.c, which enters Go only where something is to be decided: an
// entry from C costs as much as the whole decision. Envoy's own SDK for Go enters six
// times for a request that passes, and costs it some 20 µs of CPU where this costs a few;
// it also has C read Go's memory in a way that Go forbids.
//
// All of it runs on Envoy's threads, and with Envoy's memory: see the types for what is
// valid when.
package abi

/*
#cgo linux LDFLAGS: -Wl,--unresolved-symbols=ignore-all
#include "module.h"
*/
import "C"

import (
	"log/slog"
	"runtime/cgo"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"github.com/ordergate/ordergate/internal/envoymodule"
)

// The numbers in module.h are those of envoymodule, and so are the sizes: a difference
// overflows a constant.
const (
	_ = -uint(C.ordergate_nothing - envoymodule.Nothing)
	_ = -uint(C.ordergate_pass_request - envoymodule.PassRequest)
	_ = -uint(C.ordergate_pass_response - envoymodule.PassResponse)
	_ = -uint(C.ordergate_read - envoymodule.Read)
	_ = -uint(C.ordergate_wait - envoymodule.Wait)
	_ = -uint(C.ordergate_refuse - envoymodule.Refuse)

	_ = -uint(C.ordergate_request_body - envoymodule.RequestBody)
	_ = -uint(C.ordergate_request_trailers - envoymodule.RequestTrailers)
	_ = -uint(C.ordergate_response_headers - envoymodule.ResponseHeaders)
	_ = -uint(C.ordergate_response_body - envoymodule.ResponseBody)
	_ = -uint(C.ordergate_response_trailers - envoymodule.ResponseTrailers)
	_ = -uint(C.ordergate_woken - envoymodule.Woken)
	_ = -uint(C.ordergate_complete - envoymodule.Complete)

	_ = -uint(unsafe.Sizeof(envoymodule.Header{}) - C.sizeof_envoy_dynamic_module_type_envoy_http_header)
	_ = -uint(unsafe.Sizeof(envoymodule.Text{}) - C.sizeof_envoy_dynamic_module_type_envoy_buffer)
)

// FilterConfig is one place in Envoy's configuration where the filter stands.
type FilterConfig struct {
	Adapter *envoymodule.Adapter
	Close   func() // all its streams are over
}

// Open makes a place. The text is the filter's configuration, in memory of its own. What
// it returns as an error is Envoy's reason to refuse its configuration, and is logged.
type Open func(text []byte) (FilterConfig, error)

// filter is what Register says. It is written before Envoy calls anything.
var filter struct {
	name string
	open Open
}

// Register says which filter the library has. It is called once, in an init.
func Register(name string, open Open) { filter.name, filter.open = name, open }

//export ordergateNew
func ordergateNew(name, config C.envoy_dynamic_module_type_envoy_buffer) (handle C.uintptr_t) {
	defer func() {
		if v := recover(); v != nil {
			logRefusal("a fault", "fault", v, "stack", string(debug.Stack()))
		}
	}()
	if got := C.GoStringN(name.ptr, C.int(name.length)); got != filter.name {
		logRefusal("there is no such filter in this module", "filter_name", got, "want", filter.name)
		return 0
	}
	p, err := filter.open(C.GoBytes(unsafe.Pointer(config.ptr), C.int(config.length)))
	if err != nil {
		logRefusal("the configuration cannot be used", "error", err)
		return 0
	}
	return configs.add(&p)
}

func logRefusal(why string, args ...any) { envoymodule.NewLogger(Log{}).Error(why, args...) }

//export ordergateEnd
func ordergateEnd(config C.uintptr_t) {
	defer configs.forget(config)
	defer func() {
		if v := recover(); v != nil {
			envoymodule.NewLogger(Log{}).Error("a fault in ordergate", "at", "the end", "fault", v)
		}
	}()
	configs.at(config).Close()
}

//export ordergateRequest
func ordergateRequest(config C.uintptr_t, stream unsafe.Pointer, headers *C.envoy_dynamic_module_type_envoy_http_header, size C.size_t, end C.bool, into *C.ordergate_step) {
	h := unsafe.Slice((*envoymodule.Header)(unsafe.Pointer(headers)), int(size))
	step, s := configs.at(config).Adapter.Request(envoy{stream}, h, bool(end))
	writeStep(into, step)
	if s != nil {
		keepStream(s, 0, into)
	}
}

//export ordergateNotFound
func ordergateNotFound(config C.uintptr_t, stream unsafe.Pointer) {
	configs.at(config).Adapter.NotFound(envoy{stream})
}

//export ordergateEvent
func ordergateEvent(stream C.uintptr_t, event C.uint8_t, end C.bool, into *C.ordergate_step) {
	h := cgo.Handle(stream)
	s := h.Value().(*envoymodule.Stream)
	writeStep(into, s.On(envoymodule.Event(event), bool(end)))
	keepStream(s, h, into)
}

// keepStream keeps a stream as long as it is not done with.
func keepStream(s *envoymodule.Stream, h cgo.Handle, into *C.ordergate_step) {
	switch done := s.Done(); {
	case !done && h == 0:
		h = cgo.NewHandle(s)
	case done:
		s.On(envoymodule.Complete, true)
		if h != 0 {
			h.Delete()
			h = 0
		}
	}
	into.stream = C.uintptr_t(h)
}

func writeStep(into *C.ordergate_step, step envoymodule.Step) {
	into.action, into.verdict, into.watch_not_found = C.uint8_t(step.Do), C.uint8_t(step.Verdict), C.bool(step.WatchNotFound)
	if step.Reply != nil {
		into.reply = (*C.ordergate_reply)(step.Reply.Native)
	}
}

// Log is Envoy's log. It needs no stream and no configuration.
type Log struct{}

// Enabled implements envoymodule.Output.
func (Log) Enabled(l slog.Level) bool {
	if l < slog.LevelInfo { // asked for every refusal
		return atomic.LoadUint32((*uint32)(unsafe.Pointer(&C.ordergate_debug))) != 0
	}
	return bool(C.envoy_dynamic_module_callback_log_enabled(level(l)))
}

// Log implements envoymodule.Output.
func (Log) Log(l slog.Level, line string) {
	C.envoy_dynamic_module_callback_log(level(l), buffer(line))
}

func level(l slog.Level) C.envoy_dynamic_module_type_log_level {
	switch {
	case l >= slog.LevelError:
		return C.envoy_dynamic_module_type_log_level_Error
	case l >= slog.LevelWarn:
		return C.envoy_dynamic_module_type_log_level_Warn
	case l >= slog.LevelInfo:
		return C.envoy_dynamic_module_type_log_level_Info
	}
	return C.envoy_dynamic_module_type_log_level_Debug
}

// buffer shows a string to C, for the length of one call.
func buffer(s string) C.envoy_dynamic_module_type_module_buffer {
	return C.envoy_dynamic_module_type_module_buffer{
		ptr: (*C.char)(unsafe.Pointer(unsafe.StringData(s))), length: C.size_t(len(s)),
	}
}
