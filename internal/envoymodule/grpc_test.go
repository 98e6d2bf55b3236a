package envoymodule

import (
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
)

// header returns a header of the answer that was given here; "": none.
func (e *envoy) header(name string) string {
	for _, h := range e.reply.Headers {
		if h.Name == name {
			return h.Value
		}
	}
	return ""
}

// TestGRPCRefusals has a status of gRPC's in every answer: Envoy would send 0 (OK) without one.
func TestGRPCRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		path    string
		grant   error
		fault   bool
		status  string
		verdict string
	}{
		"malformed": {"/orders/x/settle", nil, false, "3", "invalid"},
		"busy":      {"/orders/42/settle", gate.ErrBusy, false, "10", "busy"},
		"a fault":   {"/orders/42/settle", nil, true, "14", "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			b.lock.Fault = tt.fault
			b.lock.Grants <- tt.grant
			e, _ := b.beginAs("application/grpc+proto", "POST", tt.path, true)
			b.until("it is refused", func() bool { return e.reply != nil })
			b.worker.do(func() {
				if got := e.header("grpc-status"); got != tt.status || e.header(gate.HeaderVerdict) != tt.verdict || e.header("content-type") != "" {
					t.Errorf("got %+v", e.reply)
				}
			})
			b.end(e)
		})
	}
}

// TestGRPCAnswers reads the status of an answer in its trailers, or in headers that end it.
func TestGRPCAnswers(t *testing.T) {
	respond := func(e *envoy) {
		e.headers[Response] = headersOf(":status", "200", "content-type", "application/grpc")
		e.on(ResponseHeaders, false)
	}
	for name, tt := range map[string]struct {
		answer func(b *bench, e *envoy)
		want   string
	}{
		"trailers": {func(_ *bench, e *envoy) {
			respond(e)
			e.more("x", false)
			e.headers[ResponseTrailer] = headersOf("grpc-status", "0")
			e.on(ResponseTrailers, true)
		}, "acquire 42, release"},
		"trailers of a proxy": {func(_ *bench, e *envoy) {
			respond(e)
			e.headers[ResponseTrailer] = headersOf("grpc-status", "14")
			e.on(ResponseTrailers, true)
		}, "acquire 42, hold"},
		"headers alone": {func(_ *bench, e *envoy) {
			e.headers[Response] = headersOf(":status", "200", "content-type", "application/grpc", "grpc-status", "9")
			e.on(ResponseHeaders, true)
		}, "acquire 42, release"},
		"no status": {func(_ *bench, e *envoy) {
			respond(e)
			e.more("x", true)
		}, "acquire 42, hold"},
		"an answer of HTTP": {func(_ *bench, e *envoy) {
			e.respond("200", false)
			e.more("x", true)
		}, "acquire 42, release"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, Options{})
			b.lock.Grants <- nil
			e, _ := b.beginAs("application/grpc", "POST", "/orders/42/settle", true)
			b.until("it is forwarded", func() bool { return e.continued == 1 })
			b.worker.do(func() {
				e.details, e.attempts = "via_upstream", 1
				tt.answer(b, e)
			})
			b.end(e)
			b.until(tt.want, func() bool { return b.lock.Journal.Short() == tt.want })
		})
	}
}
