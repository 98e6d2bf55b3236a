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

// The messages that Envoy should send after the request's headers.
var (
	// wholeBracket includes the end of the response, in its body or in trailers. The stream
	// alone does not show it: the stream of a response that breaks off ends like any other.
	wholeBracket = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseBodyMode:    procmode.ProcessingMode_STREAMED,
		ResponseTrailerMode: procmode.ProcessingMode_SEND,
	}
	// wholeCreate is wholeBracket for a create whose answer's body is read: see [gate.BodyPart].
	wholeCreate = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseBodyMode:    procmode.ProcessingMode_BUFFERED_PARTIAL,
		ResponseTrailerMode: procmode.ProcessingMode_SEND,
	}
	onlyHeaders = &procmode.ProcessingMode{
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseTrailerMode: procmode.ProcessingMode_SKIP,
	}
	// headersAndBody buffers as much as fits. With BUFFERED, Envoy would replace an answer
	// that is too large by an error, although the order exists.
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

// Headers to remove from a request, besides forged ones.
var (
	removeOwned      = gate.Owned[:]
	removeUnruled    = slices.Concat(gate.URLOverrides[:], removeOwned)
	removeButVerdict = []string{gate.HeaderKey, gate.HeaderFence, gate.HeaderLease} // ext_authz, earlier in the chain, has set the verdict
)

// without returns a mutation that removes headers.
func without(names []string, others ...[]string) *extproc.HeaderMutation {
	for _, other := range others {
		names = append(slices.Clip(names), other...)
	}
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
func (p *forwarding) askForBody(call *gate.Call, req *order.Request) *extproc.ProcessingResponse {
	mode := &procmode.ProcessingMode{
		RequestBodyMode:     procmode.ProcessingMode_BUFFERED,
		ResponseHeaderMode:  procmode.ProcessingMode_SEND,
		ResponseTrailerMode: procmode.ProcessingMode_SEND,
	}
	switch {
	case call.LearnsBody():
		mode.ResponseBodyMode = procmode.ProcessingMode_BUFFERED_PARTIAL
	case call.NeedsAnswer && call.MayLock():
		mode.ResponseBodyMode = procmode.ProcessingMode_STREAMED
	}
	if !call.NeedsAnswer {
		mode.ResponseHeaderMode, mode.ResponseTrailerMode = procmode.ProcessingMode_SKIP, procmode.ProcessingMode_SKIP
	}
	var mutation *extproc.HeaderMutation
	switch {
	case call.HidesPath():
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
	p.at = atBody
	return onRequest(atHeaders, mutation, mode)
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

// onRequest replies to the request's headers, or to its body.
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
	skipUnruled = onRequest(atHeaders, without(removeUnruled), skipRest)
	skipRuled   = onRequest(atHeaders, without(removeButVerdict), skipRest)
	watchAnswer = onRequest(atHeaders, without(removeButVerdict), onlyHeaders)
	unrevealed  = immediate(gate.Unrevealed()) // ext_authz has not sealed the path
)

// forwarding is the data for a reply that forwards a request, besides its call.
type forwarding struct {
	at         replyStage
	hiddenPath string   // the request's path; "": it is not hidden
	hiddenType string   // the same for the type of its body
	forged     []string // the client's headers that only ordergate may send

	screened bool         // here and not by ext_authz
	verdict  gate.Verdict // then
}

// contentTypeOf returns the first Content-Type of a request, "" if there is none.
func contentTypeOf(header order.Header) string {
	for cursor := 0; ; {
		name, value, next := header.Next(cursor)
		if next < 0 || name == headerType {
			return strings.Clone(value)
		}
		cursor = next
	}
}

// reply forwards the request, with its path and type.
func (p *forwarding) reply(mutation *extproc.HeaderMutation, mode *procmode.ProcessingMode) *extproc.ProcessingResponse {
	if p.hiddenPath != "" {
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerPath, p.hiddenPath))
	}
	if p.hiddenType != "" {
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerType, p.hiddenType))
	}
	return onRequest(p.at, mutation, mode)
}

// skip forwards a request that needs nothing more.
func (p *forwarding) skip(call *gate.Call) *extproc.ProcessingResponse {
	names, usual := removeButVerdict, skipRuled
	if call.Decision.Rule < 0 || p.screened && p.verdict == gate.VerdictNone {
		names, usual = removeUnruled, skipUnruled
	}
	if p.at == atHeaders && len(p.forged) == 0 && p.hiddenPath == "" && p.verdict == gate.VerdictNone {
		return usual
	}
	return p.reply(p.showing(without(names, p.forged)), skipRest)
}

// showing adds the verdict of screening, which ext_authz sets where it is on.
func (p *forwarding) showing(mutation *extproc.HeaderMutation) *extproc.HeaderMutation {
	if p.verdict != gate.VerdictNone {
		mutation.RemoveHeaders = append(slices.Clip(mutation.RemoveHeaders), gate.HeaderVerdict)
		mutation.SetHeaders = append(mutation.SetHeaders, set(gate.HeaderVerdict, p.verdict.String()))
	}
	return mutation
}

// watch forwards a lookup, and requests the headers of its answer.
func (p *forwarding) watch(call *gate.Call) *extproc.ProcessingResponse {
	options := call.AnswerOptions()
	if len(options)+len(p.forged) == 0 && p.hiddenPath == "" && !p.screened {
		return watchAnswer
	}
	names := removeButVerdict
	if p.screened && p.verdict == gate.VerdictNone {
		names = removeUnruled
	}
	return p.reply(p.showing(without(names, options, p.forged)), onlyHeaders)
}

// forward forwards a request with its lease. The lease is nil in observe mode.
//
// It removes the client's headers although it overwrites them: of a repeated header, Envoy
// overwrites only the first. Envoy removes before it sets.
func (p *forwarding) forward(call *gate.Call, lease gate.Lease) *extproc.ProcessingResponse {
	mode := wholeBracket
	if call.LearnsBody() {
		mode = wholeCreate
	}
	mutation := accepting(call, without(removeOwned, call.AnswerOptions(), p.forged))
	if lease != nil {
		for _, h := range call.LeaseHeaders(lease) {
			mutation.SetHeaders = append(mutation.SetHeaders, set(h.Name, h.Value))
		}
	}
	return p.reply(mutation, mode)
}

// expectAnswer forwards a create.
func (p *forwarding) expectAnswer(call *gate.Call) *extproc.ProcessingResponse {
	mode := onlyHeaders
	if call.LearnsBody() {
		mode = headersAndBody
	}
	return p.reply(accepting(call, without(removeOwned, call.AnswerOptions(), p.forged)), mode)
}

// accepting adds the call's Accept. It first removes that of the client, which may have several
// lines.
func accepting(call *gate.Call, mutation *extproc.HeaderMutation) *extproc.HeaderMutation {
	if accept := call.Accept(); accept != "" {
		mutation.RemoveHeaders = append(slices.Clone(mutation.RemoveHeaders), gate.HeaderAccept)
		mutation.SetHeaders = append(mutation.SetHeaders, set(gate.HeaderAccept, accept))
	}
	return mutation
}

func set(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}
}

// immediate is an answer in place of the backend.
func immediate(r gate.Reply, v gate.Verdict) *extproc.ProcessingResponse {
	headers := append([]gate.Header{{Name: gate.HeaderVerdict, Value: v.String()}}, r.Headers()...)
	return answerWith(r.Status, r.GRPCStatus, headers, r.Body, v)
}

// answerWith is an answer in place of the backend. The status of gRPC is 0 for other calls.
func answerWith(status int, grpcStatus gate.GRPCStatus, headers []gate.Header, body string, v gate.Verdict) *extproc.ProcessingResponse {
	options := make([]*corev3.HeaderValueOption, len(headers))
	for i, h := range headers {
		options[i] = set(h.Name, h.Value)
		if slices.ContainsFunc(headers[:i], func(before gate.Header) bool { return before.Name == h.Name }) {
			// Of an answer, Envoy 1.40 looks at this one only.
			options[i].AppendAction, options[i].Append = 0, wrapperspb.Bool(true) //nolint:staticcheck // it is deprecated
		}
	}
	var grpc *extproc.GrpcStatus
	if grpcStatus != 0 {
		grpc = &extproc.GrpcStatus{Status: uint32(grpcStatus)}
	}
	return &extproc.ProcessingResponse{
		Response: &extproc.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extproc.ImmediateResponse{
			GrpcStatus: grpc,
			Status:     &typev3.HttpStatus{Code: typev3.StatusCode(status)},
			Headers:    &extproc.HeaderMutation{SetHeaders: options},
			Body:       []byte(body),
			Details:    "ordergate_" + v.String(),
		}},
	}
}

// Replies that continue. They are shared by all streams and read-only.
var (
	goOnRequestHeaders  = onRequest(atHeaders, nil, nil)
	goOnResponseHeaders = onResponse()
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
