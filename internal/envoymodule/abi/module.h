// Shared by the events in module.c and by Go.

#ifndef ORDERGATE_MODULE_H
#define ORDERGATE_MODULE_H

#ifdef ORDERGATE_ABI  // Envoy's own header, for a test
#include ORDERGATE_ABI
#else
#include "envoy.h"
#endif

// An answer in place of the backend. It is never freed, see Native in reply.go, unless it is
// for one request: then it is one block with all that it points to, which act frees.
typedef struct ordergate_reply {
  bool temporary;
  uint32_t status;
  envoy_dynamic_module_type_module_http_header* headers;
  size_t headers_size;
  envoy_dynamic_module_type_module_buffer body;
  envoy_dynamic_module_type_module_buffer details;
} ordergate_reply;

// The next step: envoymodule.Step, and the handle of the stream in Go, 0 for none.
typedef struct ordergate_step {
  uint8_t action;            // envoymodule.Action
  uint8_t verdict;           // gate.Verdict; 0: none
  uint32_t watch_not_found;  // for envoymodule.Adapter.NotFound; 0: do not call it
  const ordergate_reply* reply;
  uintptr_t stream;
} ordergate_step;

// envoymodule.Action.
enum {
  ordergate_nothing,
  ordergate_pass_request,
  ordergate_pass_response,
  ordergate_read,
  ordergate_wait,
  ordergate_refuse,
};

// envoymodule.Event.
enum {
  ordergate_request_body,
  ordergate_request_trailers,
  ordergate_response_headers,
  ordergate_response_body,
  ordergate_response_trailers,
  ordergate_woken,
  ordergate_complete,
};

// The name of the verdict header, and the verdicts by number. They are set before the first
// request.
#define ORDERGATE_VERDICTS 24
extern envoy_dynamic_module_type_module_buffer ordergate_verdict_header;
extern envoy_dynamic_module_type_module_buffer ordergate_verdicts[ORDERGATE_VERDICTS];

// Whether Envoy logs at debug level, as of the last request. Asking Envoy from Go would
// take half as long as a decision.
extern uint32_t ordergate_debug;

#endif
