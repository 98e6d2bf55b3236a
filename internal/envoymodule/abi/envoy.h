// What ordergate uses of Envoy's ABI for dynamic modules, version v0.1.0 (Envoy 1.39 and 1.40):
// names, layouts and values are those of source/extensions/dynamic_modules/abi/abi.h
// there, and abi_test.go compares them with it.

#ifndef ORDERGATE_ENVOY_H
#define ORDERGATE_ENVOY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENVOY_DYNAMIC_MODULES_ABI_VERSION "v0.1.0"

// Memory of Envoy's or of ours, with its length.
typedef struct envoy_dynamic_module_type_envoy_buffer {
  const char* ptr;
  size_t length;
} envoy_dynamic_module_type_envoy_buffer;

typedef struct envoy_dynamic_module_type_module_buffer {
  const char* ptr;
  size_t length;
} envoy_dynamic_module_type_module_buffer;

typedef struct envoy_dynamic_module_type_module_http_header {
  const char* key_ptr;
  size_t key_length;
  const char* value_ptr;
  size_t value_length;
} envoy_dynamic_module_type_module_http_header;

typedef struct envoy_dynamic_module_type_envoy_http_header {
  const char* key_ptr;
  size_t key_length;
  const char* value_ptr;
  size_t value_length;
} envoy_dynamic_module_type_envoy_http_header;

typedef enum envoy_dynamic_module_type_http_header_type {
  envoy_dynamic_module_type_http_header_type_RequestHeader = 0,
  envoy_dynamic_module_type_http_header_type_ResponseHeader = 2,
  envoy_dynamic_module_type_http_header_type_ResponseTrailer = 3,
} envoy_dynamic_module_type_http_header_type;

typedef enum envoy_dynamic_module_type_http_body_type {
  envoy_dynamic_module_type_http_body_type_ReceivedRequestBody = 0,
  envoy_dynamic_module_type_http_body_type_ReceivedResponseBody = 2,
} envoy_dynamic_module_type_http_body_type;

typedef enum envoy_dynamic_module_type_log_level {
  envoy_dynamic_module_type_log_level_Debug = 1,
  envoy_dynamic_module_type_log_level_Info = 2,
  envoy_dynamic_module_type_log_level_Warn = 3,
  envoy_dynamic_module_type_log_level_Error = 4,
} envoy_dynamic_module_type_log_level;

typedef enum envoy_dynamic_module_type_attribute_id {
  envoy_dynamic_module_type_attribute_id_ResponseCodeDetails = 16,
  envoy_dynamic_module_type_attribute_id_SourceAddress = 24,
  envoy_dynamic_module_type_attribute_id_UpstreamRequestAttemptCount = 53,
} envoy_dynamic_module_type_attribute_id;

typedef enum envoy_dynamic_module_type_on_http_filter_request_headers_status {
  envoy_dynamic_module_type_on_http_filter_request_headers_status_Continue = 0,
  envoy_dynamic_module_type_on_http_filter_request_headers_status_StopIteration = 1,
  envoy_dynamic_module_type_on_http_filter_request_headers_status_StopAllIterationAndWatermark = 4,
} envoy_dynamic_module_type_on_http_filter_request_headers_status;

typedef enum envoy_dynamic_module_type_on_http_filter_request_body_status {
  envoy_dynamic_module_type_on_http_filter_request_body_status_Continue = 0,
  envoy_dynamic_module_type_on_http_filter_request_body_status_StopIterationAndBuffer = 1,
} envoy_dynamic_module_type_on_http_filter_request_body_status;

typedef enum envoy_dynamic_module_type_on_http_filter_request_trailers_status {
  envoy_dynamic_module_type_on_http_filter_request_trailers_status_Continue = 0,
  envoy_dynamic_module_type_on_http_filter_request_trailers_status_StopIteration = 1,
} envoy_dynamic_module_type_on_http_filter_request_trailers_status;

typedef enum envoy_dynamic_module_type_on_http_filter_response_headers_status {
  envoy_dynamic_module_type_on_http_filter_response_headers_status_Continue = 0,
  envoy_dynamic_module_type_on_http_filter_response_headers_status_StopIteration = 1,
  envoy_dynamic_module_type_on_http_filter_response_headers_status_StopAllIterationAndWatermark = 4,
} envoy_dynamic_module_type_on_http_filter_response_headers_status;

typedef enum envoy_dynamic_module_type_on_http_filter_response_body_status {
  envoy_dynamic_module_type_on_http_filter_response_body_status_Continue = 0,
  envoy_dynamic_module_type_on_http_filter_response_body_status_StopIterationAndWatermark = 2,
} envoy_dynamic_module_type_on_http_filter_response_body_status;

typedef enum envoy_dynamic_module_type_on_http_filter_response_trailers_status {
  envoy_dynamic_module_type_on_http_filter_response_trailers_status_Continue = 0,
  envoy_dynamic_module_type_on_http_filter_response_trailers_status_StopIteration = 1,
} envoy_dynamic_module_type_on_http_filter_response_trailers_status;

typedef enum envoy_dynamic_module_type_on_http_filter_local_reply_status {
  envoy_dynamic_module_type_on_http_filter_local_reply_status_Continue = 0,
} envoy_dynamic_module_type_on_http_filter_local_reply_status;

// Of the events that ordergate has no use for, only that they exist is of interest.
typedef enum envoy_dynamic_module_type_http_callout_result {
  envoy_dynamic_module_type_http_callout_result_Success = 0,
} envoy_dynamic_module_type_http_callout_result;

typedef enum envoy_dynamic_module_type_http_stream_reset_reason {
  envoy_dynamic_module_type_http_stream_reset_reason_ConnectionFailure = 0,
} envoy_dynamic_module_type_http_stream_reset_reason;

// What Envoy offers. All of it is for the worker of the stream, but log, and commit and
// delete of a scheduler.
void envoy_dynamic_module_callback_log(envoy_dynamic_module_type_log_level level,
                                       envoy_dynamic_module_type_module_buffer message);
bool envoy_dynamic_module_callback_log_enabled(envoy_dynamic_module_type_log_level level);
bool envoy_dynamic_module_callback_http_get_header(
    void* stream, envoy_dynamic_module_type_http_header_type of,
    envoy_dynamic_module_type_module_buffer key, envoy_dynamic_module_type_envoy_buffer* value,
    size_t index, size_t* count);
size_t envoy_dynamic_module_callback_http_get_headers_size(
    void* stream, envoy_dynamic_module_type_http_header_type of);
bool envoy_dynamic_module_callback_http_get_headers(
    void* stream, envoy_dynamic_module_type_http_header_type of,
    envoy_dynamic_module_type_envoy_http_header* headers);
bool envoy_dynamic_module_callback_http_set_header(
    void* stream, envoy_dynamic_module_type_http_header_type of,
    envoy_dynamic_module_type_module_buffer key, envoy_dynamic_module_type_module_buffer value);
void envoy_dynamic_module_callback_http_set_dynamic_metadata_string(
    void* stream, envoy_dynamic_module_type_module_buffer ns,
    envoy_dynamic_module_type_module_buffer key, envoy_dynamic_module_type_module_buffer value);
void envoy_dynamic_module_callback_http_set_dynamic_metadata_number(
    void* stream, envoy_dynamic_module_type_module_buffer ns,
    envoy_dynamic_module_type_module_buffer key, double value);
void envoy_dynamic_module_callback_http_send_response(
    void* stream, uint32_t status, envoy_dynamic_module_type_module_http_header* headers,
    size_t headers_size, envoy_dynamic_module_type_module_buffer body,
    envoy_dynamic_module_type_module_buffer details);
size_t envoy_dynamic_module_callback_http_get_body_chunks_size(
    void* stream, envoy_dynamic_module_type_http_body_type of);
bool envoy_dynamic_module_callback_http_get_body_chunks(
    void* stream, envoy_dynamic_module_type_http_body_type of,
    envoy_dynamic_module_type_envoy_buffer* chunks);
bool envoy_dynamic_module_callback_http_filter_get_attribute_string(
    void* stream, envoy_dynamic_module_type_attribute_id id,
    envoy_dynamic_module_type_envoy_buffer* value);
bool envoy_dynamic_module_callback_http_filter_get_attribute_int(
    void* stream, envoy_dynamic_module_type_attribute_id id, uint64_t* value);
void envoy_dynamic_module_callback_http_filter_continue_decoding(void* stream);
void envoy_dynamic_module_callback_http_filter_continue_encoding(void* stream);
void* envoy_dynamic_module_callback_http_filter_scheduler_new(void* stream);
void envoy_dynamic_module_callback_http_filter_scheduler_commit(void* scheduler, uint64_t event);
void envoy_dynamic_module_callback_http_filter_scheduler_delete(void* scheduler);

#endif
