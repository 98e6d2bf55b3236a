package extauthz

import (
	"net"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(t testing.TB) *Server {
	t.Helper()
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	lookup := &gate.Lookup{
		Filter: &gatetest.Filter{Answers: map[string]presence.Answer{"42": presence.Maybe, "7": presence.Unknown}, Others: presence.Absent},
		Absent: gate.Reply{Status: 404, Body: `{"error":"no such order"}`},
	}
	invalid := gate.Reply{Status: 400, Body: `{"error":"malformed"}`}
	g, err := gate.New([]gate.Policy{
		{
			Rule: order.Rule{
				Name: "path", Methods: []string{"GET"}, Path: "/orders/{id}",
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}},
			},
			Lookup: lookup, Invalid: invalid,
		},
		{
			Rule: order.Rule{
				Name: "settle", Methods: []string{"GET"}, Path: "/settle/{id}",
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}},
			},
			Settle: &gate.Settle{Lock: &gatetest.Lock{Fault: true}}, Invalid: invalid,
		},
		{
			Rule: order.Rule{
				Name: "watched", Methods: []string{"GET"}, Path: "/watched/{id}",
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}},
			},
			Lookup: lookup, Settle: &gate.Settle{Lock: &gatetest.Lock{Fault: true}}, Observe: true,
		},
		{
			Rule: order.Rule{
				Name: "both", Methods: []string{"GET"}, Path: "/both/{id}",
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}},
			},
			Lookup: lookup, Settle: &gate.Settle{Lock: &gatetest.Lock{Fault: true}}, Invalid: invalid,
		},
		{
			Rule: order.Rule{
				Name: "header", Methods: []string{"GET"}, Path: "/order",
				IDs: []order.ID{{In: order.InHeader, Name: "x-order", Format: format}},
			},
			Lookup: lookup, Invalid: invalid,
		},
	}, gatetest.Silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	g.LogDecisionsTo(gatetest.Decisions(false))
	s, err := NewServer(g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// dial serves s on loopback and connects to it.
func dial(t *testing.T, s *Server) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := s.NewGRPC(grpc.WaitForHandlers(true))
	healthpb.RegisterHealthServer(server, health.NewServer())
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return conn
}

func checkRequest(path string, headers map[string]string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: "1", Method: "GET", Path: path, Host: "shop", Protocol: "HTTP/1.1", Size: -1, Headers: headers,
		}},
	}}
}

func TestCheck(t *testing.T) {
	client := authv3.NewAuthorizationClient(dial(t, newServer(t)))
	tests := []struct {
		name    string
		request *authv3.CheckRequest
		code    codes.Code
		status  int32  // to the client, of a refusal
		verdict string // to the backend, or to the client
	}{
		{"exists", checkRequest("/orders/42", nil), codes.OK, 0, "maybe"},
		{"absent", checkRequest("/orders/43", nil), codes.PermissionDenied, 404, "absent"},
		{"unknown", checkRequest("/orders/7", nil), codes.OK, 0, "unknown"},
		{"malformed", checkRequest("/orders/4x", nil), codes.PermissionDenied, 400, "invalid"},
		{"no rule", checkRequest("/other", nil), codes.OK, 0, ""},
		{"by header", checkRequest("/order", map[string]string{"a": "b", "x-order": "43"}), codes.PermissionDenied, 404, "absent"},
		{"header missing", checkRequest("/order", map[string]string{"a": "b"}), codes.PermissionDenied, 400, "invalid"},
		{"no attributes", &authv3.CheckRequest{}, codes.OK, 0, ""},
		{"no request", &authv3.CheckRequest{Attributes: &authv3.AttributeContext{}}, codes.OK, 0, ""},
		{"path of 100 kB", checkRequest("/orders/"+strings.Repeat("4", 100_000), nil), codes.PermissionDenied, 400, "invalid"},
		{"100 kB of segments", checkRequest(strings.Repeat("/orders", 15_000), nil), codes.OK, 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := client.Check(t.Context(), tt.request)
			if err != nil {
				t.Fatal(err)
			}
			if got := codes.Code(r.GetStatus().GetCode()); got != tt.code {
				t.Errorf("code %v, want %v", got, tt.code)
			}
			if got := int32(r.GetDeniedResponse().GetStatus().GetCode()); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			verdict := ""
			for _, h := range append(r.GetOkResponse().GetHeaders(), r.GetDeniedResponse().GetHeaders()...) {
				if h.GetHeader().GetKey() == gate.HeaderVerdict {
					verdict = h.GetHeader().GetValue()
				}
			}
			if verdict != tt.verdict {
				t.Errorf("verdict %q, want %q", verdict, tt.verdict)
			}
			if r.GetOkResponse() != nil && len(r.GetOkResponse().GetHeadersToRemove()) < 3 {
				t.Error("the client's x-ordergate headers are let through")
			}
		})
	}
}

// TestOurHeaders checks what is taken off a request that goes on. A lease stays
// where ext_proc will judge it, and nowhere else.
func TestOurHeaders(t *testing.T) {
	client := authv3.NewAuthorizationClient(dial(t, newServer(t)))
	for path, want := range map[string]struct {
		verdict string
		lease   bool // stays
	}{
		"/other":      {},
		"/orders/42":  {verdict: "maybe"},
		"/orders/7":   {verdict: "unknown"},
		"/settle/42":  {lease: true},
		"/both/42":    {verdict: "maybe", lease: true},
		"/watched/42": {verdict: "maybe"},
		"/watched/43": {verdict: "absent"},
	} {
		r, err := client.Check(t.Context(), checkRequest(path, nil))
		if err != nil {
			t.Fatal(err)
		}
		ok := r.GetOkResponse()
		wantRemoved := []string{gate.HeaderKey, gate.HeaderFence}
		if !want.lease {
			wantRemoved = append(wantRemoved, gate.HeaderLease)
		}
		verdict := ""
		for _, h := range ok.GetHeaders() {
			verdict = h.GetHeader().GetValue()
		}
		if want.verdict == "" {
			wantRemoved = append(wantRemoved, gate.HeaderVerdict, "x-original-url", "x-rewrite-url")
		}
		if diff := cmp.Diff(wantRemoved, ok.GetHeadersToRemove()); diff != "" || verdict != want.verdict {
			t.Errorf("%s: verdict %q, removed (-want +got):\n%s", path, verdict, diff)
		}
	}
}

// TestNotAMessage sends what no Envoy would: the call fails, the server goes on.
func TestNotAMessage(t *testing.T) {
	conn := dial(t, newServer(t))
	var reply any
	err := conn.Invoke(t.Context(), "/envoy.service.auth.v3.Authorization/Check", []byte{0xff, 0xff, 0xff}, &reply,
		grpc.ForceCodecV2(rawCodec{}))
	if err == nil {
		t.Error("garbage was answered")
	}
	if _, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), checkRequest("/orders/42", nil)); err != nil {
		t.Errorf("after garbage: %v", err)
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// TestOtherServices checks that our codec leaves those of others alone.
func TestOtherServices(t *testing.T) {
	r, err := healthpb.NewHealthClient(dial(t, newServer(t))).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", r, err)
	}
}

func TestDenial(t *testing.T) {
	client := authv3.NewAuthorizationClient(dial(t, newServer(t)))
	r, err := client.Check(t.Context(), checkRequest("/orders/43", nil))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{"body": r.GetDeniedResponse().GetBody()}
	for _, h := range r.GetDeniedResponse().GetHeaders() {
		got[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
	}
	want := map[string]string{
		"body": `{"error":"no such order"}`, "content-type": "application/json", "x-ordergate-verdict": "absent",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("denial (-want +got):\n" + diff)
	}
}

// TestDecisionDoesNotAllocate covers everything between gRPC handing the message
// over and taking the reply.
func TestDecisionDoesNotAllocate(t *testing.T) {
	bedtest.WithoutRace(t) // with which a sync.Pool loses some of what it has
	s := newServer(t)
	c := codec{}
	for _, request := range []*authv3.CheckRequest{
		checkRequest("/orders/43", map[string]string{"a": "b", ":path": "/orders/43", "user-agent": "curl"}),
		checkRequest("/order", map[string]string{"a": "b", "x-order": "42"}),
	} {
		encoded, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		data := mem.BufferSlice{mem.SliceBuffer(encoded)}
		ctx := t.Context()
		if n := testing.AllocsPerRun(200, func() {
			check := s.checks.Get().(*check)
			if err := c.Unmarshal(data, check); err != nil {
				t.Fatal(err)
			}
			reply, err := s.respond(ctx, check)
			if err != nil {
				t.Fatal(err)
			}
			sent, err := c.Marshal(reply)
			if err != nil {
				t.Fatal(err)
			}
			sent.Free() // as gRPC does
			s.checks.Put(check)
		}); n != 0 {
			t.Errorf("%s: %v allocations", request.GetAttributes().GetRequest().GetHttp().GetPath(), n)
		}
	}
}
