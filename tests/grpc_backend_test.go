package tests

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// grpcOrders is an order service over gRPC. The metadata x-order-id names the order, and
// x-do what the service does.
type grpcOrders struct {
	address string
	release chan struct{} // closed: everything that hangs goes on

	mu      sync.Mutex
	arrived map[string]int         // calls by method
	running map[string]int         // settlements by order
	most    map[string]int         // that ran at once, by order
	seen    map[string]metadata.MD // of the last settlement, by order
}

// grpcService describes it: package shop, service Orders.
var grpcService = grpc.ServiceDesc{
	ServiceName: "shop.Orders", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{unary("Get"), unary("Create"), unary("Settle")},
	Streams: []grpc.StreamDesc{
		{StreamName: "Report", ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			return srv.(*grpcOrders).report(stream)
		}},
		{StreamName: "Upload", ClientStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			return srv.(*grpcOrders).upload(stream)
		}},
		{StreamName: "Talk", ClientStreams: true, ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
			return srv.(*grpcOrders).upload(stream)
		}},
	},
}

func unary(name string) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := &wrapperspb.StringValue{}
		if err := decode(in); err != nil {
			return nil, err
		}
		return srv.(*grpcOrders).serve(ctx, name)
	}}
}

func newGRPCOrders(t testing.TB) *grpcOrders {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &grpcOrders{
		address: listener.Addr().String(), release: make(chan struct{}),
		arrived: make(map[string]int), running: make(map[string]int), most: make(map[string]int), seen: make(map[string]metadata.MD),
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	server.RegisterService(&grpcService, o)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	t.Cleanup(func() {
		o.goOn()
		server.Stop()
		<-served
	})
	return o
}

// goOn lets what hangs go on. It may be called more than once.
func (o *grpcOrders) goOn() {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.release:
	default:
		close(o.release)
	}
}

func (o *grpcOrders) count(method string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.arrived[method]
}

// begin counts a call, and returns the order and what to do. The returned function ends it.
func (o *grpcOrders) begin(ctx context.Context, method string) (order, do string, end func()) {
	md, _ := metadata.FromIncomingContext(ctx)
	order, do = strings.Join(md["x-order-id"], ","), strings.Join(md["x-do"], ",")
	o.mu.Lock()
	defer o.mu.Unlock()
	o.arrived[method]++
	o.arrived[method+" "+order]++
	if method == "Settle" || method == "Report" {
		o.seen[order] = md
		o.running[order]++
		o.most[order] = max(o.most[order], o.running[order])
	}
	return order, do, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if method == "Settle" || method == "Report" {
			o.running[order]--
		}
	}
}

func (o *grpcOrders) serve(ctx context.Context, method string) (any, error) {
	order, do, end := o.begin(ctx, method)
	defer end()
	what, argument, _ := strings.Cut(do, "=")
	switch what {
	case "status": // at once, so that it comes in headers alone
		n, _ := strconv.Atoi(argument)
		return nil, status.Error(codes.Code(n), "the backend's own")
	case "late-status": // behind headers, in trailers
		n, _ := strconv.Atoi(argument)
		_ = grpc.SendHeader(ctx, metadata.Pairs("x-early", "1"))
		return nil, status.Error(codes.Code(n), "the backend's own")
	case "create":
		_ = grpc.SetHeader(ctx, metadata.Pairs("x-new-order", argument))
	case "hang": // as a service that does not look at its deadline
		<-o.release
	case "slow":
		<-time.After(20 * time.Millisecond)
	}
	return wrapperspb.String(method + " " + order), nil
}

// report answers in two parts, the second when told to.
func (o *grpcOrders) report(stream grpc.ServerStream) error {
	order, do, end := o.begin(stream.Context(), "Report")
	defer end()
	if err := stream.SendMsg(wrapperspb.String(order)); err != nil {
		return err
	}
	<-o.release
	if do == "fail" {
		return status.Error(codes.Unavailable, "a part of the backend is away")
	}
	return stream.SendMsg(wrapperspb.String(order))
}

// upload counts messages.
func (o *grpcOrders) upload(stream grpc.ServerStream) error {
	_, _, end := o.begin(stream.Context(), "Upload")
	defer end()
	for n := 0; ; n++ {
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != nil {
			return stream.SendMsg(wrapperspb.String(fmt.Sprint(n)))
		}
	}
}

// grpcRules are added to those of the example.
const grpcRules = `
  - name: grpc-get
    match: {methods: [POST], path: /shop.Orders/Get}
    id: {header: x-order-id}
    lookup: {filter: orders}
  - name: grpc-create
    match: {methods: [POST], path: /shop.Orders/Create}
    create: {filter: orders, learn: {response_header: x-new-order}}
  - name: grpc-settle
    match: {methods: [POST], path: /shop.Orders/Settle}
    id: {header: x-order-id}
    lookup: {filter: orders}
    settle: {lock: settlement}
  - name: grpc-report
    match: {methods: [POST], path: /shop.Orders/Report}
    id: {header: x-order-id}
    settle: {lock: settlement}
  - name: grpc-upload
    match: {methods: [POST], path: /shop.Orders/Upload}
    id: {header: x-order-id}
    settle: {lock: settlement}
  - name: grpc-talk
    match: {methods: [POST], path: /shop.Orders/Talk}
    id: {header: x-order-id}
    settle: {lock: settlement}
`

// overHTTP2 has Envoy speak HTTP/2 to the backend.
func overHTTP2(yaml string) string {
	const http2 = `
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
`
	for _, cluster := range []string{"backend-reads", "backend-writes"} {
		yaml = bedtest.Replace(yaml, "  - name: "+cluster+"\n    type: STATIC\n", "  - name: "+cluster+"\n    type: STATIC"+http2)
	}
	return yaml
}

// newGRPCStack is a stack in front of an order service over gRPC, with a client.
func newGRPCStack(t testing.TB, change settings) (*stack, *grpcOrders, *grpc.ClientConn) {
	t.Helper()
	o := newGRPCOrders(t)
	gate, envoy := change.gate, change.envoy
	change.backend = o.address
	change.gate = func(yaml string) string {
		yaml = shortLease(yaml) + grpcRules
		if gate != nil {
			yaml = gate(yaml)
		}
		return yaml
	}
	change.envoy = overHTTP2
	if envoy != nil {
		change.envoy = both(overHTTP2, envoy)
	}
	s := newStack(t, change)
	conn, err := grpc.NewClient(strings.TrimPrefix(s.url, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, o, conn
}

// rpc is what a client gets.
type rpc struct {
	code     codes.Code
	message  string // of the status
	answer   string
	verdict  string
	pushback string // grpc-retry-pushback-ms
	trailer  metadata.MD
}

// callRPC makes a unary call with metadata.
func callRPC(ctx context.Context, conn *grpc.ClientConn, method string, pairs ...string) rpc {
	var header, trailer metadata.MD
	out := &wrapperspb.StringValue{}
	err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, pairs...), "/shop.Orders/"+method, wrapperspb.String("x"), out, grpc.Header(&header), grpc.Trailer(&trailer))
	first := func(name string) string { return strings.Join(metadata.Join(header, trailer)[name], ",") }
	return rpc{status.Code(err), status.Convert(err).Message(), out.GetValue(), first("x-ordergate-verdict"), first("grpc-retry-pushback-ms"), trailer}
}

func (r rpc) want(t testing.TB, code codes.Code, verdict string) {
	t.Helper()
	if r.code != code || r.verdict != verdict {
		t.Errorf("got %v %q (%s), want %v %q", r.code, r.verdict, r.message, code, verdict)
	}
}
