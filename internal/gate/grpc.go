package gate

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// GRPCStatus is the status of a gRPC call (grpc/doc/statuscodes.md).
type GRPCStatus int

// The statuses that ordergate sends, or reads.
const (
	grpcOK                 GRPCStatus = 0
	grpcCancelled          GRPCStatus = 1
	grpcUnknown            GRPCStatus = 2
	grpcInvalidArgument    GRPCStatus = 3
	grpcDeadlineExceeded   GRPCStatus = 4
	grpcNotFound           GRPCStatus = 5
	grpcAlreadyExists      GRPCStatus = 6
	grpcFailedPrecondition GRPCStatus = 9
	grpcAborted            GRPCStatus = 10
	grpcInternal           GRPCStatus = 13
	grpcUnavailable        GRPCStatus = 14
	grpcUnauthenticated    GRPCStatus = 16 // the last one
	headerGRPCStatus                  = "grpc-status"
	headerGRPCPushback                = "grpc-retry-pushback-ms"
	grpcContentType                   = "application/grpc"
	grpcNeverRetry                    = "-1" // a client that would retry by itself does not (gRFC A6)
	methodOfGRPC                      = "POST"
	contentType                       = "content-type"
)

// IsGRPC reports whether a request is a gRPC call. It goes by the content type as Envoy does,
// which gives its own answers gRPC's form: application/grpc, alone or with "+" behind it.
// It looks only at requests with gRPC's method, so that refusals of others cost nothing more.
func IsGRPC(req *order.Request) bool {
	if req.Method != methodOfGRPC {
		return false
	}
	value, lines := headerLines(req.Header, contentType)
	rest, ok := strings.CutPrefix(value, grpcContentType)
	return lines == 1 && ok && (rest == "" || rest[0] == '+')
}

// IsGRPCType reports whether an answer with this Content-Type is gRPC's, so that its grpc-status
// says what became of the call: application/grpc, alone or with a suffix or parameters behind it.
// A server may take a request for gRPC that [IsGRPC] does not, and the other way round. So only
// the answer shows which of the two the call was. gRPC-Web is HTTP: its status is in the body.
func IsGRPCType(contentType string) bool {
	if len(contentType) < len(grpcContentType) || !strings.EqualFold(contentType[:len(grpcContentType)], grpcContentType) {
		return false
	}
	rest := contentType[len(grpcContentType):]
	return rest == "" || strings.IndexByte("+; \t,", rest[0]) >= 0
}

// ForGRPC returns the answer in gRPC's form. The body is the message of the status. Envoy sends
// it in a header, in place of a body, and replaces the HTTP status by 200.
func (r Reply) ForGRPC(v Verdict) Reply {
	r.grpc, r.GRPCStatus, r.Body = true, cmp.Or(grpcRefusals[v].status, grpcUnknown), grpcRefusals[v].message
	if r.why != order.NoReason {
		r.Body = r.why.String()
	}
	r.neverRetry = v == VerdictUnlocked || v == VerdictLost // the backend may have acted
	return r
}

// grpcRefusals are the statuses of refusals, and their messages, in ASCII. The messages for requests that
// cannot be read are the sentences of their reasons. After ABORTED, a client may try again at a higher level.
var grpcRefusals = [Verdicts]struct {
	status  GRPCStatus
	message string
}{
	VerdictAbsent:      {grpcNotFound, "the order does not exist"},
	VerdictBusy:        {grpcAborted, "another call settles the order"},
	VerdictInvalid:     {grpcInvalidArgument, ""},
	VerdictAmbiguous:   {grpcInvalidArgument, ""},
	VerdictUnavailable: {grpcUnavailable, "the lock of the order is not available"},
	VerdictOverloaded:  {grpcUnavailable, "too many settlements are in flight"},
	VerdictUnlocked:    {grpcUnavailable, "no lock protected the settlement"},
	VerdictLost:        {grpcUnavailable, "the lease of the order ended before the call"},
	VerdictDuplicate:   {grpcAlreadyExists, "the order exists, or was settled in another way"},
	VerdictMismatch:    {grpcInvalidArgument, "the key was used for another request"},
	VerdictInUse:       {grpcAborted, "the first call with the key has not ended"},
	VerdictNotReady:    {grpcFailedPrecondition, "a condition of the settlement does not hold"},
}

// grpcHeaders returns the headers of an answer to a gRPC call, except the verdict. Envoy keeps
// the status among them. Without it, Envoy would derive one from the HTTP status, or send 0
// (OK) for a dynamic module.
func (r Reply) grpcHeaders() []Header {
	headers := []Header{{headerGRPCStatus, strconv.Itoa(int(r.GRPCStatus))}}
	if r.leaseLost {
		headers = append(headers, Header{HeaderLeaseLost, "true"})
	}
	switch {
	case r.neverRetry:
		headers = append(headers, Header{headerGRPCPushback, grpcNeverRetry})
	case r.RetryAfter > 0:
		headers = append(headers, Header{headerGRPCPushback, strconv.FormatInt(r.RetryAfter.Milliseconds(), 10)})
	}
	return headers
}

// GRPCStatusIn returns the grpc-status in the trailers of an answer, or in its headers. It
// returns "" if there is none, or if there are several.
func GRPCStatusIn(header order.Header) string {
	status, lines := headerLines(header, headerGRPCStatus)
	if lines != 1 {
		return ""
	}
	return strings.Clone(status)
}

// parseGRPCStatus returns false for a text that is not one of gRPC's statuses.
func parseGRPCStatus(text string) (s GRPCStatus, ok bool) {
	n, err := strconv.Atoi(text)
	s = GRPCStatus(n)
	return s, err == nil && strconv.Itoa(n) == text && s >= grpcOK && s <= grpcUnauthenticated
}

// isKnownGRPC reports whether a status proves that the backend has finished a call.
//
// These do not. gRPC's libraries make them without the application, in a server whose handler
// still runs, or in a proxy that has lost the call:
//
//   - CANCELLED, DEADLINE_EXCEEDED: a server answers when its client leaves, or at the
//     deadline. Java's handler runs on.
//   - UNAVAILABLE: a proxy whose connection broke, such as the Envoy of a mesh.
//   - INTERNAL: a proxy whose stream was reset, or ended without trailers.
//   - UNKNOWN: a proxy that received an answer without a status. A server also sends it for
//     an exception, after which other work of the handler may go on.
//
// Others come from the application, or from a library before or after its work.
func isKnownGRPC(text string) bool {
	status, ok := parseGRPCStatus(text)
	if !ok {
		return false
	}
	switch status {
	case grpcCancelled, grpcUnknown, grpcDeadlineExceeded, grpcInternal, grpcUnavailable:
		return false
	}
	return true
}

// grpcReason says why the outcome of a gRPC call is unknown although its answer has ended.
func grpcReason(status string) string {
	if s, ok := parseGRPCStatus(status); ok {
		return "the answer ended with grpc-status " + strconv.Itoa(int(s)) + ", which a proxy or a library may have made"
	}
	return "the answer to a gRPC call ended without a grpc-status"
}

// asHTTP returns gRPC's answer to a create with the HTTP status that means the same. Only an
// answer that its headers end has a status yet. Other answers stay as they are: they carry a
// message, or fail in the trailers.
func (r *Response) asHTTP() *Response {
	if !r.Ended || r.Outcome() != OutcomeKnown || r.Status >= 400 {
		return r
	}
	converted := *r
	status, ok := parseGRPCStatus(r.GRPCStatus)
	switch {
	case !ok || !isKnownGRPC(r.GRPCStatus):
		converted.grpcUnknown = true
	case status == grpcAlreadyExists:
		converted.Status = 409
	case status != grpcOK:
		converted.Status = 400
	}
	return &converted
}
