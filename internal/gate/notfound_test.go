package gate_test

import (
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// newLookupGate returns a gate with a lookup by path and one by a list in the query, and the orders
// that were not found.
func newLookupGate(t testing.TB) (*gate.Gate, *[]string) {
	t.Helper()
	var notFound []string
	note := func(id string) { notFound = append(notFound, id) }
	filter := &gatetest.Filter{}
	settle := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	g := gatetest.Gate(t, []gate.Policy{
		{
			Rule: order.Rule{
				Name: "lookup", Methods: []string{"GET", "HEAD", "POST"}, Path: "/orders/{id}",
				IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}},
			},
			Lookup: &gate.Lookup{Filter: filter, Absent: gate.Reply{Status: 404}, OnNotFound: note},
		},
		{
			Rule: order.Rule{
				Name: "optional", Methods: []string{"GET"}, Path: "/orders", Optional: true,
				IDs: []order.ID{{In: order.InQuery, Name: "id", Format: digits}},
			},
			Lookup: &gate.Lookup{Filter: filter, OnNotFound: note},
		},
		{
			Rule:   order.Rule{Name: "unmeasured", Methods: []string{"GET"}, Path: "/refunds/{id}", IDs: settle},
			Lookup: &gate.Lookup{Filter: filter},
		},
		{
			Rule:   order.Rule{Name: "settle", Methods: []string{"GET"}, Path: "/orders/{id}/settle", IDs: settle},
			Settle: &gate.Settle{Lock: &gatetest.Lock{}},
		},
	}, &gatetest.Recorder{})
	return g, &notFound
}

// TestNotFound has every way in which an answer could say that there is no such
// order, seen with the request and seen alone.
func TestNotFound(t *testing.T) {
	backend := func(status int) *gate.Response {
		return &gate.Response{Status: status, Details: "via_upstream", Attempts: 1}
	}
	for _, tc := range []struct {
		name, method, target string
		answer               *gate.Response
		notFound             string
	}{
		{"404", "GET", "/orders/42", backend(404), "42"},
		{"410", "GET", "/orders/42", backend(410), "42"},
		{"HEAD", "HEAD", "/orders/42?x=1", backend(404), "42"},
		{"query", "GET", "/orders?id=7", backend(404), "7"},
		{"after a retry", "GET", "/orders/42", &gate.Response{Status: 404, Details: "via_upstream", Attempts: 2}, "42"},
		{"without attributes", "GET", "/orders/42", &gate.Response{Status: 404, Attempts: -1, HasServiceTime: true}, "42"},
		{"there it is", "GET", "/orders/42", backend(200), ""},
		{"403", "GET", "/orders/42", backend(403), ""},
		{"500", "GET", "/orders/42", backend(500), ""},
		{"our own answer", "GET", "/orders/42", &gate.Response{Status: 404, Details: "ext_authz_denied"}, ""},
		{"Envoy's", "GET", "/orders/42", &gate.Response{Status: 404, Details: "route_not_found"}, ""},
		{"nobody knows whose", "GET", "/orders/42", &gate.Response{Status: 404, Attempts: -1}, ""},
		{"POST", "POST", "/orders/42", backend(404), ""},
		{"no ID", "GET", "/orders", backend(404), ""},
		{"malformed", "GET", "/orders/042", backend(404), ""},
		{"another route", "GET", "/", backend(404), ""},
		{"nobody wants to know", "GET", "/refunds/42", backend(404), ""},
		{"a settlement", "GET", "/orders/42/settle", backend(404), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var want []string
			if tc.notFound != "" {
				want = []string{tc.notFound}
			}
			req := order.Request{Method: tc.method, Target: tc.target}

			g, notFound := newLookupGate(t)
			call := g.Open(req)
			if call.Decision.Action == gate.ActionLookup && call.NeedsAnswer {
				if step := gatetest.Answer(call, tc.answer); step.Do != gate.PassResponse || !step.Done {
					t.Errorf("step %+v", step)
				}
			} else if tc.notFound != "" {
				t.Error("the answer is not needed")
			}
			if diff := cmp.Diff(want, *notFound); diff != "" {
				t.Error("with the request (-want +got):\n" + diff)
			}

			g, notFound = newLookupGate(t)
			g.Answered(req, tc.answer)
			if diff := cmp.Diff(want, *notFound); diff != "" {
				t.Error("alone (-want +got):\n" + diff)
			}
		})
	}
}

// TestNotFoundCopiesTheID reuses the memory of a request before its answer comes.
func TestNotFoundCopiesTheID(t *testing.T) {
	g, notFound := newLookupGate(t)
	target := []byte("/orders/42")
	call := g.Open(order.Request{Method: "GET", Target: unsafe.String(&target[0], len(target))})
	copy(target, "/orders/99")
	gatetest.Answer(call, &gate.Response{Status: 404, Details: "via_upstream", Attempts: 1})
	if diff := cmp.Diff([]string{"42"}, *notFound); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// BenchmarkScreen is the gate's share of a lookup.
func BenchmarkScreen(b *testing.B) {
	bench := newBench(b, false)
	bench.filter.Answers, bench.filter.Others = nil, presence.Absent
	g := bench.silent(b)
	ctx := b.Context()
	req := order.Request{Method: "GET", Target: "/orders/2"}
	b.ReportAllocs()
	for b.Loop() {
		g.Screen(ctx, req)
	}
}

// BenchmarkAnswered is the cost of an answer without a call: one that is of no interest, and one
// that is.
func BenchmarkAnswered(b *testing.B) {
	for name, status := range map[string]int{"200": 200, "404": 404} {
		b.Run(name, func(b *testing.B) {
			g, _ := newLookupGate(b)
			g.Policies()[0].Lookup.OnNotFound = func(string) {}
			req := order.Request{Method: "GET", Target: "/orders/42"}
			r := &gate.Response{Status: status, Details: "via_upstream", Attempts: 1}
			b.ReportAllocs()
			for b.Loop() {
				g.Answered(req, r)
			}
		})
	}
}

// TestPrepareOnce encodes a page for requests that cannot be read once, and not for each reason.
func TestPrepareOnce(t *testing.T) {
	policies := make([]gate.Policy, 2)
	for i := range policies {
		policies[i] = gate.Policy{
			Rule:    order.Rule{Name: string(rune('a' + i)), Methods: []string{"GET"}, Path: "/" + string(rune('a'+i)) + "/{id}", IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}}},
			Invalid: gate.Reply{Status: 400, ContentType: "text/html", Body: "<title>Page</title>"},
			Lookup:  &gate.Lookup{Filter: &gatetest.Filter{}, Absent: gate.Reply{Status: 404, Body: "{}"}},
		}
	}
	g := gatetest.Gate(t, policies, &gatetest.Recorder{})
	encoded := 0
	all, err := gate.NewReplies(g, func(r gate.Reply, v gate.Verdict) (*gate.Reply, error) {
		if r.GRPCStatus == 0 {
			encoded++
		}
		return &r, nil
	})
	if err != nil || encoded > 5 { // absent; invalid and ambiguous, with 400; 413 and 431
		t.Errorf("%d answers are encoded, error %v", encoded, err)
	}
	for _, replies := range all.HTTP() {
		for r, reply := range replies {
			if want, _, ok := policies[0].Reply(gate.Refusal(r)); ok && (reply == nil || reply.Status != want.Status || reply.Body != want.Body) {
				t.Errorf("refusal %d is %+v, want %+v", r, reply, want)
			}
		}
	}
}
