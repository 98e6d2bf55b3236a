package lockmw

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// bed is a server on loopback with a client on it.
type bed struct {
	t      *testing.T
	lock   *gatetest.Lock
	did    *gatetest.Journal // of the lock and of the filter
	filter *gatetest.Filter
	server *Server
	client extproc.ExternalProcessorClient
}

func newBed(t *testing.T) *bed {
	t.Helper()
	did := &gatetest.Journal{}
	l := &gatetest.Lock{Journal: did, Grants: make(chan error, 10)}
	filter := &gatetest.Filter{Journal: did}
	notFound := func(id string) { did.Add("not found ", id) }
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	g := gatetest.Gate(t, []gate.Policy{
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
			Create: &gate.Create{Filter: filter, Learn: gate.Learn{JSON: []string{"id"}}, Format: format},
		},
		{
			Rule: order.Rule{Name: "form", Methods: []string{"POST"}, Path: "/orders.php"},
			Create: &gate.Create{
				Filter: filter, Format: format,
				Learn: gate.Learn{Header: "location", Capture: regexp.MustCompile(`/orders/([0-9]+)$`)},
			},
		},
		{
			Rule: order.Rule{
				Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}",
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}},
			},
			Lookup: &gate.Lookup{Filter: filter, OnNotFound: notFound},
		},
		{
			Rule: order.Rule{
				Name: "by-header", Methods: []string{"GET"}, Path: "/order",
				IDs: []order.ID{{In: order.InHeader, Name: "x-order-id", Format: format}},
			},
			Lookup: &gate.Lookup{Filter: filter, OnNotFound: notFound},
		},
	}, gatetest.Silent{})
	g.LogDecisionsTo(gatetest.Decisions(true))
	g.TraceTo(gatetest.Tracer{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	s := NewServer(g, Options{})
	extproc.RegisterExternalProcessorServer(server, s)
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
		bedtest.Eventually(t, "each lease is released or held", func() bool { return l.Open() == 0 })
	})
	return &bed{t, l, did, filter, s, extproc.NewExternalProcessorClient(conn)}
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
	return s.hear()
}

// hear returns what the server says next.
func (s stream) hear() *extproc.ProcessingResponse {
	s.t.Helper()
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

func (b *bed) wantDid(want string) {
	b.t.Helper()
	bedtest.Eventually(b.t, want, func() bool { return b.did.Short() == want })
}

// servedLock notes when a caller has taken its lock.
type servedLock struct {
	*gatetest.Lock
	served chan struct{}
}

func (l servedLock) Acquire(ctx context.Context, request gate.LockRequest, then func(gate.Lease, error)) {
	l.Lock.Acquire(ctx, request, func(lease gate.Lease, err error) {
		then(lease, err)
		close(l.served)
	})
}

// stuckStream is a stream whose client reads nothing.
type stuckStream struct {
	extproc.ExternalProcessor_ProcessServer
	ctx     context.Context
	in      chan *extproc.ProcessingRequest
	sending chan struct{}
}

func (s *stuckStream) Context() context.Context { return s.ctx }

func (s *stuckStream) Recv() (*extproc.ProcessingRequest, error) {
	select {
	case msg := <-s.in:
		return msg, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *stuckStream) Send(*extproc.ProcessingResponse) error {
	s.sending <- struct{}{}
	<-s.ctx.Done()
	return s.ctx.Err()
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
	return whole(requestHeaders(":method", "POST", ":path", "/orders/42/settle", ":authority", "shop"))
}

// whole makes a request's headers all of it.
func whole(m *extproc.ProcessingRequest) *extproc.ProcessingRequest {
	m.GetRequestHeaders().EndOfStream = true
	return m
}

// answered is a response's headers with Envoy's word on where it came from.
func answered(status, details string) *extproc.ProcessingRequest {
	return answeredWith(status, map[string]any{
		"response.code_details": details, "upstream.request_attempt_count": 1,
	})
}

// bodyPart is a part of a response's body, or the last one.
func bodyPart(last bool) *extproc.ProcessingRequest {
	return &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseBody{ResponseBody: &extproc.HttpBody{EndOfStream: last}}}
}

// answeredWith is a response's headers with these attributes.
func answeredWith(status string, attrs map[string]any) *extproc.ProcessingRequest {
	fields, err := structpb.NewStruct(attrs)
	if err != nil {
		panic(err)
	}
	return &extproc.ProcessingRequest{
		Request:    &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: headersOf(":status", status)},
		Attributes: map[string]*structpb.Struct{attributesKey: fields},
	}
}
