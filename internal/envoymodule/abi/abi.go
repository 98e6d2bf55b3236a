// Package abi connects the filter of internal/envoymodule to Envoy's ABI for dynamic
// modules. A shared library that imports it is a module. [Register] names its filter.
//
// module.c handles Envoy's events. It calls Go only where ordergate decides, because a call
// from C costs as much as the whole decision. Envoy's own Go SDK makes six calls for a
// request that passes, which takes some 20 µs of CPU; this package takes a few. The SDK
// also lets C read Go's memory in a way that Go forbids.
//
// All of the package runs on Envoy's threads, with Envoy's memory. Each type says how long
// that memory is valid.
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
	"github.com/ordergate/ordergate/internal/runbook"
)

// The numbers in module.h must equal those of envoymodule, and so must the sizes. A
// difference overflows a constant.
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

// FilterConfig is one use of the filter in Envoy's configuration.
type FilterConfig struct {
	Adapter *envoymodule.Adapter
	Close   func() // called after all of its streams have ended
}

// Open creates a FilterConfig. The text is the filter's configuration, as a copy. If Open
// returns an error, Envoy refuses its configuration; the error is logged.
type Open func(text []byte) (FilterConfig, error)

// filter is what Register was given. It is set before Envoy calls anything.
var filter struct {
	name string
	open Open
}

// Register names the library's filter. Call it once, in an init.
func Register(name string, open Open) { filter.name, filter.open = name, open }

//export ordergateNew
func ordergateNew(name, config C.envoy_dynamic_module_type_envoy_buffer) (handle C.uintptr_t) {
	defer func() {
		if v := recover(); v != nil {
			logRefusal("a fault", runbook.Faults.Do("report it as a fault of ordergate, with ordergate bundle"), "fault", v, "stack", string(debug.Stack()))
		}
	}()
	if got := C.GoStringN(name.ptr, C.int(name.length)); got != filter.name {
		logRefusal("there is no such filter in this module", runbook.ModuleSetup.Do("correct filter_name in Envoy's configuration"),
			"filter_name", got, "want", filter.name)
		return 0
	}
	mute.Store(false)
	p, err := filter.open(C.GoBytes(unsafe.Pointer(config.ptr), C.int(config.length)))
	if err != nil {
		logRefusal("the configuration cannot be used", runbook.ConfigRefused.Do("correct what error names: ordergate check lists all violations"),
			"error", err)
		return 0
	}
	return configs.add(&p)
}

func logRefusal(why string, todo slog.Attr, args ...any) {
	envoymodule.NewLogger(Log{}).Error(why, append(args, todo)...)
}

//export ordergateEnd
func ordergateEnd(config C.uintptr_t) {
	defer configs.forget(config)
	defer func() {
		if v := recover(); v != nil {
			envoymodule.NewLogger(Log{}).Error("a fault in ordergate", "at", "the end", "fault", v,
				runbook.Faults.Do("report it as a fault of ordergate, with ordergate bundle"))
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
func ordergateNotFound(config C.uintptr_t, stream unsafe.Pointer, watched C.uint32_t) {
	configs.at(config).Adapter.NotFound(envoy{stream}, uint32(watched))
}

//export ordergateEvent
func ordergateEvent(stream C.uintptr_t, event C.uint8_t, end C.bool, into *C.ordergate_step) {
	h := cgo.Handle(stream)
	s := h.Value().(*envoymodule.Stream)
	writeStep(into, s.On(envoymodule.Event(event), bool(end)))
	keepStream(s, h, into)
}

// keepStream keeps a stream until it is done.
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
	into.action, into.verdict, into.watch_not_found = C.uint8_t(step.Do), C.uint8_t(step.Verdict), C.uint32_t(step.WatchNotFound)
	switch {
	case step.Reply == nil:
	case step.Reply.Temporary:
		into.reply = temporary(step.Reply)
	default:
		into.reply = (*C.ordergate_reply)(step.Reply.Native)
	}
}

// Log is Envoy's log. It needs no stream and no configuration.
type Log struct{}

// mute is set while Envoy may have ended, and with it the log.
var mute atomic.Bool

// Mute ends the log, until Envoy opens a filter again.
func Mute() { mute.Store(true) }

// Enabled implements envoymodule.Output.
func (Log) Enabled(l slog.Level) bool {
	if mute.Load() {
		return false
	}
	if l < slog.LevelInfo { // called for every refusal
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

// buffer passes a string to C for the duration of one call.
func buffer(s string) C.envoy_dynamic_module_type_module_buffer {
	return C.envoy_dynamic_module_type_module_buffer{
		ptr: (*C.char)(unsafe.Pointer(unsafe.StringData(s))), length: C.size_t(len(s)),
	}
}
