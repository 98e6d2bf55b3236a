package gate_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestLockRequest checks what of a request comes to the lock.
func TestLockRequest(t *testing.T) {
	longest := strings.Repeat("a", gate.MaxTokenBytes)
	tests := []struct {
		name    string
		header  order.HeaderList
		observe bool
		want    gate.LockRequest
	}{
		{"plain", order.HeaderList{{"accept", "*/*"}}, false, gate.LockRequest{Purpose: "settle"}},
		{"named", order.HeaderList{{"x-request-id", "9f-1"}}, false, gate.LockRequest{Purpose: "settle 9f-1"}},
		{"within another", order.HeaderList{{"x-ordergate-lease", "u:1"}, {"x-request-id", "9f-1"}}, false, gate.LockRequest{PresentedLease: "u:1", Purpose: "settle 9f-1"}},
		{"longest", order.HeaderList{{"x-ordergate-lease", longest}, {"x-request-id", longest}}, false, gate.LockRequest{PresentedLease: longest, Purpose: "settle " + longest}},
		{"too long", order.HeaderList{{"x-ordergate-lease", longest + "a"}, {"x-request-id", longest + "a"}}, false, gate.LockRequest{Purpose: "settle"}},
		{"empty", order.HeaderList{{"x-ordergate-lease", ""}, {"x-request-id", ""}}, false, gate.LockRequest{Purpose: "settle"}},
		{"blank in it", order.HeaderList{{"x-ordergate-lease", "u: 1"}, {"x-request-id", "a b"}}, false, gate.LockRequest{Purpose: "settle"}},
		{"not ASCII", order.HeaderList{{"x-ordergate-lease", "ü:1"}, {"x-request-id", "\x7f"}}, false, gate.LockRequest{Purpose: "settle"}},
		{"twice", order.HeaderList{{"x-ordergate-lease", "u:1"}, {"x-ordergate-lease", "u:1"}, {"x-request-id", "a"}, {"x-request-id", "a"}}, false, gate.LockRequest{Purpose: "settle"}},
		{"observed", order.HeaderList{{"x-ordergate-lease", "u:1"}, {"x-request-id", "a"}}, true, gate.LockRequest{Purpose: "settle a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.observe)
			c := b.gate.Open(order.Request{Method: "POST", Target: "/orders/42/settle", Header: tt.header, BodyState: order.BodyComplete})
			gatetest.Acquire(t.Context(), c)
			tt.want.IDs = []string{"42"}
			if diff := cmp.Diff([]gate.LockRequest{tt.want}, b.lock.Requests()); diff != "" {
				t.Error("requests (-want +got):\n" + diff)
			}
		})
	}
}

// TestSeveralOrders checks that all of them are requested at once, and that their
// fences come in the order of their keys.
func TestSeveralOrders(t *testing.T) {
	locks := &gatetest.Lock{Journal: &gatetest.Journal{}}
	list := order.ID{In: order.InJSON, Members: []string{"ids"}, List: true, MaxList: 5, MaxBody: 100, Format: digits}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule:   order.Rule{Name: "batch", Methods: []string{"POST"}, Path: "/batch", IDs: []order.ID{list}},
		Settle: &gate.Settle{Lock: locks},
	}}, gatetest.Silent{})
	c := g.Open(order.Request{
		Method: "POST", Target: "/batch", Header: order.HeaderList{{"content-type", "application/json"}},
		Body: []byte(`{"ids":[3,1,"20"]}`), BodyState: order.BodyComplete,
	})
	gatetest.Settle(t.Context(), c)
	if diff := cmp.Diff([]gate.LockRequest{{IDs: []string{"1", "20", "3"}, Purpose: "batch"}}, locks.Requests()); diff != "" {
		t.Error("requests (-want +got):\n" + diff)
	}
	if c.Key() != "lock:1,lock:20,lock:3" || gate.FenceText(c.Lease()) != "7,8,9" || c.Lease().Owner() != "owner" {
		t.Errorf("key %q, fence %q, owner %q", c.Key(), gate.FenceText(c.Lease()), c.Lease().Owner())
	}
}

// BenchmarkSettle is the gate's share of a settlement.
func BenchmarkSettle(b *testing.B) {
	bench := newBench(b, false)
	bench.lock.Journal = nil
	g := bench.silent(b)
	req := order.Request{Method: "POST", Target: "/orders/42/settle", Header: order.HeaderList{{"x-request-id", "7d9f4c1e-0000-4000-8000-000000000001"}}, BodyState: order.BodyComplete}
	known := &gate.Response{Details: "via_upstream", Attempts: 1}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		c := g.Open(req)
		gatetest.Settle(ctx, c)
		gatetest.Answer(c, known)
		gatetest.End(c)
	}
}

// TestFences writes the fences of few orders one by one, and those of many by differences.
func TestFences(t *testing.T) {
	many := func(first int64, differences ...int64) []int64 {
		fences := []int64{first}
		for _, d := range differences {
			fences = append(fences, fences[len(fences)-1]+d)
		}
		for len(fences) <= gate.MaxListed {
			fences = append(fences, fences[len(fences)-1]+1)
		}
		return fences
	}
	for _, tt := range []struct {
		fences []int64
		want   string
	}{
		{[]int64{7}, "7"},
		{[]int64{7, 9, 8}, "7,9,8"},
		{many(7), "7,+1*50"},
		{many(7, 0, 0, -3, 2, 2, 2), "7,+0*2,-3,+2*3,+1*44"},
		{many(1<<62, -1<<62, 1<<62-1), "4611686018427387904,-4611686018427387904,+4611686018427387903,+1*48"},
	} {
		if got := gate.FenceText(fenced{fences: tt.fences}); got != tt.want {
			t.Errorf("%d: %s, want %s", tt.fences, got, tt.want)
		}
	}
}

// fenced is a lease of these fences.
type fenced struct {
	gate.Lease
	fences []int64
}

func (f fenced) Fences() []int64 { return f.fences }

// TestClientOf names clients by the addresses that Envoy reports.
func TestClientOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:4711":              "192.0.2.1",
		"192.0.2.1:0":                 "192.0.2.1", // as X-Forwarded-For has it
		"[2001:db8:0:1:2:3:4:5]:4711": "2001:db8:0:1::/64",
		"[2001:db8:0:1::9]:1":         "2001:db8:0:1::/64",
		"[fe80::1%eth0]:4711":         "fe80::/64",
		"[::ffff:192.0.2.1]:4711":     "192.0.2.1",
		"192.0.2.1":                   "",
		"/run/shop.sock":              "",
		"@abstract":                   "",
		"envoy://internal/":           "",
		"":                            "",
	} {
		if got := gate.ClientOf(address); got != want {
			t.Errorf("%q is client %q, want %q", address, got, want)
		}
	}
	c, lock, req := newLockedCreate(t, &gatetest.Filter{})
	c.SetClient("192.0.2.1:4711")
	req.Body, req.BodyState = []byte(`{"id":7}`), order.BodyComplete
	grantOf(t, c, withBody(t, c, req))
	if got := lock.Requests()[0].Client; got != "192.0.2.1" {
		t.Errorf("behind a body, the client is %q", got)
	}
}

// TestLargestSettlement refuses one byte more, announced or sent. An observed one passes.
func TestLargestSettlement(t *testing.T) {
	for size, refused := range map[int]bool{gate.MaxSettlement: false, gate.MaxSettlement + 1: true} {
		for _, observe := range []bool{false, true} {
			announced := order.Request{
				Method: "POST", Target: "/orders/42/settle", Header: order.HeaderList{{"content-length", strconv.Itoa(size)}},
			}
			sent := order.Request{Method: "POST", Target: "/orders/42/settle", Body: make([]byte, size), BodyState: order.BodyComplete}
			for _, req := range []order.Request{announced, sent} {
				b := newBench(t, observe)
				if c := b.gate.Open(req); c.Decision.Refused != (refused && !observe) {
					t.Errorf("%d bytes, observed %t: %+v", size, observe, c.Decision)
				}
				if g := b.gate.TryScreen(req); g.Decision.Refused != (refused && !observe) {
					t.Errorf("%d bytes, observed %t: TryScreen: %+v", size, observe, g.Decision)
				}
			}
		}
	}
}

// TestTooLargeToSealIsCounted refuses a request that Envoy would not carry when its path is sealed.
func TestTooLargeToSealIsCounted(t *testing.T) {
	record := &gatetest.Recorder{}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}}},
		Settle: &gate.Settle{Lock: &gatetest.Lock{}},
	}}, record)
	req := order.Request{Method: "POST", Target: "/orders/42/settle", Header: order.HeaderList{}, BodyState: order.BodyComplete}
	d := g.Screen(t.Context(), req)
	g.RefuseTooLarge(&d, &req, "/"+strings.Repeat("a", 70_000))
	if got := record.Lines(); !d.Refused || len(got) != 1 || got[0] != "0 settle invalid" {
		t.Errorf("recorded %q: %+v", got, d)
	}
}
