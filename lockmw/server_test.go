package lockmw

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBracket(t *testing.T) {
	b := newBed(t)
	b.lock.Grants <- nil
	s := b.open()
	r := s.say(settle())
	got := map[string]string{}
	for _, h := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		got[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	if got[gate.HeaderKey] != "lock:42" || got[gate.HeaderFence] != "7" || got[gate.HeaderLease] != "owner" || got[gate.HeaderVerdict] != "acquired" {
		t.Errorf("headers to the backend: %v", got)
	}
	if m := r.GetModeOverride(); m.GetResponseTrailerMode() != procmode.ProcessingMode_SEND || m.GetResponseBodyMode() != procmode.ProcessingMode_STREAMED {
		t.Errorf("mode %v: the answer's end would not be seen", m)
	}
	s.say(answered("200", "via_upstream"))
	s.say(bodyPart(false))
	if did := b.did.Short(); did != "acquire 42" {
		t.Errorf("before the end: %s", did)
	}
	s.say(bodyPart(true))
	s.leave()
	b.wantDid("acquire 42, release")
}

// TestAnswersEnd has answers end in each way, and break off.
func TestAnswersEnd(t *testing.T) {
	headersAlone := answered("204", "via_upstream")
	headersAlone.GetResponseHeaders().EndOfStream = true
	trailers := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}}
	ok := answered("200", "via_upstream")
	for name, tt := range map[string]struct {
		answer []*extproc.ProcessingRequest
		want   string
	}{
		"headers alone":      {[]*extproc.ProcessingRequest{headersAlone}, "release"},
		"a body":             {[]*extproc.ProcessingRequest{ok, bodyPart(true)}, "release"},
		"trailers":           {[]*extproc.ProcessingRequest{ok, bodyPart(false), trailers}, "release"},
		"behind the headers": {[]*extproc.ProcessingRequest{ok}, "hold"},
		"within the body":    {[]*extproc.ProcessingRequest{ok, bodyPart(false)}, "hold"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.lock.Grants <- nil
			s := b.open()
			s.say(settle())
			for _, msg := range tt.answer {
				s.say(msg)
			}
			s.leave()
			b.wantDid("acquire 42, " + tt.want)
		})
	}
}

// TestWithinAnother presents a lease, and a forged fence beside it: neither may
// reach the backend as it is.
func TestWithinAnother(t *testing.T) {
	b := newBed(t)
	b.lock.Grants <- nil
	s := b.open()
	r := s.say(whole(requestHeaders(
		":method", "POST", ":path", "/orders/42/settle", gate.HeaderLease, "outer:1", gate.HeaderFence, "99")))
	mutation := r.GetRequestHeaders().GetResponse().GetHeaderMutation()
	for _, name := range []string{gate.HeaderKey, gate.HeaderFence, gate.HeaderLease, gate.HeaderVerdict} {
		if !slices.Contains(mutation.GetRemoveHeaders(), name) {
			t.Errorf("%s is not removed: of one that came twice, the second would stay", name)
		}
	}
	s.say(answered("200", "via_upstream"))
	s.say(bodyPart(true))
	s.leave()
	b.wantDid("acquire 42, presents outer:1, release")
}

// TestLeaseLostDuringTheCall loses the lease before the answer: the call is ended, and its
// lock is held if it can be.
func TestLeaseLostDuringTheCall(t *testing.T) {
	b := newBed(t)
	b.lock.Grants <- nil
	s := b.open()
	s.say(settle())
	b.lock.Lose()
	r := s.hear().GetImmediateResponse()
	if r.GetStatus().GetCode() != 503 || r.GetDetails() != "ordergate_lost" {
		t.Errorf("the call is ended with %v", r)
	}
	isLost := func(h *corev3.HeaderValueOption) bool { return h.GetHeader().GetKey() == gate.HeaderLeaseLost }
	if !slices.ContainsFunc(r.GetHeaders().GetSetHeaders(), isLost) {
		t.Error("the answer does not say that the lease is lost")
	}
	s.leave()
	b.wantDid("acquire 42, hold")
}

// TestLeaseLostDuringTheAnswer loses it later: the answer passes.
func TestLeaseLostDuringTheAnswer(t *testing.T) {
	b := newBed(t)
	b.lock.Grants <- nil
	s := b.open()
	s.say(settle())
	s.say(answered("200", "via_upstream"))
	b.lock.Lose()
	s.say(bodyPart(true))
	s.leave()
	b.wantDid("acquire 42, release")
}

func TestRefusals(t *testing.T) {
	tests := []struct {
		name, path string
		grant      error
		status     int32
		verdict    string
	}{
		{"busy", "/orders/42/settle", gate.ErrBusy, 409, "busy"},
		{"redis lost", "/orders/42/settle", errors.New("connection refused"), 503, "unavailable"},
		{"malformed", "/orders/042/settle", nil, 400, "invalid"},
		{"too many at once", "/orders/42/settle", gate.ErrOverloaded, 503, "overloaded"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			if b.lock.Grants <- tt.grant; tt.verdict == "overloaded" {
				b.lock.Grants, b.lock.Err = nil, tt.grant
			}
			s := b.open()
			r := s.say(whole(requestHeaders(":method", "POST", ":path", tt.path))).GetImmediateResponse()
			if int32(r.GetStatus().GetCode()) != tt.status || r.GetDetails() != "ordergate_"+tt.verdict {
				t.Errorf("refused with %v", r)
			}
			for _, h := range r.GetHeaders().GetSetHeaders() {
				if h.GetHeader().GetKey() == "retry-after" && string(h.GetHeader().GetRawValue()) != "2" {
					t.Errorf("retry-after %s, want 1.5s rounded up", h.GetHeader().GetRawValue())
				}
			}
			if err := s.CloseSend(); err != nil { // as Envoy does at an answer in the backend's stead
				t.Error(err)
			}
			s.wantEnd()
		})
	}
}

func TestUnruled(t *testing.T) {
	b := newBed(t)
	s := b.open()
	r := s.say(requestHeaders(":method", "GET", ":path", "/"))
	if r.GetModeOverride().GetResponseHeaderMode() != procmode.ProcessingMode_SKIP {
		t.Errorf("mode %v, want the rest skipped", r.GetModeOverride())
	}
	s.wantEnd()
}

// TestForm has a form that may be a settlement's looked into, and passed on.
func TestForm(t *testing.T) {
	for body, refused := range map[string]bool{"action=login": false, "do=settle&id=42": true} {
		b := newBed(t)
		s := b.open()
		r := s.say(requestHeaders(":method", "POST", ":path", "/index.php", "content-type", "application/x-www-form-urlencoded"))
		if m := r.GetModeOverride(); m.GetRequestBodyMode() != procmode.ProcessingMode_BUFFERED || m.GetResponseHeaderMode() != procmode.ProcessingMode_SKIP {
			t.Fatalf("%s: mode %v, want the request's body and no more", body, m)
		}
		r = s.say(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{
			RequestBody: &extproc.HttpBody{Body: []byte(body), EndOfStream: true}}})
		if (r.GetImmediateResponse() != nil) != refused || (r.GetRequestBody() == nil) != refused {
			t.Errorf("%s: got %v, refused should be %t", body, r, refused)
		}
		s.wantEnd()
	}
}

func TestAbortWhileWaiting(t *testing.T) {
	b := newBed(t)
	s := b.open()
	if err := s.Send(settle()); err != nil {
		t.Fatal(err)
	}
	b.wantDid("acquire 42")
	s.leave()
	b.wantDid("acquire 42, gave up")
}

// TestAnswerWhileWaiting is Envoy answering by itself (a stream timeout, say)
// before the lock came.
func TestAnswerWhileWaiting(t *testing.T) {
	b := newBed(t)
	s := b.open()
	if err := s.Send(settle()); err != nil {
		t.Fatal(err)
	}
	b.wantDid("acquire 42")
	s.say(answered("408", "stream_idle_timeout"))
	b.wantDid("acquire 42, gave up")
}

// stuck opens a stream of a settlement that waits for its lock. Its client takes up no replies until it leaves;
// leave returns when the stream has ended.
func (b *bed) stuck() (s *stuckStream, leave func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	s = &stuckStream{ctx: ctx, in: make(chan *extproc.ProcessingRequest, 2), sending: make(chan struct{}, 2)}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = b.server.Process(s) }()
	s.in <- settle()
	b.wantDid("acquire 42")
	return s, func() { cancel(); <-ended }
}

// TestStuckClient has a client take up no replies while it waits: that delays no one else's lock.
func TestStuckClient(t *testing.T) {
	b := newBed(t)
	l := servedLock{b.lock, make(chan struct{})}
	rule := order.Rule{
		Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
		IDs: []order.ID{{In: order.InPath, Name: "id", Format: order.Format{Kind: order.Digits, Min: 1, Max: 19}}},
	}
	b.server.Use(gatetest.Gate(t, []gate.Policy{{Rule: rule, Settle: &gate.Settle{Lock: l}}}, gatetest.Silent{}))
	s, leave := b.stuck()
	defer leave()
	s.in <- bodyPart(false)
	bedtest.Receive(t, "a reply", s.sending)
	b.lock.Grants <- nil
	bedtest.Receive(t, "the locker to be free for others", l.served)
}

// TestUnsent has Envoy leave while it is told to forward a request: it has not, and the lock is released.
func TestUnsent(t *testing.T) {
	b := newBed(t)
	s, leave := b.stuck()
	b.lock.Grants <- nil
	bedtest.Receive(t, "the reply", s.sending)
	leave()
	b.wantDid("acquire 42, release")
}

// TestCreate has what becomes of the order done before the answer goes on.
func TestCreate(t *testing.T) {
	type messages []*extproc.ProcessingRequest
	create, form := requestHeaders(":method", "POST", ":path", "/orders"), requestHeaders(":method", "POST", ":path", "/orders.php")
	ended, located := answered("204", "via_upstream"), answered("303", "via_upstream")
	ended.GetResponseHeaders().EndOfStream = true
	headers := located.GetResponseHeaders().Headers
	headers.Headers = append(headers.Headers, &corev3.HeaderValue{Key: "location", RawValue: []byte("/orders/42")})
	body := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: []byte(`{"id": 42}`), EndOfStream: true}}}
	part := &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
		ResponseBody: &extproc.HttpBody{Body: []byte(`{"id": 42, "lines": [`)}}}
	for _, tt := range []struct {
		name   string
		shows  messages
		leaves bool // the client, after these
		did    string
	}{
		{"learned before the body goes on", messages{create, answered("201", "via_upstream"), body}, false, "learn 42"},
		{"learned from what fits into Envoy's buffer", messages{create, answered("201", "via_upstream"), part}, false, "learn 42"},
		{"not created", messages{create, answered("422", "via_upstream")}, false, ""},
		{"no body", messages{create, ended}, false, "incomplete"},
		{"the client leaves", messages{create}, true, "abandoned"},
		{"the client leaves in the middle of the answer", messages{create, answered("201", "via_upstream")}, true, "abandoned"},
		{"Envoy shows no headers", messages{create, body}, false, "learn 42"},
		{"Envoy answers", messages{create, answered("504", "response_timeout")}, false, "abandoned"},
		{"Envoy answers without the backend", messages{create, answered("503", "no_healthy_upstream")}, false, ""},
		{"Envoy sends no attributes", messages{create, answeredWith("201", nil), body}, false, "learn 42"},
		{"from a part of a header", messages{form, located}, false, "learn 42"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			s := b.open()
			var mode procmode.ProcessingMode_BodySendMode
			for i, msg := range tt.shows {
				mode = s.say(msg).GetModeOverride().GetResponseBodyMode()
				if reads := mode == procmode.ProcessingMode_BUFFERED_PARTIAL; i == 0 && reads != (msg == create) {
					t.Errorf("mode %v", mode)
				}
			}
			if tt.leaves {
				s.leave()
				b.wantDid(tt.did)
				return
			}
			if did := b.did.Short(); did != tt.did || mode != procmode.ProcessingMode_NONE {
				t.Errorf("did %q before the answer goes on, mode %v", did, mode)
			}
			s.wantEnd()
		})
	}
	t.Run("Envoy may show no body", func(t *testing.T) {
		b := newBed(t)
		b.filter.Tables, b.filter.Late = true, true
		for _, want := range []string{"caught up, incomplete", "caught up, incomplete, learn 42"} { // it shows one
			s := b.open()
			s.say(create)
			s.say(answered("201", "via_upstream"))
			if did := b.did.Short(); did != want {
				t.Errorf("did %q before the answer goes on, want %q", did, want)
			}
			s.say(body)
		}
	})
}

// TestStrangeStreams sends what no Envoy should: an answer each time.
func TestStrangeStreams(t *testing.T) {
	tests := []struct {
		name string
		msg  *extproc.ProcessingRequest
	}{
		{"begins with response headers", answered("403", "upgrade_failed")},
		{"begins with a body", &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{}}}},
		{"begins with trailers", &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}}},
		{"empty message", &extproc.ProcessingRequest{}},
		{"no headers", &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{}}},
		{"path of 100 kB", requestHeaders(":method", "POST", ":path", "/orders/"+strings.Repeat("4", 100_000)+"/settle")},
		{"not UTF-8", requestHeaders(":method", "POST", ":path", "/orders/\xff\xfe/settle", "x-note", "\xff")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			s := b.open()
			s.say(tt.msg)
			s.wantEnd()
		})
	}
}

// TestEveryMessageIsAnswered has all kinds of message arrive during a settlement.
func TestEveryMessageIsAnswered(t *testing.T) {
	b := newBed(t)
	b.lock.Grants <- nil
	s := b.open()
	s.say(settle())
	for _, msg := range []*extproc.ProcessingRequest{
		{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte("x")}}},
		{Request: &extproc.ProcessingRequest_RequestTrailers{RequestTrailers: &extproc.HttpTrailers{}}},
		answered("200", "via_upstream"),
		{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: &extproc.HttpBody{Body: []byte("x")}}},
		{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}},
	} {
		r := s.say(msg)
		if got, want := typeOf(r.GetResponse()), typeOf(msg.GetRequest()); got != want {
			t.Errorf("answered %s with %s", want, got)
		}
	}
	s.leave()
	b.wantDid("acquire 42, release")
}

func typeOf(v any) string {
	switch v.(type) {
	case *extproc.ProcessingRequest_RequestBody, *extproc.ProcessingResponse_RequestBody:
		return "request body"
	case *extproc.ProcessingRequest_RequestTrailers, *extproc.ProcessingResponse_RequestTrailers:
		return "request trailers"
	case *extproc.ProcessingRequest_ResponseHeaders, *extproc.ProcessingResponse_ResponseHeaders:
		return "response headers"
	case *extproc.ProcessingRequest_ResponseBody, *extproc.ProcessingResponse_ResponseBody:
		return "response body"
	case *extproc.ProcessingRequest_ResponseTrailers, *extproc.ProcessingResponse_ResponseTrailers:
		return "response trailers"
	}
	return "nothing"
}

// TestSharedReplies has creates say more than "go on", in replies of their own: those that
// all streams share say the same before and after.
func TestSharedReplies(t *testing.T) {
	b := newBed(t)
	for range 2 {
		s := b.open()
		s.say(requestHeaders(":method", "POST", ":path", "/orders"))
		s.say(answered("422", "via_upstream"))
	}
	if m := goOnResponseHeaders.GetModeOverride(); m != nil {
		t.Errorf("all streams share the mode of one: %v", m)
	}
}
