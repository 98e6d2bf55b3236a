// A module that refuses every request without looking at it: what a filter in Envoy's own
// process costs at least. The events are those of internal/envoymodule/abi/module.c; these
// are the functions that ordergate has in Go.

#include "module.h"

#define TEXT(s) {s, sizeof s - 1}

static envoy_dynamic_module_type_module_http_header headers[] = {
    {"x-ordergate-verdict", 19, "absent", 6},
    {"content-type", 12, "application/json", 16},
};

static const ordergate_reply reply = {
    .status = 404,
    .headers = headers,
    .headers_size = sizeof headers / sizeof *headers,
    .body = TEXT("{\"error\":\"order not found\"}"),
    .details = TEXT("noop"),
};

uintptr_t ordergateNew(envoy_dynamic_module_type_envoy_buffer name,
                       envoy_dynamic_module_type_envoy_buffer config) {
  (void)name, (void)config;
  return 1;
}

void ordergateEnd(uintptr_t place) { (void)place; }

void ordergateRequest(uintptr_t place, void* envoy,
                      envoy_dynamic_module_type_envoy_http_header* lines, size_t size, bool end,
                      ordergate_step* step) {
  (void)place, (void)envoy, (void)lines, (void)size, (void)end;
  step->action = ordergate_refuse;
  step->reply = &reply;
}

void ordergateNotFound(uintptr_t place, void* envoy, uint32_t watched) { (void)place, (void)envoy, (void)watched; }

void ordergateEvent(uintptr_t stream, uint8_t event, bool end, ordergate_step* step) {
  (void)stream, (void)event, (void)end, (void)step;
}

void ordergate_entering(void) {}
