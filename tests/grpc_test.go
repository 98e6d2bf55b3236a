package tests

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestGRPCRefusals has ordergate refuse calls: a client gets gRPC's own statuses.
func TestGRPCRefusals(t *testing.T) {
	t.Parallel()
	s, o, conn := newGRPCStack(t, settings{orders: 100})
	call := func(method string, pairs ...string) rpc { return callRPC(t.Context(), conn, method, pairs...) }

	r := call("Get", "x-order-id", "7")
	if r.code != codes.OK || r.answer != "Get 7" {
		t.Errorf("an order that exists: %+v", r)
	}
	r = call("Get", "x-order-id", "7000")
	r.want(t, codes.NotFound, "absent")
	if r.message != "the order does not exist" || r.pushback != "" {
		t.Errorf("an absent order: %+v", r)
	}
	call("Settle", "x-order-id", "7000").want(t, codes.NotFound, "absent")
	r = call("Settle", "x-order-id", "042")
	r.want(t, codes.InvalidArgument, "invalid")
	if r.message != "the order ID is malformed" {
		t.Errorf("a malformed ID: %+v", r)
	}
	call("Settle").want(t, codes.InvalidArgument, "invalid")
	call("Settle", "x-order-id", "1", "x-order-id", "2").want(t, codes.InvalidArgument, "ambiguous")
	if n := o.count("Settle"); n != 0 {
		t.Errorf("%d of these calls reached the backend", n)
	}

	r = call("Settle", "x-order-id", "7")
	if r.code != codes.OK || r.answer != "Settle 7" {
		t.Errorf("a settlement: %+v", r)
	}
	if md := o.seen["7"]; len(md["x-ordergate-fence"]) != 1 || md["x-ordergate-key"][0] != "order:lock:7" {
		t.Errorf("the backend has seen %v", md)
	}
	s.wantFate("7", released)

	done := make(chan rpc, 1)
	go func() { done <- callRPC(t.Context(), conn, "Settle", "x-order-id", "8", "x-do", "hang") }()
	bedtest.Eventually(t, "the backend has it", func() bool { return o.count("Settle 8") == 1 })
	r = call("Settle", "x-order-id", "8")
	r.want(t, codes.Aborted, "busy")
	if r.pushback != "1000" {
		t.Errorf("a busy order: %+v", r)
	}
	o.goOn()
	(<-done).want(t, codes.OK, "")
	s.wantFate("8", released)

	// The same paths by HTTP alone get HTTP's answers.
	s.must("POST", "/shop.Orders/Get", "", "x-order-id", "7000", "content-type", "application/json").want(t, 404, "absent")
	s.must("POST", "/shop.Orders/Get", "", "x-order-id", "7000", "content-type", "application/grpc-web").want(t, 404, "absent")
	// gRPC over HTTP/1.1 is gRPC to Envoy.
	a := s.must("POST", "/shop.Orders/Get", "", "x-order-id", "7000", "content-type", "application/grpc+proto")
	if a.status != 200 || a.header.Get("grpc-status") != "5" || a.body != "" || a.header.Get("content-type") != "application/grpc" {
		t.Errorf("got %d %v %q", a.status, a.header, a.body)
	}

	s.server.Kill()
	r = call("Settle", "x-order-id", "9")
	r.want(t, codes.Unavailable, "unavailable")
	if r.pushback != "1000" {
		t.Errorf("without Redis: %+v", r)
	}
}

// TestGRPCOutcomes has the backend answer with each status, in headers alone and in
// trailers.
func TestGRPCOutcomes(t *testing.T) {
	t.Parallel()
	s, _, conn := newGRPCStack(t, settings{orders: 1000, envoy: withTestRoutes})
	id := 100
	for code := codes.OK; code <= codes.Unauthenticated+1; code++ {
		want := released
		switch code {
		case codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Internal, codes.Unavailable, codes.Unauthenticated + 1:
			want = held
		}
		for _, do := range []string{"status", "late-status"} {
			if code == codes.OK {
				do = ""
			}
			id++
			order := fmt.Sprint(id)
			r := callRPC(t.Context(), conn, "Settle", "x-order-id", order, "x-do", fmt.Sprintf("%s=%d", do, code))
			if r.code != code || r.verdict != "" {
				t.Errorf("%v: %+v", code, r)
			}
			s.wantFate(order, want)
		}
	}
	for _, tt := range []struct {
		route string
		code  codes.Code
		fate  fate
	}{{"timeout", codes.Unavailable, held}, {"refused", codes.Unavailable, released}, {"empty", codes.Unavailable, released}} {
		id++
		order := fmt.Sprint(id)
		r := callRPC(t.Context(), conn, "Settle", "x-order-id", order, "x-do", "hang", "x-test-route", tt.route)
		r.want(t, tt.code, "")
		s.wantFate(order, tt.fate)
	}
	// A backend without gRPC: this one is gRPC's, and answers HTTP/1.1 requests as such.
	// The client leaves by a cancellation: the backend would act on a deadline by itself.
	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, leave)
	callRPC(ctx, conn, "Settle", "x-order-id", "900", "x-do", "hang").want(t, codes.Canceled, "")
	s.wantFate("900", held)
	callRPC(t.Context(), conn, "Settle", "x-order-id", "900").want(t, codes.Aborted, "busy")
}

// TestGRPCByItsAnswer has the answer decide what became of a settlement, whatever its request
// says of itself.
func TestGRPCByItsAnswer(t *testing.T) {
	t.Parallel()
	t.Run("HTTP", func(t *testing.T) {
		t.Parallel()
		b := newBackend(t)
		s := newStack(t, settings{backend: b.addr(), orders: 100, gate: shortLease})
		id := 20
		for _, contentType := range []string{"application/grpc", "application/grpc;x=1", "application/grpc-web"} {
			for do, want := range map[string]fate{"": released, "204": released, "500": released, "503": held, "answer&status=404": released, "answer&status=504": held} {
				id++
				order := fmt.Sprint(id)
				s.must("POST", "/orders/"+order+"/settle?do="+do, "x", "content-type", contentType)
				s.wantFate(order, want)
			}
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		t.Parallel()
		s, o, _ := newGRPCStack(t, settings{orders: 100})
		id := 20
		for _, contentType := range []string{"application/grpc", "application/grpc;x=1", "application/grpc; charset=utf-8"} {
			for do, want := range map[string]fate{"": released, "status=5": released, "late-status=5": released, "status=14": held, "late-status=4": held} {
				id++
				order := fmt.Sprint(id)
				s.must("POST", "/shop.Orders/Settle", "\x00\x00\x00\x00\x03\x0a\x01x", "content-type", contentType, "x-order-id", order, "x-do", do, "te", "trailers")
				if o.count("Settle "+order) != 1 {
					t.Errorf("%s: the backend does not take it for a gRPC call", contentType)
				}
				s.wantFate(order, want)
			}
		}
	})
}

// TestGRPCOneAtATime settles one order 500 times at once.
func TestGRPCOneAtATime(t *testing.T) {
	t.Parallel()
	s, o, conn := newGRPCStack(t, settings{orders: 10})
	var mu sync.Mutex
	got := map[string]int{}
	atOnce(500, func(int) {
		r := callRPC(t.Context(), conn, "Settle", "x-order-id", "3", "x-do", "slow")
		mu.Lock()
		defer mu.Unlock()
		got[fmt.Sprint(r.code, r.verdict)]++
	})
	if n := got["OK"] + got["Abortedbusy"]; n != 500 || got["OK"] == 0 {
		t.Errorf("answers %v", got)
	}
	if o.most["3"] != 1 || o.count("Settle 3") != got["OK"] {
		t.Errorf("%d ran at once, %d in all, of %v", o.most["3"], o.count("Settle 3"), got)
	}
	s.wantFate("3", released)
}

// TestGRPCStreams keeps the lock until an answer's trailers, and takes it only for a request
// that is complete.
func TestGRPCStreams(t *testing.T) {
	t.Parallel()
	for do, want := range map[string]fate{"": released, "fail": held, "leave": held} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			s, o, conn := newGRPCStack(t, settings{orders: 10})
			ctx, leave := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), "x-order-id", "4", "x-do", do))
			defer leave()
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/shop.Orders/Report")
			must(t, err)
			must(t, stream.SendMsg(wrapperspb.String("x")))
			must(t, stream.CloseSend())
			must(t, stream.RecvMsg(&wrapperspb.StringValue{}))
			callRPC(t.Context(), conn, "Settle", "x-order-id", "4").want(t, codes.Aborted, "busy")
			if do == "leave" {
				leave()
			} else {
				o.goOn()
			}
			s.wantFate("4", want)
		})
	}
	t.Run("both sides", func(t *testing.T) { // each waits for the other: the request is never complete
		t.Parallel()
		s, o, conn := newGRPCStack(t, settings{orders: 10, envoy: edit(t, "request_timeout: 20s", "request_timeout: 1s")})
		stream, err := conn.NewStream(metadata.AppendToOutgoingContext(t.Context(), "x-order-id", "6"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/shop.Orders/Talk")
		must(t, err)
		must(t, stream.SendMsg(wrapperspb.String("x")))
		if err := stream.RecvMsg(&wrapperspb.StringValue{}); status.Code(err) != codes.Unknown { // Envoy's 408
			t.Errorf("got %v", err)
		}
		if n := o.count("Upload"); n != 0 {
			t.Error("a request that is not complete has reached the backend")
		}
		s.wantFate("6", released)
	})
	t.Run("upload", func(t *testing.T) {
		t.Parallel()
		s, o, conn := newGRPCStack(t, settings{orders: 10})
		stream, err := conn.NewStream(metadata.AppendToOutgoingContext(t.Context(), "x-order-id", "5"), &grpc.StreamDesc{ClientStreams: true}, "/shop.Orders/Upload")
		must(t, err)
		for range 3 {
			must(t, stream.SendMsg(wrapperspb.String("x")))
		}
		callRPC(t.Context(), conn, "Settle", "x-order-id", "5").want(t, codes.OK, "") // the other call is not complete yet
		if n := o.count("Upload"); n != 0 {
			t.Error("an upload that is not complete has reached the backend")
		}
		must(t, stream.CloseSend())
		sum := &wrapperspb.StringValue{}
		must(t, stream.RecvMsg(sum))
		if sum.GetValue() != "3" {
			t.Errorf("%s messages have arrived", sum.GetValue())
		}
		s.wantFate("5", released)
	})
}

// TestGRPCCreates learns new orders from the initial metadata.
func TestGRPCCreates(t *testing.T) {
	t.Parallel()
	s, _, conn := newGRPCStack(t, settings{orders: 10})
	call := func(method string, pairs ...string) rpc { return callRPC(t.Context(), conn, method, pairs...) }
	call("Get", "x-order-id", "500").want(t, codes.NotFound, "absent")
	call("Create", "x-do", "create=500").want(t, codes.OK, "")
	call("Get", "x-order-id", "500").want(t, codes.OK, "")

	// A create that failed for certain makes no order: others stay absent.
	for _, code := range []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.ResourceExhausted} {
		call("Create", "x-do", fmt.Sprintf("status=%d", code)).want(t, code, "")
		call("Get", "x-order-id", "501").want(t, codes.NotFound, "absent")
	}
	learned := func(result string) string {
		return s.metric(fmt.Sprintf(`ordergate_learned_total{result=%q,rule="grpc-create"}`, result))
	}
	if n := learned("ok"); n != "1" {
		t.Errorf("%s orders were learned, want 1", n)
	}
	// One that may have made an order is a doubt.
	call("Create", "x-do", fmt.Sprintf("status=%d", codes.Unavailable)).want(t, codes.Unavailable, "")
	bedtest.Eventually(t, "a doubt", func() bool { return learned("abandoned") == "1" })
	call("Get", "x-order-id", "501").want(t, codes.OK, "")
}

// TestGRPCLostLease ends a call whose lock an operator has deleted: the client must not try
// again by itself.
func TestGRPCLostLease(t *testing.T) {
	t.Parallel()
	s, o, conn := newGRPCStack(t, settings{orders: 10})
	done := make(chan rpc, 1)
	go func() { done <- callRPC(t.Context(), conn, "Settle", "x-order-id", "8", "x-do", "hang") }()
	bedtest.Eventually(t, "the backend has it", func() bool { return o.count("Settle 8") == 1 })
	s.redis.Del(t.Context(), "order:lock:8")
	r := <-done
	r.want(t, codes.Unavailable, "lost")
	if r.pushback != "-1" || strings.Join(r.trailer["x-ordergate-lease-lost"], "") != "true" {
		t.Errorf("got %+v", r)
	}
}

// TestGRPCShare enforces gRPC calls of some orders.
func TestGRPCShare(t *testing.T) {
	t.Parallel()
	in, out := someOf(5000, 1)
	_, _, conn := newGRPCStack(t, settings{orders: 10, gate: func(yaml string) string {
		return bedtest.Replace(yaml, "  - name: grpc-get\n", "  - name: grpc-get\n    mode: {enforce: 50%}\n")
	}})
	absent, others := someOf(5000, 30) // some of which do not exist
	callRPC(t.Context(), conn, "Get", "x-order-id", fmt.Sprint(absent[29])).want(t, codes.NotFound, "absent")
	callRPC(t.Context(), conn, "Get", "x-order-id", fmt.Sprint(others[29])).want(t, codes.OK, "")
	callRPC(t.Context(), conn, "Get", "x-order-id", fmt.Sprint(in[0])).want(t, codes.OK, "")
	callRPC(t.Context(), conn, "Get", "x-order-id", fmt.Sprint(out[0])).want(t, codes.OK, "")
}
