// What the events in module.c and Go have in common.

#ifndef ORDERGATE_MODULE_H
#define ORDERGATE_MODULE_H

#ifdef ORDERGATE_ABI  // Envoy's own, for a test
#include ORDERGATE_ABI
#else
#include "envoy.h"
#endif

// An answer in the backend's stead. It is never freed, see intern in reply.go.
typedef struct ordergate_reply {
  uint32_t status;
  envoy_dynamic_module_type_module_http_header* headers;
  size_t headers_size;
  envoy_dynamic_module_type_module_buffer body;
  envoy_dynamic_module_type_module_buffer details;
} ordergate_reply;

// What to do next: envoymodule.Step, and the handle of the Go part that the stream has
// then, 0 for none.
typedef struct ordergate_step {
  uint8_t action;   // envoymodule.Action
  uint8_t verdict;  // gate.Verdict; 0: none
  bool watch_not_found;     // see envoymodule.Adapter.NotFound
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

// The name of the header that tells a verdict, and the verdicts by number. They are
// filled in before the first request.
#define ORDERGATE_VERDICTS 16
extern envoy_dynamic_module_type_module_buffer ordergate_verdict_header;
extern envoy_dynamic_module_type_module_buffer ordergate_verdicts[ORDERGATE_VERDICTS];

// Whether Envoy's log has lines at debug, as of the last request. To ask Envoy from Go takes
// as long as half of a decision.
extern uint32_t ordergate_debug;

#endif
