package gate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

func TestScreen(t *testing.T) {
	tests := []struct {
		target  string
		observe bool
		verdict gate.Verdict
		refused bool
		counted []string
	}{
		{"/orders/1", false, gate.VerdictMaybe, false, []string{"0 lookup maybe"}},
		{"/orders/2", false, gate.VerdictAbsent, true, []string{"0 lookup absent"}},
		{"/orders/3", false, gate.VerdictUnknown, false, []string{"0 lookup unknown"}},
		{"/orders/9", false, gate.VerdictUnknown, false, []string{"0 lookup unknown"}}, // no answer that exists
		{"/orders/x", false, gate.VerdictInvalid, true, []string{"0 lookup invalid"}},
		{"/orders/2", true, gate.VerdictAbsent, false, []string{"0 lookup absent"}},
		{"/orders/x", true, gate.VerdictInvalid, false, []string{"0 lookup invalid"}},
		{"/elsewhere", false, gate.VerdictNone, false, nil},
		{"/form", false, gate.VerdictNone, false, []string{"3 lookup none"}},
		{"/form?order_id=", false, gate.VerdictNone, false, []string{"3 lookup none"}},
		{"/form?order_id=2", false, gate.VerdictAbsent, true, []string{"3 lookup absent"}},
		{"/form?order_id=x", false, gate.VerdictInvalid, true, []string{"3 lookup invalid"}},
		{"/form?order_id=&order_id=2", false, gate.VerdictAmbiguous, true, []string{"3 lookup ambiguous"}},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.target, tt.observe), func(t *testing.T) {
			b := newBench(t, tt.observe)
			d := b.gate.Screen(t.Context(), order.Request{Method: "GET", Target: tt.target})
			if d.Verdict != tt.verdict || d.Refused != tt.refused {
				t.Errorf("verdict %s refused %t, want %s %t", d.Verdict, d.Refused, tt.verdict, tt.refused)
			}
			if diff := cmp.Diff(tt.counted, b.record.Lines()); diff != "" {
				t.Error("counted (-want +got):\n" + diff)
			}
		})
	}
}

// TestTryScreen compares TryScreen, which does not block, with Screen. TryScreen returns the same
// decision, or a pending lookup with that decision. Neither queries for an order in memory.
func TestTryScreen(t *testing.T) {
	for _, target := range []string{"/orders/1", "/orders/2", "/orders/3", "/orders/9", "/orders/x", "/elsewhere", "/form", "/form?order_id=2"} {
		for _, observe := range []bool{false, true} {
			for _, elsewhere := range []bool{false, true} {
				b, screened, other := newBench(t, observe), newBench(t, observe), newBench(t, observe)
				b.filter.NotInMemory, screened.filter.NotInMemory = elsewhere, elsewhere
				path := []byte(target)
				req := order.Request{Method: "GET", Target: unsafe.String(&path[0], len(path))}
				want, got := other.gate.Screen(t.Context(), req), screened.gate.Screen(t.Context(), req)
				got.Waited = 0
				if got != want {
					t.Errorf("%s: screened %+v, want %+v", target, got, want)
				}
				result := b.gate.TryScreen(req)
				queries := elsewhere && slices.Contains([]string{"/orders/1", "/orders/2", "/orders/3", "/orders/9", "/form?order_id=2"}, target)
				if (result.Pending != nil) != queries || result.NeedsBody || len(b.filter.Journal.Lines()) > 0 {
					t.Fatalf("%s: %+v, queries for %q", target, result, b.filter.Journal.Lines())
				}
				want.ID, got = strings.Clone(want.ID), result.Decision
				if queries {
					if len(b.record.Lines()) > 0 {
						t.Errorf("counted before it is judged: %v", b.record.Lines())
					}
					clear(path) // it is the caller's
					got = result.Pending.Resolve(t.Context())
					got.Waited = 0
				}
				if got != want {
					t.Errorf("%s: %+v, want %+v", target, got, want)
				}
				for _, one := range []*bench{b, screened} {
					if diff := cmp.Diff(other.record.Lines(), one.record.Lines()); diff != "" {
						t.Error("counted (-want +got):\n" + diff)
					}
					if (len(one.filter.Journal.Lines()) > 0) != queries {
						t.Errorf("%s: queries for %q", target, one.filter.Journal.Lines())
					}
				}
			}
		}
	}
}

// TestPendingLookupEnds has the context of a query end: the request is forwarded.
func TestPendingLookupEnds(t *testing.T) {
	b := newBench(t, false)
	b.filter.NotInMemory = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := order.Request{Method: "GET", Target: "/orders/2"}
	if d := b.gate.Screen(ctx, req); d.Refused || d.Verdict != gate.VerdictUnknown {
		t.Errorf("screened: %+v", d)
	}
	if d := b.gate.TryScreen(req).Pending.Resolve(ctx); d.Refused || d.Verdict != gate.VerdictUnknown {
		t.Errorf("resolved: %+v", d)
	}
}

// TestTryScreenOfABody needs the body that has the ID, for a lookup and for a settlement.
func TestTryScreenOfABody(t *testing.T) {
	inBody := []order.ID{{In: order.InJSON, Members: []string{"id"}, Format: digits, MaxBody: 1000}}
	b := newBench(t, false)
	g := gatetest.Gate(t, []gate.Policy{
		{Rule: order.Rule{Name: "lookup", Methods: []string{"POST"}, Path: "/find", IDs: inBody}, Lookup: &gate.Lookup{Filter: b.filter}},
		{Rule: order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/settle", IDs: inBody}, Settle: &gate.Settle{Lock: b.lock}},
	}, b.record)
	json := order.Request{Method: "POST", Header: order.HeaderList{{"content-type", "application/json"}}}
	for _, tt := range []struct {
		target, body string
		verdict      gate.Verdict
	}{
		{"/find", `{"id": 2}`, gate.VerdictAbsent},
		{"/find", `{"id": 1}`, gate.VerdictMaybe},
		{"/find", `{`, gate.VerdictAmbiguous},
		{"/settle", `{"id": 2}`, gate.VerdictNone},
		{"/settle", `{"id": "x"}`, gate.VerdictInvalid},
	} {
		req := json
		req.Target = tt.target
		if result := g.TryScreen(req); !result.NeedsBody || result.Pending != nil {
			t.Errorf("%s: %+v", tt.target, result)
		}
		req.Body, req.BodyState = []byte(tt.body), order.BodyComplete
		if result := g.TryScreen(req); result.NeedsBody || result.Decision.Verdict != tt.verdict {
			t.Errorf("%s %s: %+v", tt.target, tt.body, result)
		}
	}
}

// TestFeignedVerdict has a client send the header by which ext_authz shows that it has looked an
// order up. ext_proc looks it up all the same, and counts again only what it refuses.
func TestFeignedVerdict(t *testing.T) {
	inBody := []order.ID{{In: order.InJSON, Members: []string{"id"}, Format: digits, MaxBody: 1000}}
	for _, tt := range []struct {
		id, verdict string
		refused     bool
		counted     []string
	}{
		{"2", "maybe", true, []string{"0 lookup absent"}},
		{"2", "unknown", true, []string{"0 lookup absent"}},
		{"1", "maybe", false, nil},
		{"1", "unknown", false, []string{"0 lookup maybe"}},
	} {
		b := newBench(t, false)
		g := gatetest.Gate(t, []gate.Policy{
			{Rule: order.Rule{Name: "lookup", Methods: []string{"POST"}, Path: "/find", IDs: inBody}, Lookup: &gate.Lookup{Filter: b.filter}},
		}, b.record)
		req := order.Request{Method: "POST", Target: "/find", Header: order.HeaderList{{"content-type", "application/json"}, {gate.HeaderVerdict, tt.verdict}}}
		c := g.Open(req)
		req.Body, req.BodyState = []byte(`{"id":`+tt.id+`}`), order.BodyComplete
		if step := withBody(t, c, req); (step.Do == gate.Refuse) != tt.refused {
			t.Errorf("%+v: %+v", tt, step)
		}
		if diff := cmp.Diff(tt.counted, b.record.Lines()); diff != "" {
			t.Errorf("%+v: counted (-want +got):\n%s", tt, diff)
		}
	}
}

func TestScreenDoesNotAllocate(t *testing.T) {
	g := newBench(t, false).silent(t)
	ctx := t.Context()
	for _, target := range []string{"/orders/1", "/orders/2", "/orders/3"} {
		req := order.Request{Method: "GET", Target: target}
		if n := testing.AllocsPerRun(100, func() {
			g.Screen(ctx, req)
			g.TryScreen(req)
		}); n != 0 {
			t.Errorf("%s: %v allocations", target, n)
		}
	}
}

// TestOpenedAfterScreen has no call need the body of a request that is judged already: the adapter that
// judges it would not ask for the body any more, and the request would wait for ever.
func TestOpenedAfterScreen(t *testing.T) {
	b := newBench(t, false)
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	query := []order.ID{{In: order.InQuery, Name: "id", Format: digits}}
	lookup := &gate.Lookup{Filter: b.filter}
	key := gate.OnceKey{Lock: b.lock, Parts: []string{"idempotency-key"}}
	for _, observe := range []bool{false, true} {
		g := gatetest.Gate(t, []gate.Policy{
			{
				Rule: order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: path}, Observe: observe,
				Lookup: lookup, Settle: &gate.Settle{Lock: b.lock, Once: &gate.Once{Name: "answer", Fingerprint: true, Keep: time.Hour}},
			},
			{
				Rule: order.Rule{Name: "once", Methods: []string{"POST"}, Path: "/pay", IDs: query, Optional: true}, Observe: observe,
				Lookup: lookup, Once: &gate.Once{Name: "answer", Keep: time.Hour, Fingerprint: true, Key: &key},
			},
		}, b.record)
		for _, target := range []string{"/orders/1/settle", "/orders/2/settle", "/orders/3/settle", "/pay", "/pay?id=1", "/pay?id=2"} {
			req := order.Request{Method: "POST", Target: target, Header: order.HeaderList{{"idempotency-key", `"k"`}, {"content-length", "2"}}}
			if result := g.TryScreen(req); !result.NeedsBody && !result.Decision.Refused && result.Open(req).NeedsBody {
				t.Errorf("%s, observed: %t: the call needs the body, after %+v", target, observe, result.Decision)
			}
		}
	}
}
