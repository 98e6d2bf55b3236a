package lockmw

import (
	"net/url"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// modes have Envoy send what a call needs to see of an answer, after the headers of the request.
var modes = [...]*procmode.ProcessingMode{
	gate.ShowNothing: {ResponseHeaderMode: procmode.ProcessingMode_SKIP, ResponseTrailerMode: procmode.ProcessingMode_SKIP},
	gate.ShowHeaders: {ResponseHeaderMode: procmode.ProcessingMode_SEND, ResponseTrailerMode: procmode.ProcessingMode_SKIP},
	// With BUFFERED, Envoy would replace an answer that is too large by an error, although the order exists.
	gate.ShowBody: {
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseBodyMode:    procmode.ProcessingMode_BUFFERED_PARTIAL,
		ResponseTrailerMode: procmode.ProcessingMode_SKIP,
	},
	// The stream alone does not show the end of the response: that of a response that breaks off ends
	// like any other.
	gate.ShowAll: {
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseBodyMode:    procmode.ProcessingMode_STREAMED,
		ResponseTrailerMode: procmode.ProcessingMode_SEND,
	},
	gate.ShowBodyToEnd: {
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseBodyMode:    procmode.ProcessingMode_BUFFERED_PARTIAL,
		ResponseTrailerMode: procmode.ProcessingMode_SEND,
	},
}

var skipRest = modes[gate.ShowNothing]

// Headers to remove from a request, besides forged ones.
var (
	removeOwned      = gate.Owned[:]
	removeUnruled    = slices.Concat(gate.URLOverrides[:], removeOwned)
	removeButVerdict = []string{gate.HeaderKey, gate.HeaderFence, gate.HeaderLease} // ext_authz, earlier in the chain, has set the verdict
)

func without(names []string) *extproc.HeaderMutation {
	return &extproc.HeaderMutation{RemoveHeaders: names}
}

// askForBody is the reply to the request's headers that requests the body. Envoy keeps the
// headers until it has the reply to the body. The wanted parts of the response must be
// named here.
//
// Meanwhile an enforced settlement has a path that no backend serves, and a body of a type that none
// reads: a front controller goes by the body alone. If Envoy does not send the body, nothing is settled
// without a lock. The reply that forwards the request restores both. Any other request that ext_authz has
// sealed gets its path at once.
func (p *forwarding) askForBody(step *gate.Step, req *order.Request) *extproc.ProcessingResponse {
	shows := modes[step.Show]
	mode := &procmode.ProcessingMode{
		RequestBodyMode:     procmode.ProcessingMode_BUFFERED,
		ResponseHeaderMode:  shows.GetResponseHeaderMode(),
		ResponseBodyMode:    shows.GetResponseBodyMode(),
		ResponseTrailerMode: shows.GetResponseTrailerMode(),
	}
	var mutation *extproc.HeaderMutation
	switch {
	case step.Hide:
		mode.RequestTrailerMode = procmode.ProcessingMode_SEND // they may come without a body
		mutation = withPath(unseenPath + url.QueryEscape(req.Target[:min(len(req.Target), maxShownPath)]))
		p.hiddenPath = req.Target
		// Envoy goes by gRPC's type, and gRPC's servers by the path.
		if text := contentTypeOf(req.Header); text != "" && !gate.IsGRPCType(text) {
			mutation.SetHeaders = append(mutation.SetHeaders, set(headerType, gate.UnreadType))
			p.hiddenType = text
		}
	case p.hiddenPath != "":
		mutation = withPath(p.hiddenPath)
		p.hiddenPath = ""
	}
	p.behindBody = true
	return onRequest(mutation, mode)
}

func withPath(path string) *extproc.HeaderMutation {
	return &extproc.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{set(headerPath, path)}}
}

const (
	headerPath = ":path"
	headerType = "content-type"
	unseenPath = "/.ordergate/body-not-seen?ordergate="
	// maxShownPath bounds the part of a hidden path that appears in an access log, in
	// bytes.
	maxShownPath = 500
)

// onRequest replies to the request's headers.
func onRequest(mutation *extproc.HeaderMutation, mode *procmode.ProcessingMode) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_RequestHeaders{
			RequestHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{HeaderMutation: mutation}}},
		ModeOverride: mode,
	}
}

// onBody replies to the request's body.
func onBody(mutation *extproc.HeaderMutation) *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{
		RequestBody: &extproc.BodyResponse{Response: &extproc.CommonResponse{HeaderMutation: mutation}}}}
}

// Replies to most requests. They are shared by all streams and read-only.
var (
	skipUnruled = onRequest(without(removeUnruled), skipRest)
	skipRuled   = onRequest(without(removeButVerdict), skipRest)
	watchAnswer = onRequest(without(removeButVerdict), modes[gate.ShowHeaders])
)

// forwarding is the data for a reply that forwards a request, besides its call.
type forwarding struct {
	behindBody bool     // the request has shown its body
	hiddenPath string   // the request's path; "": it is not hidden
	hiddenType string   // the same for the type of its body
	forged     []string // the client's headers that only ordergate may send

	screened bool         // here and not by ext_authz
	verdict  gate.Verdict // then
}

// contentTypeOf returns the first Content-Type of a request, "" if there is none.
func contentTypeOf(header order.Header) string {
	for name, value := range order.All(header) {
		if name == headerType {
			return strings.Clone(value)
		}
	}
	return ""
}

// forward forwards a request. It removes the client's headers although it overwrites them: of a repeated
// header, Envoy overwrites only the first. Envoy removes before it sets.
func (p *forwarding) forward(call *gate.Call, step *gate.Step) *extproc.ProcessingResponse {
	names, usual := removeOwned, (*extproc.ProcessingResponse)(nil)
	switch {
	case call.Decision.Rule < 0:
		names, usual = removeUnruled, skipUnruled
	case !call.NeedsAnswer:
		names, usual = removeButVerdict, skipRuled
	case call.Decision.Action == gate.ActionLookup:
		names, usual = removeButVerdict, watchAnswer
	}
	sets := step.Set
	switch {
	case usual == nil:
	case p.verdict != gate.VerdictNone: // where ext_authz is on, it sets it
		names, usual, sets = removeOwned, nil, []gate.Header{{Name: gate.HeaderVerdict, Value: p.verdict.String()}}
	case p.screened && call.NeedsAnswer:
		names, usual = removeUnruled, nil
	case p.screened:
		names, usual = removeUnruled, skipUnruled
	}
	if usual != nil && step.Options+len(p.forged) == 0 && !p.behindBody && p.hiddenPath == "" {
		return usual
	}
	mutation := &extproc.HeaderMutation{RemoveHeaders: slices.Concat(names, gate.AnswerOptions[:step.Options], p.forged)}
	for _, h := range sets {
		if !slices.Contains(names, h.Name) {
			mutation.RemoveHeaders = append(mutation.RemoveHeaders, h.Name)
		}
		mutation.SetHeaders = append(mutation.SetHeaders, set(h.Name, h.Value))
	}
	if p.hiddenPath != "" {
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerPath, p.hiddenPath))
	}
	if p.hiddenType != "" {
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerType, p.hiddenType))
	}
	if p.behindBody {
		return onBody(mutation)
	}
	return onRequest(mutation, modes[step.Show])
}

func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// immediate answers in place of the backend.
func immediate(a *gate.Answer) *extproc.ProcessingResponse {
	options := make([]*corev3.HeaderValueOption, len(a.Headers))
	for i, h := range a.Headers {
		options[i] = set(h.Name, h.Value)
		if slices.ContainsFunc(a.Headers[:i], func(before gate.Header) bool { return before.Name == h.Name }) {
			// Of an answer, Envoy 1.40 looks at this one only.
			options[i].AppendAction, options[i].Append = 0, wrapperspb.Bool(true) //nolint:staticcheck // it is deprecated
		}
	}
	var grpc *extproc.GrpcStatus
	if a.GRPCStatus != 0 {
		grpc = &extproc.GrpcStatus{Status: uint32(a.GRPCStatus)}
	}
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extproc.ImmediateResponse{
			GrpcStatus: grpc,
			Status:     &typev3.HttpStatus{Code: typev3.StatusCode(a.Status)},
			Headers:    &extproc.HeaderMutation{SetHeaders: options},
			Body:       []byte(a.Body),
			Details:    "ordergate_" + a.Verdict.String(),
		}},
	}
}

// Replies that continue. They are shared by all streams and read-only.
var (
	goOnRequestHeaders  = onRequest(nil, nil)
	goOnResponseHeaders = onResponse()
	nothingMore         = &extproc.ProcessingResponse{Response: onResponse().GetResponse(), ModeOverride: skipRest} // Envoy's own answer has a body, too
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

// onResponse returns a new reply to the response's headers, which the caller may change.
func onResponse() *extproc.ProcessingResponse {
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extproc.HeadersResponse{Response: &extproc.CommonResponse{}}}}
}

// passResponse is the reply to a message about an answer. The request's reply may have asked for less than
// the call needs to see, and it may need less.
func passResponse(msg *extproc.ProcessingRequest, step *gate.Step) *extproc.ProcessingResponse {
	switch headers := msg.GetResponseHeaders() != nil; {
	case headers && step.Do == gate.ReadResponse:
		reply := onResponse()
		reply.ModeOverride = modes[step.Show]
		return reply
	case headers && step.Done:
		return nothingMore
	}
	return continueReply(msg)
}

// continueReply is the reply to any message that only continues.
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
