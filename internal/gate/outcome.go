package gate

import (
	"net/http"
	"strconv"
	"strings"
)

// Outcome is what became of a call.
type Outcome int8

// The outcomes. OutcomeUnknown is the zero value: without evidence the backend
// may still be at work.
const (
	OutcomeUnknown      Outcome = iota // the backend may have acted, or still act
	OutcomeKnown                       // the backend answered
	OutcomeNotForwarded                // the backend certainly never saw the request
	outcomes
)

// Outcomes is the number of outcomes, for tables indexed by one.
const Outcomes = int(outcomes)

var outcomeNames = [Outcomes]string{"unknown", "known", "not_forwarded"}

// String returns the name that metrics and logs use.
func (o Outcome) String() string { return outcomeNames[o] }

// Response is what a face can tell of an answer when its headers arrive.
type Response struct {
	Status int
	// Details is Envoy's response.code_details; "" when not given.
	Details string
	// Attempts is Envoy's upstream.request_attempt_count; -1 when not given.
	Attempts int
	// HasServiceTime tells that the answer carries x-envoy-upstream-service-time, which
	// Envoy sets on what a backend answered.
	HasServiceTime bool
	// AttemptHeader is x-envoy-attempt-count of the answer; -1 when not given.
	AttemptHeader int
}

const (
	detailsViaUpstream = "via_upstream"
	resetBeforeAnswer  = "upstream_reset_before_response_started{"
)

// notForwarded lists what Envoy answers in the backend's stead without having
// sent it a byte of the request, as measured on Envoy 1.40.
var notForwarded = []string{
	"no_healthy_upstream",
	"cluster_not_found",
	"route_not_found",
	"direct_response",
	resetBeforeAnswer + "remote_connection_failure",
	resetBeforeAnswer + "local_connection_failure",
	resetBeforeAnswer + "overflow",
}

// Outcome reads the outcome off an answer. A status says hardly anything: only Envoy's
// details tell a backend's own 503 from a reset, after which the backend may still be
// running. An answer that took more than one attempt is Unknown, since the first may be
// running yet; so is that of a gateway, which knows none of what it has forwarded to.
func (r *Response) Outcome() Outcome {
	if r.Details == "" && r.Attempts < 0 {
		return r.outcomeByHeaders()
	}
	switch {
	case r.Details == detailsViaUpstream && r.Attempts == 1 && !r.fromGateway():
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

// LacksAttributes reports whether the answer has nothing to read an outcome off: neither the two
// attributes nor the number of attempts in a header.
func (r *Response) LacksAttributes() bool {
	return (r.Details == "" || r.Attempts < 0) && r.AttemptHeader < 0
}

// NeverSent reports whether Envoy's details are those of an answer to a request of which
// the last attempt sent no byte. Only together with their number they tell of the others.
func (r *Response) NeverSent() bool {
	for _, prefix := range notForwarded {
		if strings.HasPrefix(r.Details, prefix) {
			return true
		}
	}
	return false
}

// outcomeByHeaders serves an Envoy that was not told to send the attributes. It
// asks for both of Envoy's own headers, since x-envoy-upstream-service-time
// alone is silent about retries.
func (r *Response) outcomeByHeaders() Outcome {
	if r.HasServiceTime && r.AttemptHeader == 1 && !r.fromGateway() {
		return OutcomeKnown
	}
	return OutcomeUnknown
}

// maxUnknownReason bounds what is told of Envoy's details, in bytes: they may quote an
// error of the transport.
const maxUnknownReason = 160

// unknownReason says why the outcome of an answer is unknown.
func (r *Response) unknownReason() string {
	text, attempts := r.Details, r.Attempts
	switch {
	case text == "" && attempts < 0 && r.HasServiceTime && r.AttemptHeader > 1:
		text, attempts = "answered", r.AttemptHeader
	case text == "":
		text = "Envoy does not tell where the answer is from"
	case text == detailsViaUpstream && attempts < 1:
		text += ", after nobody knows how many attempts"
	case text == detailsViaUpstream && attempts == 1 && r.fromGateway():
		text = "a gateway before the backend has no answer of it: " + strconv.Itoa(r.Status)
	}
	if len(text) > maxUnknownReason {
		text = text[:maxUnknownReason] + "..."
	}
	if attempts > 1 {
		text += " after " + strconv.Itoa(attempts) + " attempts"
	}
	return text
}

// madeNoOrder reports whether the call certainly made no order: the backend never saw it, or
// refused it at the first and only attempt. A conflict is no such refusal: an order
// exists that the client may be told of.
func (r *Response) madeNoOrder() bool {
	switch r.Outcome() {
	case OutcomeNotForwarded:
		return true
	case OutcomeKnown:
		return r.Status >= 400 && r.Status < 600 && r.Status != http.StatusConflict
	}
	return false
}

// fromGateway reports whether the status is that of a gateway, a web server before the
// application say, which knows no answer of it (RFC 9110, 15.6.3 and 15.6.5): what it has
// forwarded the call to may have acted, and may still be at work. nginx gives PHP up after
// fastcgi_read_timeout, and PHP goes on.
func (r *Response) fromGateway() bool {
	return r.Status == http.StatusBadGateway || r.Status == http.StatusGatewayTimeout
}

// retried reports whether the answer is certainly not that of the only attempt.
func (r *Response) retried() bool {
	return r.Attempts > 1 || r.Attempts < 0 && r.AttemptHeader > 1
}

// mayBeFromBackend reports whether the answer is not certainly Envoy's own.
func (r *Response) mayBeFromBackend() bool {
	return r.Details == "" || r.fromBackend()
}

// forwarded reports whether the backend may have had the request. Without a word of Envoy's
// an error counts as its own.
func (r *Response) forwarded() bool {
	return r.fromBackend() || r.Attempts > 0 || r.AttemptHeader > 0 ||
		r.Details == "" && r.Attempts < 0 && r.Status < http.StatusBadRequest
}

// fromBackend reports whether the answer is the backend's own.
func (r *Response) fromBackend() bool {
	return r.Details == detailsViaUpstream || r.Details == "" && r.HasServiceTime
}
