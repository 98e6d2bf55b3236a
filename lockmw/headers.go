package lockmw

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// headerMap holds a message's headers as Envoy sends them: names in lower case, repeated
// headers repeated.
type headerMap []*corev3.HeaderValue

// Next implements order.Header.
func (m headerMap) Next(cursor int) (name, value string, next int) {
	if cursor >= len(m) {
		return "", "", -1
	}
	return m[cursor].GetKey(), headerValue(m[cursor]), cursor + 1
}

// headerValue reads the field that Envoy has set.
func headerValue(h *corev3.HeaderValue) string {
	if raw := h.GetRawValue(); len(raw) > 0 {
		return string(raw)
	}
	return h.GetValue()
}

// request translates a stream's request headers.
func request(h *extproc.HttpHeaders) order.Request {
	headers := headerMap(h.GetHeaders().GetHeaders())
	req := order.Request{Header: headers}
	if h.GetEndOfStream() { // no body message will come
		req.BodyState = order.BodyComplete
	}
	for _, h := range headers {
		switch h.GetKey() {
		case ":method":
			req.Method = headerValue(h)
		case ":authority":
			req.Host = headerValue(h)
		case ":path":
			req.Target = headerValue(h)
		}
	}
	return req
}

// attributesKey is the key of the attributes that request_attributes and
// response_attributes select.
const attributesKey = "envoy.filters.http.ext_proc"

// response translates the headers of an answer.
func response(h *extproc.HttpHeaders, msg *extproc.ProcessingRequest) *gate.Response {
	r := gate.ResponseOf(headerMap(h.GetHeaders().GetHeaders()), h.GetEndOfStream())
	fields := msg.GetAttributes()[attributesKey].GetFields()
	r.Details = fields["response.code_details"].GetStringValue()
	if v, ok := fields["upstream.request_attempt_count"]; ok {
		r.Attempts = int(v.GetNumberValue())
	}
	return r
}
