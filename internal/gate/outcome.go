package gate

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// Outcome is what happened to a call at the backend.
type Outcome int8

// The outcomes. OutcomeUnknown is the zero value: without evidence the backend may still be
// at work.
const (
	OutcomeUnknown      Outcome = iota // the backend may have acted, or may still act
	OutcomeKnown                       // the backend answered
	OutcomeNotForwarded                // the backend certainly did not receive the request
	outcomes
)

// Outcomes is the number of outcomes, for tables indexed by one.
const Outcomes = int(outcomes)

var outcomeNames = [Outcomes]string{"unknown", "known", "not_forwarded"}

// String returns the name that metrics and logs use.
func (o Outcome) String() string { return outcomeNames[o] }

// Response is what an adapter reports about an answer when its headers arrive.
type Response struct {
	Status int
	// Details is Envoy's response.code_details; "" when not given.
	Details string
	// Attempts is Envoy's upstream.request_attempt_count; -1 when not given.
	Attempts int
	// HasServiceTime means that the answer has x-envoy-upstream-service-time, which Envoy
	// sets on a backend's answer.
	HasServiceTime bool
	// AttemptHeader is x-envoy-attempt-count of the answer; -1 when not given.
	AttemptHeader int
	// Header are the answer's headers, valid during the event. Nil: not given.
	Header order.Header
	// Ended means that the headers end the answer: it has no body and no trailers.
	Ended bool
	// GRPC means that the answer is gRPC's, by its Content-Type: see [IsGRPCType].
	GRPC bool
	// GRPCStatus is the result of [GRPCStatusIn] for the headers of an answer that has ended.
	GRPCStatus  string
	grpcUnknown bool // of a gRPC create: the status leaves the outcome unknown
	said        bool // the rule's answer says what it means: see [Answers.readOutcome]
}

// ResponseOf reads the headers of an answer. Ended means that they end it.
func ResponseOf(headers order.Header, ended bool) *Response {
	r := &Response{Attempts: -1, AttemptHeader: -1, Header: headers, Ended: ended}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			return -1
		}
		return n
	}
	for name, value := range order.All(headers) {
		switch name {
		case ":status":
			r.Status = number(value)
		case "x-envoy-upstream-service-time":
			r.HasServiceTime = true
		case "x-envoy-attempt-count":
			r.AttemptHeader = number(value)
		case contentType:
			r.GRPC = r.GRPC || IsGRPCType(value)
		}
	}
	if ended {
		r.GRPCStatus = GRPCStatusIn(headers)
	}
	return r
}

const (
	detailsViaUpstream = "via_upstream"
	resetBeforeAnswer  = "upstream_reset_before_response_started{"
)

// notForwarded lists Envoy's own answers after which it has sent no byte of the request, as
// measured with Envoy 1.40.
var notForwarded = []string{
	"no_healthy_upstream",
	"cluster_not_found",
	"route_not_found",
	"direct_response",
	resetBeforeAnswer + "remote_connection_failure",
	resetBeforeAnswer + "local_connection_failure",
	resetBeforeAnswer + "overflow",
}

// Outcome derives the outcome from an answer. The status alone says little: only Envoy's
// details distinguish a backend's own 503 from a reset, after which the backend may still
// be at work. After more than one attempt the outcome is Unknown, because the first attempt
// may still run. So is a status that proves nothing.
//
// For an Envoy that does not send the attributes, it needs both of Envoy's own headers, because
// x-envoy-upstream-service-time alone does not show retries.
func (r *Response) Outcome() Outcome {
	answered := r.Details == detailsViaUpstream && r.Attempts == 1 ||
		r.Details == "" && r.Attempts < 0 && r.HasServiceTime && r.AttemptHeader == 1
	switch {
	case r.grpcUnknown:
		return OutcomeUnknown
	case answered && !r.provesNothing():
		return OutcomeKnown
	case r.Details == detailsViaUpstream:
		return OutcomeUnknown
	case r.Attempts == 0:
		return OutcomeNotForwarded
	case r.Attempts == 1 && r.NeverSent():
		return OutcomeNotForwarded
	}
	return OutcomeUnknown
}

// LacksAttributes reports whether the answer lacks all evidence of its outcome: the two
// attributes and the attempt header.
func (r *Response) LacksAttributes() bool {
	return (r.Details == "" || r.Attempts < 0) && r.AttemptHeader < 0
}

// NeverSent reports whether Envoy's details say that the last attempt sent no byte of the
// request. About earlier attempts they say something only with the number of attempts.
func (r *Response) NeverSent() bool {
	return slices.ContainsFunc(notForwarded, func(prefix string) bool { return strings.HasPrefix(r.Details, prefix) })
}

// maxUnknownReason bounds the part of Envoy's details that is copied, in bytes: they may
// quote a transport error.
const maxUnknownReason = 160

// unknownReason explains why the outcome of an answer is unknown.
func (r *Response) unknownReason() string {
	text, attempts := r.Details, r.Attempts
	switch {
	case r.grpcUnknown:
		text = grpcReason(r.GRPCStatus)
	case text == "" && attempts < 0 && r.HasServiceTime && r.AttemptHeader > 1:
		text, attempts = "answered", r.AttemptHeader
	case text == "":
		text = "Envoy does not report the origin of the answer"
	case text == detailsViaUpstream && attempts < 1:
		text += ", after an unknown number of attempts"
	case text == detailsViaUpstream && attempts == 1 && r.fromGateway():
		text = "a gateway before the backend may have no answer of it: " + strconv.Itoa(r.Status)
	case text == detailsViaUpstream && attempts == 1 && r.Status == http.StatusNotAcceptable:
		text = "the backend may have acted before it answered 406: the request's Accept names no form that it has"
	}
	if len(text) > maxUnknownReason {
		text = text[:maxUnknownReason] + "..."
	}
	if attempts > 1 {
		text += " after " + strconv.Itoa(attempts) + " attempts"
	}
	return text
}

// madeNoOrder reports whether the call certainly made no order: the backend did not receive
// it, or refused it at the first and only attempt. A conflict is not such a refusal: an
// order exists, and the answer may name it.
func (r *Response) madeNoOrder() bool {
	switch r.Outcome() {
	case OutcomeNotForwarded:
		return true
	case OutcomeKnown:
		return r.Status >= 400 && r.Status < 600 && r.Status != http.StatusConflict
	}
	return false
}

// fromGateway reports whether the status may come from a gateway, for example from a web server in
// front of the application or the proxy of a mesh, which has no answer of the application (RFC 9110,
// 15.6.3 to 15.6.5). The application may have acted, and may still be at work: nginx ends its wait for
// PHP after fastcgi_read_timeout, and PHP continues. An Envoy answers 503 when its connection to the
// application was reset. Only the rule can say that a 503 is the application's own.
func (r *Response) fromGateway() bool {
	return r.Status == http.StatusBadGateway || r.Status == http.StatusGatewayTimeout ||
		r.Status == http.StatusServiceUnavailable && !r.said
}

// provesNothing reports whether the status says nothing about the effect of the call. Spring runs
// the handler before it answers 406, which a client can have by its Accept.
func (r *Response) provesNothing() bool {
	return r.fromGateway() || r.Status == http.StatusNotAcceptable
}

// retried reports whether Envoy certainly made more than one attempt.
func (r *Response) retried() bool {
	return r.Attempts > 1 || r.Attempts < 0 && r.AttemptHeader > 1
}

// forwarded reports whether the backend may have received the request. Without Envoy's
// attributes, an error counts as Envoy's own answer.
func (r *Response) forwarded() bool {
	return r.fromBackend() || r.Attempts > 0 || r.AttemptHeader > 0 ||
		r.Details == "" && r.Attempts < 0 && r.Status < http.StatusBadRequest
}

// fromBackend reports whether the answer is the backend's own.
func (r *Response) fromBackend() bool {
	return r.Details == detailsViaUpstream || r.Details == "" && r.HasServiceTime
}
