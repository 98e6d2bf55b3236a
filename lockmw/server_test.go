package lockmw

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// locks is a Locker whose grants a test decides, and which writes down what
// becomes of them. (That the real one keeps its word is tested in redislock.)
type locks struct {
	grant chan error // an answer to each Acquire

	mu   sync.Mutex
	did  []string
	lost chan struct{}
}

func newLocks() *locks { return &locks{grant: make(chan error, 10), lost: make(chan struct{})} }

func (l *locks) note(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.did = append(l.did, what)
}

func (l *locks) noted() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.did, " ")
}

func (l *locks) Key(id string) string { return "lock:" + id }
func (l *locks) Acquire(ctx context.Context, id string) (gate.Lease, error) {
	l.note("ask:" + id)
	select {
	case err := <-l.grant:
		if err != nil {
			return nil, err
		}
		return l, nil
	case <-ctx.Done():
		l.note("gave-up")
		return nil, ctx.Err()
	}
}
func (l *locks) Fence() int64                  { return 7 }
func (l *locks) Owner() string                 { return "owner" }
func (l *locks) Lost() <-chan struct{}         { return l.lost }
func (l *locks) Release(context.Context) error { l.note("release"); return nil }
func (l *locks) Hold(context.Context) error    { l.note("hold"); return nil }

// book is a Filter that writes down what it learns.
type book struct{ locks *locks }

func (b book) MayContain(context.Context, string) gate.Answer { return gate.Unknown }
func (b book) Learn(_ context.Context, id string) error       { b.locks.note("learn:" + id); return nil }
func (b book) Missed(string)                                  { b.locks.note("missed") }

type silent struct{}

func (silent) Decided(int, gate.Action, gate.Verdict, time.Duration) {}
func (silent) Closed(int, gate.Outcome)                              {}
func (silent) Refused(int, order.Reason)                             {}
func (silent) Learned(int, error)                                    {}

// bed is a server on loopback with a client on it.
type bed struct {
	t      *testing.T
	locks  *locks
	client extproc.ExternalProcessorClient
}

func newBed(t *testing.T) *bed {
	t.Helper()
	l := newLocks()
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	g, err := gate.New([]gate.Policy{
		{
			Rule: order.Rule{
				Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}},
			},
			Invalid: gate.Reply{Status: 400},
			Settle: &gate.Settle{
				Lock: l, Busy: gate.Reply{Status: 409, RetryAfter: 1500 * time.Millisecond}, Unavailable: gate.Reply{Status: 503},
			},
		},
		{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
			Create: &gate.Create{Filter: book{l}, Learn: gate.Learn{JSON: []string{"id"}}, Format: format},
		},
	}, silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	extproc.RegisterExternalProcessorServer(server, NewServer(g, Options{}))
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return &bed{t, l, extproc.NewExternalProcessorClient(conn)}
}

// stream is one HTTP request as Envoy plays it.
type stream struct {
	extproc.ExternalProcessor_ProcessClient
	t     *testing.T
	leave context.CancelFunc
}

func (b *bed) open() stream {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	b.t.Cleanup(cancel)
	s, err := b.client.Process(ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	return stream{s, b.t, cancel}
}

// say sends a message and returns the answer.
func (s stream) say(msg *extproc.ProcessingRequest) *extproc.ProcessingResponse {
	s.t.Helper()
	if err := s.Send(msg); err != nil {
		s.t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

// wantEnd checks that the server has nothing more to say.
func (s stream) wantEnd() {
	s.t.Helper()
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		s.t.Errorf("stream ended with %v, want EOF", err)
	}
}

func (b *bed) wantNoted(want string) {
	b.t.Helper()
	bedtest.Eventually(b.t, want, func() bool { return b.locks.noted() == want })
}

func headersOf(pairs ...string) *extproc.HttpHeaders {
	h := &extproc.HttpHeaders{Headers: &corev3.HeaderMap{}}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return h
}

func requestHeaders(pairs ...string) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestHeaders{RequestHeaders: headersOf(pairs...)}}
}

func settle() *extproc.ProcessingRequest {
	return requestHeaders(":method", "POST", ":path", "/orders/42/settle", ":authority", "shop")
}

// answered is a response's headers with Envoy's word on where it came from.
func answered(status, details string) *extproc.ProcessingRequest {
	fields, err := structpb.NewStruct(map[string]any{
		"response.code_details": details, "upstream.request_attempt_count": 1,
	})
	if err != nil {
		panic(err)
	}
	return &extproc.ProcessingRequest{
		Request:    &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: headersOf(":status", status)},
		Attributes: map[string]*structpb.Struct{attributes: fields},
	}
}

func TestBracket(t *testing.T) {
	b := newBed(t)
	b.locks.grant <- nil
	s := b.open()
	r := s.say(settle())
	got := map[string]string{}
	for _, h := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		got[h.GetHeader().GetKey()] = string(h.GetHeader().GetRawValue())
	}
	if got[gate.HeaderKey] != "lock:42" || got[gate.HeaderFence] != "7" || got[gate.HeaderLease] != "owner" || got[gate.HeaderVerdict] != "acquired" {
		t.Errorf("headers to the backend: %v", got)
	}
	if m := r.GetModeOverride(); m.GetResponseTrailerMode() != procmode.ProcessingMode_SEND {
		t.Errorf("mode %v: the stream would end before the body", m)
	}
	s.say(answered("200", "via_upstream"))
	if did := b.locks.noted(); did != "ask:42" {
		t.Errorf("before the end: %s", did)
	}
	s.leave()
	b.wantNoted("ask:42 release")
}

func TestLeaseLostDuringTheCall(t *testing.T) {
	b := newBed(t)
	b.locks.grant <- nil
	s := b.open()
	s.say(settle())
	close(b.locks.lost)
	told := func() bool {
		r := s.say(answered("200", "via_upstream"))
		set := r.GetResponseHeaders().GetResponse().GetHeaderMutation().GetSetHeaders()
		return len(set) == 1 && set[0].GetHeader().GetKey() == headerLost
	}
	// The loop sees the loss and the answer in either order; said twice, the
	// second answer comes after it.
	if first := told(); !first && !told() {
		t.Error("the client is not told")
	}
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			b.locks.grant <- tt.grant
			s := b.open()
			r := s.say(requestHeaders(":method", "POST", ":path", tt.path)).GetImmediateResponse()
			if int32(r.GetStatus().GetCode()) != tt.status || r.GetDetails() != "ordergate_"+tt.verdict {
				t.Errorf("refused with %v", r)
			}
			for _, h := range r.GetHeaders().GetSetHeaders() {
				if h.GetHeader().GetKey() == "retry-after" && string(h.GetHeader().GetRawValue()) != "2" {
					t.Errorf("retry-after %s, want 1.5s rounded up", h.GetHeader().GetRawValue())
				}
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

func TestAbortWhileWaiting(t *testing.T) {
	b := newBed(t)
	s := b.open()
	if err := s.Send(settle()); err != nil {
		t.Fatal(err)
	}
	b.wantNoted("ask:42")
	s.leave()
	b.wantNoted("ask:42 gave-up")
}

// TestAnswerWhileWaiting is Envoy answering by itself (a stream timeout, say)
// before the lock came.
func TestAnswerWhileWaiting(t *testing.T) {
	b := newBed(t)
	s := b.open()
	if err := s.Send(settle()); err != nil {
		t.Fatal(err)
	}
	b.wantNoted("ask:42")
	s.say(answered("408", "stream_idle_timeout"))
	b.wantNoted("ask:42 gave-up")
}

func TestCreate(t *testing.T) {
	create := requestHeaders(":method", "POST", ":path", "/orders")
	body := func(text string) *extproc.ProcessingRequest {
		return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{
			ResponseBody: &extproc.HttpBody{Body: []byte(text), EndOfStream: true}}}
	}
	t.Run("learned before the body goes on", func(t *testing.T) {
		b := newBed(t)
		s := b.open()
		if m := s.say(create).GetModeOverride(); m.GetResponseBodyMode() != procmode.ProcessingMode_BUFFERED_PARTIAL {
			t.Errorf("mode %v", m)
		}
		s.say(answered("201", "via_upstream"))
		s.say(body(`{"id": 42}`))
		if did := b.locks.noted(); did != "learn:42" {
			t.Errorf("did %q", did)
		}
		s.wantEnd()
	})
	t.Run("not created", func(t *testing.T) {
		b := newBed(t)
		s := b.open()
		s.say(create)
		if m := s.say(answered("422", "via_upstream")).GetModeOverride(); m.GetResponseBodyMode() != procmode.ProcessingMode_NONE {
			t.Errorf("mode %v", m)
		}
		s.wantEnd()
		if did := b.locks.noted(); did != "" {
			t.Errorf("did %q", did)
		}
	})
	t.Run("no body", func(t *testing.T) {
		b := newBed(t)
		s := b.open()
		s.say(create)
		last := answered("204", "via_upstream")
		last.GetResponseHeaders().EndOfStream = true
		s.say(last)
		b.wantNoted("missed")
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

// TestEveryMessageIsAnswered has all kinds of message arrive within a bracket.
func TestEveryMessageIsAnswered(t *testing.T) {
	b := newBed(t)
	b.locks.grant <- nil
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
	b.wantNoted("ask:42 release")
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
