// The functions that Envoy calls for each event. They call Go only where ordergate decides:
// once for a request that needs only a verdict, and never for its later events.
//
// Sending a reply or continuing a stream can end the stream and free its state here before
// the call returns. So these calls come last.

#define _GNU_SOURCE  // RTLD_DEFAULT
#include "module.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

// Implemented in Go.
extern uintptr_t ordergateNew(envoy_dynamic_module_type_envoy_buffer name,
                              envoy_dynamic_module_type_envoy_buffer config);
extern void ordergateEnd(uintptr_t config);
extern void ordergateRequest(uintptr_t config, void* envoy,
                             envoy_dynamic_module_type_envoy_http_header* headers, size_t size,
                             bool end, ordergate_step* step);
extern void ordergateNotFound(uintptr_t config, void* envoy, uint32_t watched);
extern void ordergateEvent(uintptr_t stream, uint8_t event, bool end, ordergate_step* step);

extern void ordergate_entering(void);  // see threads.c

envoy_dynamic_module_type_module_buffer ordergate_verdict_header;
envoy_dynamic_module_type_module_buffer ordergate_verdicts[ORDERGATE_VERDICTS];

uint32_t ordergate_debug;  // read and written atomically

static void update_log_level(void) {
  uint32_t now = envoy_dynamic_module_callback_log_enabled(envoy_dynamic_module_type_log_level_Debug);
  if (__atomic_load_n(&ordergate_debug, __ATOMIC_RELAXED) != now)
    __atomic_store_n(&ordergate_debug, now, __ATOMIC_RELAXED);
}

typedef struct stream {
  uintptr_t config;  // in Go, as what Envoy keeps of its configuration
  uintptr_t go;  // 0: Go does not need this stream, or no longer
  bool refused;  // ordergate has answered it
  uint32_t watch_not_found;  // if not 0, call Go with it if the backend has no such order
} stream;

// Most requests have fewer headers.
#define MOST_HEADERS 64

// Envoy 1.38 has the same version of the ABI, other numbers of attributes, and not this function. There
// no outcome would ever be known, and each lock would be held.
static bool is_too_old(void) {
  return dlsym(RTLD_DEFAULT, "envoy_dynamic_module_callback_get_log_level") == NULL;
}

// refuse_configuration logs why, and returns what has Envoy refuse its configuration.
static void* refuse_configuration(const char* why) {
  envoy_dynamic_module_callback_log(envoy_dynamic_module_type_log_level_Error,
                                    (envoy_dynamic_module_type_module_buffer){why, strlen(why)});
  return NULL;
}

const char* envoy_dynamic_module_on_program_init(void) {
  if (!is_too_old()) return ENVOY_DYNAMIC_MODULES_ABI_VERSION;
  return refuse_configuration("this Envoy is too old for the module of ordergate: use Envoy 1.39 or newer, or ordergate beside Envoy");
}

const void* envoy_dynamic_module_on_http_filter_config_new(
    void* config, envoy_dynamic_module_type_envoy_buffer name,
    envoy_dynamic_module_type_envoy_buffer text) {
  (void)config;
  update_log_level();
  return (const void*)ordergateNew(name, text);  // NULL: Envoy refuses its configuration
}

void envoy_dynamic_module_on_http_filter_config_destroy(const void* config) {
  ordergateEnd((uintptr_t)config);
}

// The filter has no settings of a route.
const void* envoy_dynamic_module_on_http_filter_per_route_config_new(
    envoy_dynamic_module_type_envoy_buffer name, envoy_dynamic_module_type_envoy_buffer text) {
  (void)name, (void)text;
  return refuse_configuration("ordergate has no settings of a route; to leave it out use FilterConfig{disabled: true}");
}

void envoy_dynamic_module_on_http_filter_per_route_config_destroy(const void* config) {
  (void)config;
}

const void* envoy_dynamic_module_on_http_filter_new(const void* config, void* envoy) {
  (void)envoy;
  stream* s = malloc(sizeof *s);
  if (s != NULL) *s = (stream){.config = (uintptr_t)config};
  return s;
}

// act carries out a step, except for continuing the stream.
static void act(stream* s, void* envoy, const ordergate_step* step) {
  s->go = step->stream;
  s->watch_not_found = step->watch_not_found;
  switch (step->action) {
    case ordergate_pass_request:
      if (step->verdict != 0)
        envoy_dynamic_module_callback_http_set_header(
            envoy, envoy_dynamic_module_type_http_header_type_RequestHeader,
            ordergate_verdict_header, ordergate_verdicts[step->verdict]);
      break;
    case ordergate_refuse:
      s->refused = true;
      envoy_dynamic_module_callback_http_send_response(
          envoy, step->reply->status, step->reply->headers, step->reply->headers_size,
          step->reply->body, step->reply->details);
      if (step->reply->temporary) free((void*)step->reply);
      break;  // s may be gone
  }
}

// send_event reports an event to Go, and carries out the returned step.
static uint8_t send_event(stream* s, void* envoy, uint8_t event, bool end) {
  ordergate_step step = {.stream = s->go};
  ordergateEvent(s->go, event, end, &step);
  act(s, envoy, &step);
  return step.action;
}

envoy_dynamic_module_type_on_http_filter_request_headers_status
envoy_dynamic_module_on_http_filter_request_headers(void* envoy, const void* filter, bool end) {
  stream* s = (stream*)filter;
  envoy_dynamic_module_type_envoy_http_header few[MOST_HEADERS], *headers = few;
  size_t size = envoy_dynamic_module_callback_http_get_headers_size(
      envoy, envoy_dynamic_module_type_http_header_type_RequestHeader);
  if (size > MOST_HEADERS && (headers = malloc(size * sizeof *headers)) == NULL)
    abort();  // as Envoy itself does without memory
  envoy_dynamic_module_callback_http_get_headers(
      envoy, envoy_dynamic_module_type_http_header_type_RequestHeader, headers);
  ordergate_step step = {0};
  update_log_level();
  ordergate_entering();
  ordergateRequest(s->config, envoy, headers, size, end, &step);
  if (headers != few) free(headers);
  act(s, envoy, &step);
  switch (step.action) {
    case ordergate_pass_request:
      return envoy_dynamic_module_type_on_http_filter_request_headers_status_Continue;
    case ordergate_read:  // the body will be passed to Go
      return envoy_dynamic_module_type_on_http_filter_request_headers_status_StopIteration;
  }
  // Not the status that refuses a body larger than the buffer: this one slows the client
  // down.
  return envoy_dynamic_module_type_on_http_filter_request_headers_status_StopAllIterationAndWatermark;
}

// request_event reports more of a request to Go, and returns whether it is forwarded.
static bool request_event(stream* s, void* envoy, uint8_t event, bool end) {
  if (s->go == 0) return !s->refused;
  return send_event(s, envoy, event, end) == ordergate_pass_request;
}

envoy_dynamic_module_type_on_http_filter_request_body_status
envoy_dynamic_module_on_http_filter_request_body(void* envoy, const void* filter, bool end) {
  if (request_event((stream*)filter, envoy, ordergate_request_body, end))
    return envoy_dynamic_module_type_on_http_filter_request_body_status_Continue;
  // Envoy refuses a body that is too large, with 413.
  return envoy_dynamic_module_type_on_http_filter_request_body_status_StopIterationAndBuffer;
}

envoy_dynamic_module_type_on_http_filter_request_trailers_status
envoy_dynamic_module_on_http_filter_request_trailers(void* envoy, const void* filter) {
  if (request_event((stream*)filter, envoy, ordergate_request_trailers, true))
    return envoy_dynamic_module_type_on_http_filter_request_trailers_status_Continue;
  return envoy_dynamic_module_type_on_http_filter_request_trailers_status_StopIteration;
}

// not_found reports whether the status is 404 or 410.
static bool not_found(void* envoy) {
  static const char name[] = ":status";
  envoy_dynamic_module_type_envoy_buffer status;
  return envoy_dynamic_module_callback_http_get_header(
             envoy, envoy_dynamic_module_type_http_header_type_ResponseHeader,
             (envoy_dynamic_module_type_module_buffer){name, sizeof name - 1}, &status, 0, NULL) &&
         status.length == 3 &&
         (memcmp(status.ptr, "404", 3) == 0 || memcmp(status.ptr, "410", 3) == 0);
}

// response_event reports more of an answer to Go, unless the answer is ordergate's.
static uint8_t response_event(stream* s, void* envoy, uint8_t event, bool end) {
  return s->go == 0 || s->refused ? ordergate_pass_response : send_event(s, envoy, event, end);
}

envoy_dynamic_module_type_on_http_filter_response_headers_status
envoy_dynamic_module_on_http_filter_response_headers(void* envoy, const void* filter, bool end) {
  stream* s = (stream*)filter;
  if (s->watch_not_found && not_found(envoy)) ordergateNotFound(s->config, envoy, s->watch_not_found);
  s->watch_not_found = 0;
  switch (response_event(s, envoy, ordergate_response_headers, end)) {
    case ordergate_read:
      return envoy_dynamic_module_type_on_http_filter_response_headers_status_StopIteration;
    case ordergate_wait:
      return envoy_dynamic_module_type_on_http_filter_response_headers_status_StopAllIterationAndWatermark;
    case ordergate_refuse:  // in place of this answer
      return envoy_dynamic_module_type_on_http_filter_response_headers_status_StopIteration;
  }
  return envoy_dynamic_module_type_on_http_filter_response_headers_status_Continue;
}

envoy_dynamic_module_type_on_http_filter_response_body_status
envoy_dynamic_module_on_http_filter_response_body(void* envoy, const void* filter, bool end) {
  if (response_event((stream*)filter, envoy, ordergate_response_body, end) == ordergate_wait)
    return envoy_dynamic_module_type_on_http_filter_response_body_status_StopIterationAndWatermark;
  return envoy_dynamic_module_type_on_http_filter_response_body_status_Continue;
}

envoy_dynamic_module_type_on_http_filter_response_trailers_status
envoy_dynamic_module_on_http_filter_response_trailers(void* envoy, const void* filter) {
  if (response_event((stream*)filter, envoy, ordergate_response_trailers, true) == ordergate_wait)
    return envoy_dynamic_module_type_on_http_filter_response_trailers_status_StopIteration;
  return envoy_dynamic_module_type_on_http_filter_response_trailers_status_Continue;
}

void envoy_dynamic_module_on_http_filter_scheduled(void* envoy, const void* filter, uint64_t event) {
  (void)event;
  stream* s = (stream*)filter;
  if (s->go == 0) return;
  switch (send_event(s, envoy, ordergate_woken, false)) {
    case ordergate_pass_request:
      envoy_dynamic_module_callback_http_filter_continue_decoding(envoy);
      break;
    case ordergate_pass_response:
      envoy_dynamic_module_callback_http_filter_continue_encoding(envoy);
      break;
  }
}

void envoy_dynamic_module_on_http_filter_stream_complete(void* envoy, const void* filter) {
  stream* s = (stream*)filter;
  if (s->go != 0) send_event(s, envoy, ordergate_complete, true);
}

void envoy_dynamic_module_on_http_filter_destroy(const void* filter) {
  stream* s = (stream*)filter;
  if (s->go != 0) send_event(s, NULL, ordergate_complete, true);  // Envoy has called stream_complete before
  free(s);
}

// Envoy requires these functions of a module. ordergate does not use them.

envoy_dynamic_module_type_on_http_filter_local_reply_status
envoy_dynamic_module_on_http_filter_local_reply(void* envoy, const void* filter, uint32_t status,
                                                envoy_dynamic_module_type_envoy_buffer details,
                                                bool reset) {
  (void)envoy, (void)filter, (void)status, (void)details, (void)reset;
  return envoy_dynamic_module_type_on_http_filter_local_reply_status_Continue;
}

void envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
    void* envoy, const void* filter) {
  (void)envoy, (void)filter;
}

void envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
    void* envoy, const void* filter) {
  (void)envoy, (void)filter;
}

void envoy_dynamic_module_on_http_filter_config_scheduled(void* config, const void* filter_config,
                                                          uint64_t event) {
  (void)config, (void)filter_config, (void)event;
}

#define UNUSED (void)envoy, (void)filter, (void)id

// For a stream, and for a configuration.
#define CALLS(of)                                                                                  \
  void envoy_dynamic_module_on_http_filter_##of##http_callout_done(                                \
      void* envoy, const void* filter, uint64_t id,                                                \
      envoy_dynamic_module_type_http_callout_result result,                                        \
      envoy_dynamic_module_type_envoy_http_header* headers, size_t headers_size,                   \
      envoy_dynamic_module_type_envoy_buffer* chunks, size_t chunks_size) {                        \
    UNUSED, (void)result, (void)headers, (void)headers_size, (void)chunks, (void)chunks_size;      \
  }                                                                                                \
  void envoy_dynamic_module_on_http_filter_##of##http_stream_headers(                              \
      void* envoy, const void* filter, uint64_t id,                                                \
      envoy_dynamic_module_type_envoy_http_header* headers, size_t headers_size, bool end) {       \
    UNUSED, (void)headers, (void)headers_size, (void)end;                                          \
  }                                                                                                \
  void envoy_dynamic_module_on_http_filter_##of##http_stream_data(                                 \
      void* envoy, const void* filter, uint64_t id,                                                \
      const envoy_dynamic_module_type_envoy_buffer* data, size_t data_size, bool end) {            \
    UNUSED, (void)data, (void)data_size, (void)end;                                                \
  }                                                                                                \
  void envoy_dynamic_module_on_http_filter_##of##http_stream_trailers(                             \
      void* envoy, const void* filter, uint64_t id,                                                \
      envoy_dynamic_module_type_envoy_http_header* trailers, size_t trailers_size) {               \
    UNUSED, (void)trailers, (void)trailers_size;                                                   \
  }                                                                                                \
  void envoy_dynamic_module_on_http_filter_##of##http_stream_complete(                             \
      void* envoy, const void* filter, uint64_t id) {                                              \
    UNUSED;                                                                                        \
  }                                                                                                \
  void envoy_dynamic_module_on_http_filter_##of##http_stream_reset(                                \
      void* envoy, const void* filter, uint64_t id,                                                \
      envoy_dynamic_module_type_http_stream_reset_reason reason) {                                 \
    UNUSED, (void)reason;                                                                          \
  }

CALLS()
CALLS(config_)
