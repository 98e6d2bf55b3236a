package lockmw

import (
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// settleRPC is settle as a gRPC call.
func settleRPC() *extproc.ProcessingRequest {
	return whole(requestHeaders(":method", "POST", ":path", "/orders/42/settle", ":authority", "shop", "content-type", "application/grpc"))
}

// TestGRPCRefusal has the status in the field that Envoy reads, and in a header.
func TestGRPCRefusal(t *testing.T) {
	b := newBed(t)
	b.lock.Grants <- gate.ErrBusy
	answer := b.open().say(settleRPC()).GetImmediateResponse()
	header := make(map[string]string)
	for _, h := range answer.GetHeaders().GetSetHeaders() {
		header[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	if answer.GetGrpcStatus().GetStatus() != 10 || header["grpc-status"] != "10" || header["grpc-retry-pushback-ms"] != "1500" || header["retry-after"] != "" {
		t.Errorf("got %v", answer)
	}
}

// TestGRPCAnswers reads the status of an answer in its trailers, or in headers that end it.
func TestGRPCAnswers(t *testing.T) {
	trailers := func(pairs ...string) *extproc.ProcessingRequest {
		return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{
			ResponseTrailers: &extproc.HttpTrailers{Trailers: headersOf(pairs...).GetHeaders()}}}
	}
	with := func(pairs ...string) *extproc.ProcessingRequest {
		msg := answered("200", "via_upstream")
		headers := msg.GetResponseHeaders().Headers
		headers.Headers = append(headers.Headers, headersOf(pairs...).GetHeaders().GetHeaders()...)
		return msg
	}
	ok, alone := with("content-type", "application/grpc"), with("content-type", "application/grpc", "grpc-status", "5")
	alone.GetResponseHeaders().EndOfStream = true
	for name, tt := range map[string]struct {
		answer []*extproc.ProcessingRequest
		want   string
	}{
		"trailers":            {[]*extproc.ProcessingRequest{ok, bodyPart(false), trailers("grpc-status", "0")}, "release"},
		"trailers of a proxy": {[]*extproc.ProcessingRequest{ok, bodyPart(false), trailers("grpc-message", "", "grpc-status", "14")}, "hold"},
		"other trailers":      {[]*extproc.ProcessingRequest{ok, bodyPart(false), trailers("x-checksum", "0")}, "hold"},
		"two statuses":        {[]*extproc.ProcessingRequest{ok, bodyPart(false), trailers("grpc-status", "0", "grpc-status", "0")}, "hold"},
		"headers alone":       {[]*extproc.ProcessingRequest{alone}, "release"},
		"no trailers":         {[]*extproc.ProcessingRequest{ok, bodyPart(true)}, "hold"},
		"an answer of HTTP":   {[]*extproc.ProcessingRequest{with("content-type", "application/json"), bodyPart(true)}, "release"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.lock.Grants <- nil
			s := b.open()
			s.say(settleRPC())
			for _, msg := range tt.answer {
				s.say(msg)
			}
			s.leave()
			b.wantDid("acquire 42, " + tt.want)
		})
	}
}
