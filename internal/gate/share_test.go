package gate_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// TestOrderPartStays has values that no release may change: instances of two releases would
// enforce different orders.
func TestOrderPartStays(t *testing.T) {
	for id, want := range map[string]int{
		"": 9003, "1": 499, "2": 2234, "42": 9882, "1001": 7124, "9223372036854775807": 6505,
		"5b6ef3c2-1111-4222-8333-444455556666": 2769,
	} {
		if got := gate.OrderPart(id); got != want {
			t.Errorf("order %q is in part %d, want %d", id, got, want)
		}
	}
}

// TestOrderPartsAreEven counts consecutive orders, of which each share has to have its part.
func TestOrderPartsAreEven(t *testing.T) {
	const orders = 1_000_000
	var counts [gate.AllOrders]int
	for i := range orders {
		counts[gate.OrderPart(strconv.Itoa(10_000_000+i))]++
	}
	sum := 0
	for part, n := range counts {
		sum += n
		share := float64(part+1) / gate.AllOrders
		deviation := math.Sqrt(orders * share * (1 - share)) // of a binomial distribution
		if off := math.Abs(float64(sum) - orders*share); off > 6*deviation+1 {
			t.Fatalf("a share of %d has %d of %d orders, %.0f off", part+1, sum, orders, off)
		}
	}
}

// shareBench is a gate with a share of its rules, and the lock of each side.
type shareBench struct {
	*bench
	gate   *gate.Gate
	others *gatetest.Lock // of observed calls
}

func newShareBench(t testing.TB, share gate.Share) shareBench {
	t.Helper()
	b := newBench(t, false)
	b.filter.Others = presence.Absent
	others := &gatetest.Lock{Journal: b.lock.Journal, Name: "observed"}
	policies := b.gate.Policies()
	policies = append(policies, gate.Policy{
		Rule: order.Rule{
			Name: "batch", Methods: []string{"POST"}, Path: "/batch",
			IDs: []order.ID{{In: order.InJSON, Members: []string{"ids"}, List: true, MaxList: 10, MaxBody: 1000, Format: digits}},
		},
		Settle: &gate.Settle{Lock: b.lock},
	})
	for i := range policies {
		rest, own := policies[i], share
		rest.Observe = true
		if rest.Settle != nil {
			rest.Settle = &gate.Settle{Lock: others}
		}
		own.Others = &rest
		policies[i].Share = &own
	}
	g := gatetest.Gate(t, policies, b.record)
	return shareBench{b, g, others}
}

// The parts of these orders are known from TestOrderPartStays.
const (
	low, high = "1001", "42"
	lowShare  = 8000 // has low, and not high
)

func TestShareOfOrders(t *testing.T) {
	b := newShareBench(t, gate.Share{Orders: lowShare})
	d := b.gate.Screen(t.Context(), order.Request{Method: "GET", Target: "/orders/" + low})
	if d.Verdict != gate.VerdictAbsent || !d.Refused || d.Observed {
		t.Errorf("an order of the share: %+v", d)
	}
	d = b.gate.Screen(t.Context(), order.Request{Method: "GET", Target: "/orders/" + high})
	if d.Verdict != gate.VerdictAbsent || d.Refused || !d.Observed {
		t.Errorf("another order: %+v", d)
	}
	if n := b.record.Observed(); n != 1 {
		t.Errorf("%d decisions were observed, want 1", n)
	}
	for _, tt := range []struct{ id, did string }{{low, "acquire " + low + ", release"}, {high, "observed acquire " + high + ", observed release"}} {
		b := newShareBench(t, gate.Share{Orders: lowShare})
		c := b.gate.Open(order.Request{Method: "POST", Target: "/orders/" + tt.id + "/settle", BodyState: order.BodyComplete})
		step := gatetest.Settle(t.Context(), c)
		if (len(step.Set) == 0) != c.Observed() || step.Do != gate.PassRequest {
			t.Errorf("order %s: %+v, observed: %v", tt.id, step, c.Observed())
		}
		gatetest.Answer(c, &gate.Response{Details: "via_upstream", Attempts: 1})
		gatetest.Finish(c)
		gatetest.End(c)
		if did := b.lock.Journal.Short(); did != tt.did {
			t.Errorf("order %s: %s, want %s", tt.id, did, tt.did)
		}
	}
}

// TestShareOfABusyOrder has the lock refuse a call: only one of the share is refused.
func TestShareOfABusyOrder(t *testing.T) {
	b := newShareBench(t, gate.Share{Orders: lowShare})
	b.lock.Err, b.others.Err = gate.ErrBusy, gate.ErrBusy
	for _, id := range []string{low, high} {
		c := b.gate.Open(order.Request{Method: "POST", Target: "/orders/" + id + "/settle", BodyState: order.BodyComplete})
		step := gatetest.Settle(t.Context(), c)
		if step.Do == gate.Refuse == c.Observed() || c.Decision.Verdict != gate.VerdictBusy {
			t.Errorf("order %s: %+v, verdict %s, observed: %v", id, step, c.Decision.Verdict, c.Observed())
		}
	}
}

// TestShareOfLists enforces a list if it has any order of the share.
func TestShareOfLists(t *testing.T) {
	for body, observed := range map[string]bool{
		`{"ids":[` + high + `,` + low + `]}`: false,
		`{"ids":[` + low + `]}`:              false,
		`{"ids":[` + high + `]}`:             true,
	} {
		b := newShareBench(t, gate.Share{Orders: lowShare})
		req := order.Request{Method: "POST", Target: "/batch", Header: order.HeaderList{{"content-type", "application/json"}}}
		c := b.gate.Open(req)
		if step := c.On(gate.Event{Kind: gate.Opened}); step.Do != gate.ReadRequest || c.Observed() || !step.Hide {
			t.Errorf("before its body, %s: observed: %v, %+v", body, c.Observed(), step)
		}
		req.Body, req.BodyState = []byte(body), order.BodyComplete
		if c = b.gate.Open(req); !c.NeedsLock || c.Observed() != observed {
			t.Errorf("%s: needs a lock: %v, observed: %v", body, c.NeedsLock, c.Observed())
		}
	}
}

// TestShareOfUnreadableRequests refuses what may be a settlement of any order. It lets other
// unreadable requests pass, which need no lock.
func TestShareOfUnreadableRequests(t *testing.T) {
	b := newShareBench(t, gate.Share{Orders: 1})
	for _, req := range []order.Request{
		{Method: "POST", Target: "/orders/0" + high + "/settle"},
		{Method: "POST", Target: "/orders/%34%32/settle"},
		{Method: "POST", Target: "/orders//" + high + "/settle"},
		{Method: "PUT", Target: "/orders/" + high + "/settle"},
		{Method: "POST", Target: "/orders/" + high + "/settle?id=" + low},
		{Method: "POST", Target: "/orders/" + high + "/settle", Header: order.HeaderList{{"x-http-method-override", "GET"}}},
		{Method: "POST", Target: "/batch", Header: order.HeaderList{{"content-type", "text/plain"}}, Body: []byte(`{"ids":[1]}`)},
		{Method: "POST", Target: "/orders/" + high + "/settle", Header: order.HeaderList{{"content-type", "application/x-www-form-urlencoded"}}, Body: []byte("id=1")},
		// These lookups and creates may be settlements to a backend.
		{Method: "GET", Target: "/orders/" + low + ";a=b"},
		{Method: "POST", Target: "/orders", Header: order.HeaderList{{"x-original-url", "/a"}}},
	} {
		req.BodyState = order.BodyComplete
		c := b.gate.Open(req)
		if d := b.gate.Screen(t.Context(), req); !d.Refused || d.Observed || !c.Decision.Refused || c.Decision.Observed {
			t.Errorf("%s %s: %+v, and then %+v", req.Method, req.Target, d, c.Decision)
		}
	}
	for _, req := range []order.Request{
		{Method: "GET", Target: "/orders/0" + low},
		{Method: "GET", Target: "/orders/abc"},
		{Method: "GET", Target: "/orders/" + low + "?id=" + high},
		{Method: "POST", Target: "/orders"}, // names no order, and need not
	} {
		req.BodyState = order.BodyComplete
		c := b.gate.Open(req)
		if d := b.gate.Screen(t.Context(), req); d.Refused || !d.Observed || c.Decision.Refused {
			t.Errorf("%s %s: %+v, and then %+v", req.Method, req.Target, d, c.Decision)
		}
	}
}

// TestShareBesideLocks has a lookup of POST in a share, and settlements. A backend may read an
// odd path as a settlement: such a lookup is refused if a rule takes locks, in any share.
func TestShareBesideLocks(t *testing.T) {
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	build := func(share gate.Share, settle func(*gate.Policy)) *gate.Gate {
		b := newBench(t, false)
		policies := []gate.Policy{{
			Rule:   order.Rule{Name: "lookup", Methods: []string{"POST"}, Path: "/orders/{id}", IDs: path, OtherMethods: true},
			Lookup: &gate.Lookup{Filter: b.filter},
		}, {
			Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: path},
			Settle: &gate.Settle{Lock: b.lock},
		}}
		rest := policies[0]
		rest.Observe, share.Others = true, &rest
		policies[0].Share = &share
		settle(&policies[1])
		g := gatetest.Gate(t, policies, b.record)
		return g
	}
	enforced := func(*gate.Policy) {}
	observed := func(p *gate.Policy) { p.Observe = true }
	byHeader := func(p *gate.Policy) {
		rest := *p
		rest.Observe = true
		p.Share = &gate.Share{Header: "x-canary", Others: &rest}
	}
	for _, tt := range []struct {
		name, target string
		settle       func(*gate.Policy)
		header       order.HeaderList
		refused      bool
	}{
		{"a slash that some decode", "/orders/42%2Fsettle", enforced, nil, true},
		{"a backslash", `/orders/42\settle`, enforced, nil, true},
		{"a parameter", "/orders/42;x", enforced, nil, true},
		{"a malformed ID", "/orders/042", enforced, nil, false},
		{"letters", "/orders/a.b-c_d~", enforced, nil, false},
		{"no locks", "/orders/42%2Fsettle", observed, nil, false},
		{"locks of requests with a header", "/orders/42%2Fsettle", byHeader, nil, false},
		{"locks of this request", "/orders/42%2Fsettle", byHeader, order.HeaderList{{"x-canary", ""}}, true},
	} {
		for _, share := range []gate.Share{{Orders: 1}, {Header: "x-other"}} {
			g := build(share, tt.settle)
			req := order.Request{Method: "POST", Target: tt.target, Header: tt.header, BodyState: order.BodyComplete}
			if d, c := g.Screen(t.Context(), req), g.Open(req); d.Refused != tt.refused || c.Decision.Refused != tt.refused {
				t.Errorf("%s: %+v, and then %+v", tt.name, d, c.Decision)
			}
		}
	}
}

// TestShareBesideLocksOfForms has a form that names the page of a settlement, sent to that of a lookup
// or create in a share. PHP may take the field for the parameter.
func TestShareBesideLocksOfForms(t *testing.T) {
	formed := order.HeaderList{{"content-type", "application/x-www-form-urlencoded"}}
	for _, share := range []gate.Share{{Orders: 1}, {Header: "x-other"}} {
		for _, locks := range []bool{false, true} {
			b := newBench(t, false)
			rule := func(name, page string) order.Rule {
				return order.Rule{
					Name: name, Methods: []string{"POST"}, Path: "/order", Query: map[string][]string{"do": {page}}, Backend: order.PHP,
					IDs: []order.ID{{In: order.InQuery, Name: "id", Format: digits}},
				}
			}
			create := rule("create", "add")
			create.IDs = nil
			policies := []gate.Policy{
				{Rule: rule("lookup", "show"), Lookup: &gate.Lookup{Filter: b.filter}},
				{Rule: create, Create: &gate.Create{Filter: b.filter, Learn: gate.Learn{JSON: []string{"orderId"}}, Format: digits}},
				{Rule: rule("settle", "pay"), Settle: &gate.Settle{Lock: b.lock}, Observe: !locks},
			}
			for i := range policies[:2] {
				rest, own := policies[i], share
				rest.Observe, own.Others = true, &rest
				policies[i].Share = &own
			}
			g := gatetest.Gate(t, policies, b.record)
			for _, target := range []string{"/order?do=show&id=42", "/order?do=add"} {
				for body, means := range map[string]bool{"do=pay&id=42": true, "do=home": false} {
					req := order.Request{Method: "POST", Target: target, Header: formed, Body: []byte(body), BodyState: order.BodyComplete}
					want := means && locks
					if d, c := g.Screen(t.Context(), req), g.Open(req); d.Refused != want || c.Decision.Refused != want {
						t.Errorf("share %+v, locks %t, %s with %s: refused %t and %t, want %t", share, locks, target, body, d.Refused, c.Decision.Refused, want)
					}
				}
			}
		}
	}
}

func TestShareByHeader(t *testing.T) {
	for _, tt := range []struct {
		share    gate.Share
		header   order.HeaderList
		enforced bool
	}{
		{gate.Share{Header: "x-canary"}, nil, false},
		{gate.Share{Header: "x-canary"}, order.HeaderList{{"a", "b"}, {"x-canary", ""}}, true},
		{gate.Share{Header: "x-canary"}, order.HeaderList{{"x-canary", "no"}, {"a", "b"}}, true},
		{gate.Share{Header: "x-canary"}, order.HeaderList{{"x-canary", "1"}, {"x-canary", "1"}}, false},
		{gate.Share{Header: "x-canary"}, order.HeaderList{{"x_canary", "1"}}, false},
		{gate.Share{Header: "x-canary", Value: "1"}, order.HeaderList{{"x-canary", "1"}}, true},
		{gate.Share{Header: "x-canary", Value: "1"}, order.HeaderList{{"x-canary", "1,1"}}, false},
		{gate.Share{Header: "x-canary", Value: "1"}, order.HeaderList{{"x-canary", "2"}}, false},
		{gate.Share{Header: "x-canary", Value: "1"}, order.HeaderList{{"x-canary", "1"}, {"x-canary", "2"}}, false},
	} {
		for _, req := range []order.Request{
			{Method: "GET", Target: "/orders/2"}, {Method: "GET", Target: "/orders/02"},
			{Method: "POST", Target: "/orders/2/settle", BodyState: order.BodyComplete}, {Method: "POST", Target: "/orders/02/settle"},
		} {
			b := newShareBench(t, tt.share)
			if tt.header != nil {
				req.Header = tt.header
			}
			d, c := b.gate.Screen(t.Context(), req), b.gate.Open(req)
			if d.Observed == tt.enforced || c.Decision.Observed == tt.enforced {
				t.Errorf("%+v, %s with %v: observed %v, %v", tt.share, req.Target, tt.header, d.Observed, c.Decision.Observed)
			}
			if d.Refused && !tt.enforced {
				t.Errorf("%+v, %s with %v: refused", tt.share, req.Target, tt.header)
			}
		}
	}
}

// TestShareProperties compares shares of any size, for any order: a larger share has all
// orders of a smaller one, and every way to judge a request agrees.
func TestShareProperties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		id := strconv.FormatInt(rapid.Int64Min(1).Draw(rt, "id"), 10)
		small := rapid.IntRange(1, gate.AllOrders-1).Draw(rt, "small")
		large := rapid.IntRange(small, gate.AllOrders-1).Draw(rt, "large")
		enforced := func(orders int) bool {
			b := newShareBench(t, gate.Share{Orders: orders})
			get := order.Request{Method: "GET", Target: "/orders/" + id}
			post := order.Request{Method: "POST", Target: "/orders/" + id + "/settle", BodyState: order.BodyComplete}
			d, tried, c := b.gate.Screen(t.Context(), get), b.gate.TryScreen(get), b.gate.Open(post)
			if d.Observed != tried.Decision.Observed || d.Observed != c.Observed() || d.Observed != b.gate.TryScreen(post).Decision.Observed {
				rt.Fatalf("order %s, share %d: %v, %v, %v", id, orders, d.Observed, tried.Decision.Observed, c.Observed())
			}
			return !d.Observed
		}
		if enforced(small) && !enforced(large) {
			rt.Fatalf("order %s is in a share of %d, and not in one of %d", id, small, large)
		}
	})
}

// BenchmarkShare is the cost of a share, beside BenchmarkScreen and BenchmarkSettle.
func BenchmarkShare(b *testing.B) {
	for name, share := range map[string]gate.Share{"orders": {Orders: lowShare}, "header": {Header: "x-canary"}} {
		bench := newShareBench(b, share)
		g := gatetest.Gate(b, bench.gate.Policies(), gatetest.Silent{})
		req := order.Request{Method: "GET", Target: "/orders/" + low, Header: order.HeaderList{{"user-agent", "curl"}, {"x-canary", "1"}}}
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				if d := g.Screen(ctx, req); !d.Refused {
					b.Fatal(fmt.Sprint(d))
				}
			}
		})
	}
}
