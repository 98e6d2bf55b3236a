//go:build asan

// For a module with AddressSanitizer (make test-asan). The sanitizer does not see the heap of
// Envoy, which is Envoy's own. So these functions stand before Envoy's. They lend the module a copy
// of each text, which they free when Envoy's may be gone: when its header is set or removed, and
// when Go has handled the event. And they read all that Envoy is about to read.

#include "module.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef envoy_dynamic_module_type_envoy_buffer text;
typedef envoy_dynamic_module_type_module_buffer own;
typedef envoy_dynamic_module_type_envoy_http_header header;

// The module's memory comes from the sanitizer.
extern void* __interceptor_malloc(size_t);
extern void* __interceptor_calloc(size_t, size_t);
extern void __interceptor_free(void*);
void* __wrap_malloc(size_t size) { return __interceptor_malloc(size); }
void* __wrap_calloc(size_t n, size_t size) { return __interceptor_calloc(n, size); }
void __wrap_free(void* p) { __interceptor_free(p); }

// What Envoy has lent to the event that its thread handles.
typedef struct loan {
  struct loan* next;
  void* stream;
  int of;  // the message of a header, -1: not a header
  char *name, *value;
  size_t name_length;
} loan;

static _Thread_local loan* loans;

static char* copy(const char* p, size_t length) {
  if (length == 0) return NULL;
  char* c = malloc(length);
  memcpy(c, p, length);
  return c;
}

static void lend(void* stream, int of, header* h) {
  loan* l = malloc(sizeof *l);
  *l = (loan){.next = loans, .stream = stream, .of = of, .name_length = h->key_length};
  l->name = copy(h->key_ptr, h->key_length);
  l->value = copy(h->value_ptr, h->value_length);
  loans = l;
  h->key_ptr = l->name;
  h->value_ptr = l->value;
}

static void lend_text(void* stream, text* t) {
  header h = {.value_ptr = t->ptr, .value_length = t->length};
  lend(stream, -1, &h);
  t->ptr = h.value_ptr;
}

// take_back ends the loans of a header, or all of them without a name.
static void take_back(void* stream, int of, const own* name) {
  for (loan** at = &loans; *at != NULL;) {
    loan* l = *at;
    if (name != NULL && (l->stream != stream || l->of != of || l->name_length != name->length ||
                         strncasecmp(l->name, name->ptr, name->length) != 0)) {
      at = &l->next;
      continue;
    }
    *at = l->next;
    free(l->name);
    free(l->value);
    free(l);
  }
}

static volatile char seen;

// look reads a text as Envoy will.
static void look(const char* p, size_t length) {
  for (size_t i = 0; i < length; i++) seen = p[i];
}

// WRAP defines the function that is called in place of another one.
#define WRAP(type, name, ...)              \
  extern type __real_##name(__VA_ARGS__);  \
  type __wrap_##name(__VA_ARGS__)

WRAP(bool, envoy_dynamic_module_callback_http_get_header, void* stream,
     envoy_dynamic_module_type_http_header_type of, own key, text* value, size_t index,
     size_t* count) {
  look(key.ptr, key.length);
  bool ok = __real_envoy_dynamic_module_callback_http_get_header(stream, of, key, value, index, count);
  if (ok) lend_text(stream, value);
  return ok;
}

WRAP(bool, envoy_dynamic_module_callback_http_get_headers, void* stream,
     envoy_dynamic_module_type_http_header_type of, header* headers) {
  bool ok = __real_envoy_dynamic_module_callback_http_get_headers(stream, of, headers);
  size_t size = envoy_dynamic_module_callback_http_get_headers_size(stream, of);
  for (size_t i = 0; ok && i < size; i++) lend(stream, of, &headers[i]);
  return ok;
}

WRAP(bool, envoy_dynamic_module_callback_http_set_header, void* stream,
     envoy_dynamic_module_type_http_header_type of, own key, own value) {
  look(key.ptr, key.length);
  look(value.ptr, value.length);
  bool ok = __real_envoy_dynamic_module_callback_http_set_header(stream, of, key, value);
  take_back(stream, of, &key);
  return ok;
}

WRAP(void, envoy_dynamic_module_callback_http_set_dynamic_metadata_string, void* stream, own ns,
     own key, own value) {
  look(ns.ptr, ns.length);
  look(key.ptr, key.length);
  look(value.ptr, value.length);
  __real_envoy_dynamic_module_callback_http_set_dynamic_metadata_string(stream, ns, key, value);
}

WRAP(void, envoy_dynamic_module_callback_http_set_dynamic_metadata_number, void* stream, own ns,
     own key, double value) {
  look(ns.ptr, ns.length);
  look(key.ptr, key.length);
  __real_envoy_dynamic_module_callback_http_set_dynamic_metadata_number(stream, ns, key, value);
}

WRAP(bool, envoy_dynamic_module_callback_http_get_body_chunks, void* stream,
     envoy_dynamic_module_type_http_body_type of, text* chunks) {
  bool ok = __real_envoy_dynamic_module_callback_http_get_body_chunks(stream, of, chunks);
  size_t size = envoy_dynamic_module_callback_http_get_body_chunks_size(stream, of);
  for (size_t i = 0; ok && i < size; i++) lend_text(stream, &chunks[i]);
  return ok;
}

WRAP(bool, envoy_dynamic_module_callback_http_filter_get_attribute_string, void* stream,
     envoy_dynamic_module_type_attribute_id id, text* value) {
  bool ok = __real_envoy_dynamic_module_callback_http_filter_get_attribute_string(stream, id, value);
  if (ok) lend_text(stream, value);
  return ok;
}

WRAP(void, envoy_dynamic_module_callback_http_send_response, void* stream, uint32_t status,
     envoy_dynamic_module_type_module_http_header* headers, size_t size, own body, own details) {
  for (size_t i = 0; i < size; i++) {
    look(headers[i].key_ptr, headers[i].key_length);
    look(headers[i].value_ptr, headers[i].value_length);
  }
  look(body.ptr, body.length);
  look(details.ptr, details.length);
  __real_envoy_dynamic_module_callback_http_send_response(stream, status, headers, size, body, details);
}

WRAP(void, ordergateRequest, uintptr_t config, void* stream, header* headers, size_t size, bool end,
     ordergate_step* step) {
  __real_ordergateRequest(config, stream, headers, size, end, step);
  take_back(NULL, 0, NULL);
}

WRAP(void, ordergateEvent, uintptr_t go, uint8_t event, bool end, ordergate_step* step) {
  __real_ordergateEvent(go, event, end, step);
  take_back(NULL, 0, NULL);
}

WRAP(void, ordergateNotFound, uintptr_t config, void* stream, uint32_t watched) {
  __real_ordergateNotFound(config, stream, watched);
  take_back(NULL, 0, NULL);
}
