package gate_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestIsGRPC compares with Envoy 1.40, which gives its own answers gRPC's form for the same
// requests.
func TestIsGRPC(t *testing.T) {
	for text, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc+json": true, "application/grpc+": true,
		"application/grpc-web": false, "application/grpc-web+proto": false, "application/grpc;charset=utf-8": false,
		"Application/gRPC": false, "application/grpc\t": false, "application/grp": false, "": false, "application/grpc,application/grpc": false,
	} {
		req := order.Request{Method: "POST", Header: order.HeaderList{{"a", "b"}, {"content-type", text}, {"c", "d"}}}
		if gate.IsGRPC(&req) != want {
			t.Errorf("%q: %v, want %v", text, !want, want)
		}
	}
	for _, req := range []order.Request{
		{Method: "POST"}, {Method: "POST", Header: order.HeaderList{}},
		{Method: "GET", Header: order.HeaderList{{"content-type", "application/grpc"}}},
		{Method: "POST", Header: order.HeaderList{{"content-type", "application/grpc"}, {"content-type", "application/grpc"}}},
	} {
		if gate.IsGRPC(&req) {
			t.Errorf("%+v is a gRPC call", req)
		}
	}
}

// TestIsGRPCType has the types that servers answer with.
func TestIsGRPCType(t *testing.T) {
	for text, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "application/grpc;x=1": true, "application/grpc ; x=1": true,
		"Application/gRPC": true, "application/grpc\t": true, "application/grpc,application/grpc": true,
		"application/grpc-web": false, "application/grpc-web+proto": false, "application/grpc2": false, "application/grp": false,
		"application/json": false, "text/application/grpc": false, "": false,
	} {
		if gate.IsGRPCType(text) != want {
			t.Errorf("%q: %v, want %v", text, !want, want)
		}
	}
}

// TestGRPCReplies has every refusal. A verdict that refuses needs a status of gRPC's own, and
// a message.
func TestGRPCReplies(t *testing.T) {
	retry := gate.Reply{Status: 503, Body: "{}", RetryAfter: 1500 * time.Millisecond}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule:    order.Rule{Name: "a", Methods: []string{"POST"}, Path: "/a/{id}", IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}}},
		Invalid: gate.Reply{Status: 400}, Lookup: &gate.Lookup{Absent: gate.Reply{Status: 404}}, Settle: &gate.Settle{Busy: retry, Unavailable: retry},
	}}, nil)
	got := map[string]string{}
	if _, err := gate.NewReplies(g, func(r gate.Reply, v gate.Verdict) (*int, error) {
		if r.GRPCStatus == 0 {
			return nil, nil
		}
		var headers []string
		for _, h := range r.Headers() {
			headers = append(headers, h.Name+"="+h.Value)
		}
		text := strings.Join(headers, " ")
		if before, ok := got[v.String()]; ok && before != text {
			t.Errorf("%s: %s, and %s", v, before, text)
		}
		got[v.String()] = text
		if r.Body == "" || strings.ContainsFunc(r.Body, func(c rune) bool { return c < ' ' || c >= 0x7f }) {
			t.Errorf("%s has the message %q", v, r.Body)
		}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"absent":      "grpc-status=5",
		"invalid":     "grpc-status=3",
		"ambiguous":   "grpc-status=3",
		"busy":        "grpc-status=10 grpc-retry-pushback-ms=1500",
		"unavailable": "grpc-status=14 grpc-retry-pushback-ms=1500",
		"overloaded":  "grpc-status=14 grpc-retry-pushback-ms=1500",
		"unlocked":    "grpc-status=14 grpc-retry-pushback-ms=-1",
		"lost":        "grpc-status=14 x-ordergate-lease-lost=true grpc-retry-pushback-ms=-1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestGRPCStatuses has every verdict. One that refuses needs a status and a message.
func TestGRPCStatuses(t *testing.T) {
	want := map[string]gate.GRPCStatus{
		"absent": 5, "invalid": 3, "ambiguous": 3, "busy": 10, "unavailable": 14, "overloaded": 14, "unlocked": 14, "lost": 14,
		"duplicate": 6, "mismatch": 3, "in_use": 10, "not_ready": 9,
	}
	passes := []string{"none", "maybe", "unknown", "acquired", "replayed"}
	for v := range gate.Verdict(gate.Verdicts) {
		r := gate.Reply{}.ForGRPC(v)
		status, refuses := want[v.String()]
		switch {
		case !refuses && !slices.Contains(passes, v.String()):
			t.Errorf("%s: does it refuse? Then it needs a status of gRPC", v)
		case refuses && r.GRPCStatus != status:
			t.Errorf("%s has status %d, want %d", v, r.GRPCStatus, status)
		case refuses && r.Body == "" && v != gate.VerdictInvalid && v != gate.VerdictAmbiguous: // their reasons have the message
			t.Errorf("%s has no message", v)
		}
	}
}

// TestGRPCPending keeps in mind that a judgement that waits is of a gRPC call.
func TestGRPCPending(t *testing.T) {
	b := newBench(t, false)
	b.filter.NotInMemory = true
	policies := b.gate.Policies()
	policies[0].Rule.Methods = []string{"POST"}
	policies[1].Rule.IDs, policies[1].Create.Dedup = []order.ID{{In: order.InHeader, Name: "x-id", Format: digits}}, &gate.Dedup{Filter: b.filter, Confirm: &gatetest.Confirmer{Journal: &gatetest.Journal{}, Orders: map[string]bool{"1": true}}}
	g := gatetest.Gate(t, policies, b.record)
	for _, tt := range []struct {
		target, id string
		want       gate.Verdict
	}{{"/orders/2", "2", gate.VerdictAbsent}, {"/orders", "1", gate.VerdictDuplicate}} {
		result := g.TryScreen(order.Request{
			Method: "POST", Target: tt.target, Header: order.HeaderList{{"content-type", "application/grpc"}, {"x-id", tt.id}}, BodyState: order.BodyComplete,
		})
		if result.Pending == nil {
			t.Fatalf("%s does not wait: %+v", tt.target, result)
		}
		if d := result.Pending.Resolve(t.Context()); !d.Refused || d.Verdict != tt.want || !d.GRPC {
			t.Errorf("%s: %+v", tt.target, d)
		}
	}
}

// grpcCall opens a call of one of the bench's rules, and forwards it.
func grpcCall(t *testing.T, b *bench, target string) *gate.Call {
	t.Helper()
	c := b.gate.Open(order.Request{Method: "POST", Target: target, Header: order.HeaderList{{"content-type", "application/grpc"}}, BodyState: order.BodyComplete})
	if c.NeedsLock {
		gatetest.Settle(t.Context(), c)
	} else {
		c.On(gate.Event{Kind: gate.Opened})
	}
	return c
}

// TestGRPCByItsAnswer has requests that say that they are gRPC calls, or do not. The answer
// decides what became of the call.
func TestGRPCByItsAnswer(t *testing.T) {
	for _, contentType := range []string{"application/grpc", "application/grpc;x=1", "application/json"} {
		for _, tt := range []struct {
			grpc         bool
			status, want string
		}{{true, "0", "release"}, {true, "14", "hold"}, {true, "", "hold"}, {false, "", "release"}, {false, "14", "release"}} {
			b := newBench(t, false)
			c := b.gate.Open(order.Request{Method: "POST", Target: "/orders/42/settle", Header: order.HeaderList{{"content-type", contentType}}, BodyState: order.BodyComplete})
			gatetest.Settle(t.Context(), c)
			gatetest.Answer(c, &gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, GRPC: tt.grpc})
			c.On(gate.Event{Kind: gate.ResponseTrailers, GRPCStatus: tt.status})
			gatetest.End(c)
			if got := b.lock.Journal.Short(); got != "acquire 42, "+tt.want {
				t.Errorf("request %s, %+v: %s", contentType, tt, got)
			}
		}
	}
}

// TestGRPCOutcomes ends answers in every way.
func TestGRPCOutcomes(t *testing.T) {
	known := gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, GRPC: true}
	for status, want := range map[string]string{
		"0": "release", "1": "hold", "2": "hold", "3": "release", "4": "hold", "5": "release", "6": "release", "7": "release", "8": "release",
		"9": "release", "10": "release", "11": "release", "12": "release", "13": "hold", "14": "hold", "15": "release", "16": "release",
		"17": "hold", "-1": "hold", "": "hold", "00": "hold", "+0": "hold", "0x0": "hold", "0x": "hold", "OK": "hold", "99999999999999999999": "hold",
	} {
		end := func(how string, answer func(c *gate.Call)) {
			b := newBench(t, false)
			c := grpcCall(t, b, "/orders/42/settle")
			answer(c)
			gatetest.End(c)
			if got := b.lock.Journal.Short(); got != "acquire 42, "+want {
				t.Errorf("grpc-status %q %s: %s, want %s", status, how, got, want)
			}
		}
		end("in headers", func(c *gate.Call) {
			alone := known
			alone.Ended, alone.GRPCStatus = true, status
			gatetest.Answer(c, &alone)
			gatetest.Finish(c)
		})
		end("in trailers", func(c *gate.Call) {
			gatetest.Answer(c, &known)
			c.On(gate.Event{Kind: gate.ResponseTrailers, GRPCStatus: status})
		})
	}
	for how, answer := range map[string]func(c *gate.Call){
		"a status in headers that do not end the answer": func(c *gate.Call) {
			early := known
			early.GRPCStatus = "0"
			gatetest.Answer(c, &early)
			gatetest.Finish(c)
		},
		"no end": func(c *gate.Call) { gatetest.Answer(c, &known) },
		"a second attempt": func(c *gate.Call) {
			again := known
			again.Attempts = 2
			gatetest.Answer(c, &again)
			c.On(gate.Event{Kind: gate.ResponseTrailers, GRPCStatus: "0"})
		},
		"a gateway": func(c *gate.Call) {
			gateway := known
			gateway.Status = 502
			gatetest.Answer(c, &gateway)
			c.On(gate.Event{Kind: gate.ResponseTrailers, GRPCStatus: "0"})
		},
	} {
		b := newBench(t, false)
		c := grpcCall(t, b, "/orders/42/settle")
		answer(c)
		gatetest.End(c)
		if got := b.lock.Journal.Short(); got != "acquire 42, hold" {
			t.Errorf("%s: %s", how, got)
		}
	}
	// Envoy's own answer to a call that it has not sent.
	b := newBench(t, false)
	c := grpcCall(t, b, "/orders/42/settle")
	gatetest.Answer(c, &gate.Response{Status: 200, Details: "no_healthy_upstream", Attempts: 0, Ended: true, GRPC: true, GRPCStatus: "14"})
	gatetest.Finish(c)
	gatetest.End(c)
	if got := b.lock.Journal.Short(); got != "acquire 42, release" {
		t.Errorf("not forwarded: %s", got)
	}
}

func TestGRPCStatusIn(t *testing.T) {
	for want, header := range map[string]order.HeaderList{
		"5": {{"grpc-message", "x"}, {"grpc-status", "5"}},
		"":  {{"grpc-status", "0"}, {"grpc-status", "0"}},
	} {
		if got := gate.GRPCStatusIn(header); got != want {
			t.Errorf("%v: %q, want %q", header, got, want)
		}
	}
	if got := gate.GRPCStatusIn(order.HeaderList{}); got != "" {
		t.Errorf("no headers: %q", got)
	}
}

// TestGRPCCreates learns from an answer with a message, and makes a failure of it where
// headers alone have a status.
func TestGRPCCreates(t *testing.T) {
	path := []order.ID{{In: order.InHeader, Name: "x-order-id", Format: digits}}
	for _, tt := range []struct {
		name, status string
		ended        bool
		http         int
		text, want   string
	}{
		{"a message", "", false, 200, "77", "learn 77"},
		{"a message without an ID", "", false, 200, "", "incomplete"},
		{"OK alone", "0", true, 200, "77", "learn 77"},
		{"a definite failure", "3", true, 200, "", ""},
		{"a conflict that names it", "6", true, 200, "77", "learn 77"},
		{"a conflict that does not", "6", true, 200, "", "learn 5"}, // the request has it
		{"a proxy's status", "14", true, 200, "", "abandoned"},
		{"a proxy's status with an ID", "14", true, 200, "77", "learn 77"},
		{"no status", "", true, 200, "", "abandoned"},
		{"a failure of HTTP", "", true, 415, "", ""},
		{"a gateway", "", true, 502, "", "abandoned"},
	} {
		b := newBench(t, false)
		g := gatetest.Gate(t, []gate.Policy{{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/shop.Orders/Create", IDs: path},
			Create: &gate.Create{Filter: b.filter, Learn: gate.Learn{Header: "x-new"}, Format: digits},
		}}, b.record)
		c := g.Open(order.Request{Method: "POST", Target: "/shop.Orders/Create", Header: order.HeaderList{{"content-type", "application/grpc"}, {"x-order-id", "5"}}, BodyState: order.BodyComplete})
		c.On(gate.Event{Kind: gate.Opened})
		_, _ = answered(t, c, gate.Response{
			Status: tt.http, Details: "via_upstream", Attempts: 1, Ended: tt.ended, GRPC: tt.http == 200, GRPCStatus: tt.status,
			Header: order.HeaderList{{"x-new", tt.text}},
		}, "", "")
		_ = learned(t, c, gatetest.End(c))
		if got := b.filter.Journal.Short(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestGRPCCreateThatLearnsFromJSON cannot read a message.
func TestGRPCCreateThatLearnsFromJSON(t *testing.T) {
	b := newBench(t, false)
	c := grpcCall(t, b, "/orders")
	readsBody, err := answered(t, c, gate.Response{Status: 200, Details: "via_upstream", Attempts: 1, GRPC: true}, "\x00\x00\x00\x00\x03\x0a\x01x", "")
	if !readsBody || err == nil || !strings.Contains(err.Error(), "response_header") || b.filter.Journal.Short() != "incomplete" {
		t.Errorf("error %v, did %s", err, b.filter.Journal.Short())
	}
}

// TestGRPCAccept has clients that say that their call is gRPC's. The backend may be one of HTTP, which
// then answers 406 after it has acted.
func TestGRPCAccept(t *testing.T) {
	b := newBench(t, false)
	for _, target := range []string{"/orders/42/settle", "/orders"} {
		c := b.gate.Open(order.Request{
			Method: "POST", Target: target, BodyState: order.BodyComplete,
			Header: order.HeaderList{{"content-type", "application/grpc"}, {"accept", "text/xml"}},
		})
		step := c.On(gate.Event{Kind: gate.Opened})
		if step.Work == gate.Acquire {
			step = gatetest.Work(t.Context(), c, step)
		}
		if got := step.Set[0]; got != (gate.Header{Name: gate.HeaderAccept, Value: "text/xml, */*;q=0.1"}) {
			t.Errorf("%s: Accept is %q", target, got)
		}
		gatetest.End(c)
	}
}
