package lockmw

import (
	"net/url"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// What Envoy should still send after the request's headers. Trailers are asked
// for because they keep the stream open until the response's body has ended.
var (
	wholeBracket = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseTrailerMode: procmode.ProcessingMode_SEND,
	}
	onlyHeaders = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseTrailerMode: procmode.ProcessingMode_SKIP,
	}
	// headersAndBody buffers as much as fits: with plain BUFFERED an answer that
	// is too large would become an error of Envoy's, and the order exists.
	headersAndBody = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseBodyMode:    procmode.ProcessingMode_BUFFERED_PARTIAL,
		ResponseTrailerMode: procmode.ProcessingMode_SKIP,
	}
	skipRest = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SKIP,
		ResponseTrailerMode: procmode.ProcessingMode_SKIP,
	}
)

// Headers to take off a request. Nobody but ordergate may say what those of its own
// say; the other two would let a client name a path that no filter has seen.
var (
	ours      = []string{gate.HeaderKey, gate.HeaderFence, gate.HeaderLease, gate.HeaderVerdict}
	foreign   = append([]string{"x-original-url", "x-rewrite-url"}, ours...)
	uncoded   = append([]string{"accept-encoding"}, ours...) // the answer has to be readable
	butLookup = ours[:3]                                     // ext_authz, earlier in the chain, has set the verdict
)

// askForBody goes with the request's headers, which Envoy keeps back until the
// body has been answered. What is wanted of the response can only be said here.
//
// A settlement that is enforced bears a path meanwhile that no backend serves: where Envoy
// does not show the body, nothing is settled without a lock. Whoever passes the request on
// calls [showPath].
func askForBody(call *gate.Call, path string) *extproc.ProcessingResponse {
	mode := &procmode.ProcessingMode{
		RequestBodyMode:     procmode.ProcessingMode_BUFFERED,
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseTrailerMode: procmode.ProcessingMode_SEND,
	}
	if call.LearnsBody() {
		mode.ResponseBodyMode = procmode.ProcessingMode_BUFFERED_PARTIAL
	}
	if !call.NeedsAnswer {
		mode.ResponseHeaderMode, mode.ResponseTrailerMode = procmode.ProcessingMode_SKIP, procmode.ProcessingMode_SKIP
	}
	var hide *extproc.HeaderMutation
	if call.Hides() {
		mode.RequestTrailerMode = procmode.ProcessingMode_SEND // they may come without a body
		hide = &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
			set(headerPath, unseenPath+url.QueryEscape(path[:min(len(path), mostShown)]))}}
	}
	return onRequest(atHeaders, hide, mode)
}

const (
	headerPath = ":path"
	unseenPath = "/.ordergate/body-not-seen?ordergate="
	// mostShown is how much of a path an access log has of a request that goes no further,
	// in bytes.
	mostShown = 500
)

// showPath gives a request its path back, if that was hidden, with the reply to its body.
func showPath(reply *extproc.ProcessingResponse, hidden string) {
	if hidden != "" {
		mutation := reply.GetRequestBody().GetResponse().GetHeaderMutation()
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerPath, hidden))
	}
}

// onRequest answers the request's headers, or its body.
func onRequest(at stage, mutation *extproc.HeaderMutation, mode *procmode.ProcessingMode) *extproc.ProcessingResponse {
	common := &extproc.CommonResponse{HeaderMutation: mutation}
	if at == atBody {
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
			RequestBody: &extproc.BodyResponse{Response: common}}}
	}
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_RequestHeaders{
			RequestHeaders: &extproc.HeadersResponse{Response: common}},
		ModeOverride: mode,
	}
}

// Replies to most requests. They are shared by all streams and read-only.
var (
	skipUnruled = onRequest(atHeaders, &extproc.HeaderMutation{RemoveHeaders: foreign}, skipRest)
	skipRuled   = onRequest(atHeaders, &extproc.HeaderMutation{RemoveHeaders: butLookup}, skipRest)
	tellAnswer  = onRequest(atHeaders, &extproc.HeaderMutation{RemoveHeaders: butLookup}, onlyHeaders)
)

// skip passes a request on that needs nothing more.
func skip(call *gate.Call, at stage) *extproc.ProcessingResponse {
	switch {
	case call.Decision.Rule < 0 && at == atBody:
		return onRequest(at, &extproc.HeaderMutation{RemoveHeaders: foreign}, nil)
	case call.Decision.Rule < 0:
		return skipUnruled
	case at == atHeaders:
		return skipRuled
	}
	return onRequest(at, &extproc.HeaderMutation{RemoveHeaders: butLookup}, nil)
}

// forward passes a bracketed request on. The lease is nil in observe mode.
//
// What the client sent is removed although it is overwritten, since of a header
// that came twice Envoy overwrites the first only. It removes before it sets.
func forward(call *gate.Call, lease gate.Lease, at stage) *extproc.ProcessingResponse {
	mutation := &extproc.HeaderMutation{RemoveHeaders: ours}
	if lease != nil {
		for _, h := range call.LeaseHeaders(lease) {
			mutation.SetHeaders = append(mutation.SetHeaders, set(h.Name, h.Value))
		}
	}
	return onRequest(at, mutation, wholeBracket)
}

// expectAnswer passes a create on.
func expectAnswer(call *gate.Call, at stage) *extproc.ProcessingResponse {
	if call.LearnsBody() {
		return onRequest(at, &extproc.HeaderMutation{RemoveHeaders: uncoded}, headersAndBody)
	}
	return onRequest(at, &extproc.HeaderMutation{RemoveHeaders: ours}, onlyHeaders)
}

func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// immediate is an answer in the backend's stead.
func immediate(r gate.Reply, v gate.Verdict) *extproc.ProcessingResponse {
	headers := []*corev3.HeaderValueOption{set(gate.HeaderVerdict, v.String())}
	for _, h := range r.Headers() {
		headers = append(headers, set(h.Name, h.Value))
	}
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extproc.ImmediateResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.Status)},
			Headers: &extproc.HeaderMutation{SetHeaders: headers},
			Body:    []byte(r.Body),
			Details: "ordergate_" + v.String(),
		}},
	}
}

// Replies that say "go on". They are shared by all streams and read-only.
var (
	goOnRequestHeaders  = onRequest(atHeaders, nil, nil)
	goOnResponseHeaders = onResponse(nil)
	goOnRequestBody     = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
		RequestBody: &extproc.BodyResponse{}}}
	goOnResponseBody = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{
		ResponseBody: &extproc.BodyResponse{}}}
	goOnRequestTrailers = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extproc.TrailersResponse{}}}
	goOnResponseTrailers = &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseTrailers{
		ResponseTrailers: &extproc.TrailersResponse{}}}
	goOn = &extproc.ProcessingResponse{}
)

// onResponse answers the response's headers.
func onResponse(mutation *extproc.HeaderMutation) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{HeaderMutation: mutation}}}}
}

// passOn answers any message with "go on".
func passOn(msg *extproc.ProcessingRequest) *extproc.ProcessingResponse {
	switch msg.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestHeaders:
		return goOnRequestHeaders
	case *extproc.ProcessingRequest_ResponseHeaders:
		return goOnResponseHeaders
	case *extproc.ProcessingRequest_RequestBody:
		return goOnRequestBody
	case *extproc.ProcessingRequest_ResponseBody:
		return goOnResponseBody
	case *extproc.ProcessingRequest_RequestTrailers:
		return goOnRequestTrailers
	case *extproc.ProcessingRequest_ResponseTrailers:
		return goOnResponseTrailers
	}
	return goOn
}
