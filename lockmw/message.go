package lockmw

import (
	"net/url"
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// What Envoy should still send after the request's headers.
var (
	// wholeBracket shows the response's end, which is in its body or in trailers: the stream
	// of an answer that breaks off ends like any other.
	wholeBracket = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseBodyMode:    procmode.ProcessingMode_STREAMED,
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

// Headers to take off a request, besides those that are forged. Only ordergate may send
// those of its own; the other two would let a client name a path that no filter has seen.
// Of a create, those go too that make the answer unreadable: Apache cuts the answer of a
// script to a Range, or makes a 416 of it, whatever the method.
var (
	removeOwned      = gate.Owned[:]
	removeUnruled    = append([]string{"x-original-url", "x-rewrite-url"}, removeOwned...)
	removeForCreate  = append([]string{"accept-encoding", "range", "if-range"}, removeOwned...) // the answer has to be readable
	removeButVerdict = []string{gate.HeaderKey, gate.HeaderFence, gate.HeaderLease}             // ext_authz, earlier in the chain, has set the verdict
)

// without returns a mutation that removes headers, and those that are forged.
func without(names, forged []string) *extproc.HeaderMutation {
	if len(forged) > 0 {
		names = slices.Concat(names, forged)
	}
	return &extproc.HeaderMutation{RemoveHeaders: names}
}

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
	switch {
	case call.LearnsBody():
		mode.ResponseBodyMode = procmode.ProcessingMode_BUFFERED_PARTIAL
	case call.NeedsAnswer && call.Decision.Action == gate.ActionSettle:
		mode.ResponseBodyMode = procmode.ProcessingMode_STREAMED
	}
	if !call.NeedsAnswer {
		mode.ResponseHeaderMode, mode.ResponseTrailerMode = procmode.ProcessingMode_SKIP, procmode.ProcessingMode_SKIP
	}
	var hide *extproc.HeaderMutation
	if call.HidesPath() {
		mode.RequestTrailerMode = procmode.ProcessingMode_SEND // they may come without a body
		hide = &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{
			set(headerPath, unseenPath+url.QueryEscape(path[:min(len(path), maxShownPath)]))}}
	}
	return onRequest(atHeaders, hide, mode)
}

const (
	headerPath = ":path"
	unseenPath = "/.ordergate/body-not-seen?ordergate="
	// maxShownPath is how much of a path an access log has of a request that goes no further,
	// in bytes.
	maxShownPath = 500
)

// showPath gives a request its path back, if that was hidden, with the reply to its body.
func showPath(reply *extproc.ProcessingResponse, hidden string) {
	if hidden != "" {
		mutation := reply.GetRequestBody().GetResponse().GetHeaderMutation()
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerPath, hidden))
	}
}

// onRequest answers the request's headers, or its body.
func onRequest(at replyStage, mutation *extproc.HeaderMutation, mode *procmode.ProcessingMode) *extproc.ProcessingResponse {
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
	skipUnruled = onRequest(atHeaders, without(removeUnruled, nil), skipRest)
	skipRuled   = onRequest(atHeaders, without(removeButVerdict, nil), skipRest)
	watchAnswer = onRequest(atHeaders, without(removeButVerdict, nil), onlyHeaders)
)

// forwarding is what a reply that passes a request on depends on, besides its call.
type forwarding struct {
	at         replyStage
	hiddenPath string   // the request's path; "": Envoy has it
	forged     []string // headers of the client that ordergate alone may send
}

// skip passes a request on that needs nothing more.
func (p *forwarding) skip(call *gate.Call) *extproc.ProcessingResponse {
	names, usual := removeButVerdict, skipRuled
	if call.Decision.Rule < 0 {
		names, usual = removeUnruled, skipUnruled
	}
	if p.at == atHeaders && len(p.forged) == 0 {
		return usual
	}
	return onRequest(p.at, without(names, p.forged), skipRest)
}

// watch passes a lookup on, and asks for the headers of its answer.
func (p *forwarding) watch() *extproc.ProcessingResponse {
	if len(p.forged) == 0 {
		return watchAnswer
	}
	return onRequest(atHeaders, without(removeButVerdict, p.forged), onlyHeaders)
}

// forward passes a bracketed request on. The lease is nil in observe mode.
//
// What the client sent is removed although it is overwritten, since of a header
// that came twice Envoy overwrites the first only. It removes before it sets.
func (p *forwarding) forward(call *gate.Call, lease gate.Lease) *extproc.ProcessingResponse {
	mutation := without(removeOwned, p.forged)
	if lease != nil {
		for _, h := range call.LeaseHeaders(lease) {
			mutation.SetHeaders = append(mutation.SetHeaders, set(h.Name, h.Value))
		}
	}
	return onRequest(p.at, mutation, wholeBracket)
}

// expectAnswer passes a create on.
func (p *forwarding) expectAnswer(call *gate.Call) *extproc.ProcessingResponse {
	mode := onlyHeaders
	if call.LearnsBody() {
		mode = headersAndBody
	}
	return onRequest(p.at, without(removeForCreate, p.forged), mode)
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

// continueReply answers any message with "go on".
func continueReply(msg *extproc.ProcessingRequest) *extproc.ProcessingResponse {
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
