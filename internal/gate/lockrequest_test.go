package gate

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/order"
)

// headers is an order.Header of plain values: names and values in turn.
type headers []string

func (h headers) Next(cursor int) (string, string, int) {
	if cursor+1 >= len(h) {
		return "", "", -1
	}
	return h[cursor], h[cursor+1], cursor + 2
}

// TestLockRequest checks what of a request comes to the lock.
func TestLockRequest(t *testing.T) {
	longest := strings.Repeat("a", maxTokenBytes)
	tests := []struct {
		name    string
		header  headers
		observe bool
		want    LockRequest
	}{
		{"plain", headers{"accept", "*/*"}, false, LockRequest{Purpose: "settle"}},
		{"named", headers{"x-request-id", "9f-1"}, false, LockRequest{Purpose: "settle 9f-1"}},
		{"within another", headers{"x-ordergate-lease", "u:1", "x-request-id", "9f-1"}, false, LockRequest{PresentedLease: "u:1", Purpose: "settle 9f-1"}},
		{"longest", headers{"x-ordergate-lease", longest, "x-request-id", longest}, false, LockRequest{PresentedLease: longest, Purpose: "settle " + longest}},
		{"too long", headers{"x-ordergate-lease", longest + "a", "x-request-id", longest + "a"}, false, LockRequest{Purpose: "settle"}},
		{"empty", headers{"x-ordergate-lease", "", "x-request-id", ""}, false, LockRequest{Purpose: "settle"}},
		{"blank in it", headers{"x-ordergate-lease", "u: 1", "x-request-id", "a b"}, false, LockRequest{Purpose: "settle"}},
		{"not ASCII", headers{"x-ordergate-lease", "ü:1", "x-request-id", "\x7f"}, false, LockRequest{Purpose: "settle"}},
		{"twice", headers{"x-ordergate-lease", "u:1", "x-ordergate-lease", "u:1", "x-request-id", "a", "x-request-id", "a"}, false, LockRequest{Purpose: "settle"}},
		{"observed", headers{"x-ordergate-lease", "u:1", "x-request-id", "a"}, true, LockRequest{Purpose: "settle a"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.observe)
			c := b.gate.Open(order.Request{Method: "POST", Target: "/orders/42/settle", Header: tt.header, BodyState: order.BodyComplete})
			c.Acquire(t.Context())
			tt.want.IDs = []string{"42"}
			if diff := cmp.Diff([]LockRequest{tt.want}, b.lock.requests); diff != "" {
				t.Error("asked for (-want +got):\n" + diff)
			}
		})
	}
}

// TestSeveralOrders checks that all of them are asked for at once, and that their
// fences come in the order of their keys.
func TestSeveralOrders(t *testing.T) {
	locks := &lock{}
	list := order.ID{In: order.InJSON, Members: []string{"ids"}, List: true, MaxList: 5, MaxBody: 100, Format: digits}
	g, err := New([]Policy{{
		Rule:   order.Rule{Name: "batch", Methods: []string{"POST"}, Path: "/batch", IDs: []order.ID{list}},
		Settle: &Settle{Lock: locks},
	}}, silent{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c := g.Open(order.Request{
		Method: "POST", Target: "/batch", Header: headers{"content-type", "application/json"},
		Body: []byte(`{"ids":[3,1,"20"]}`), BodyState: order.BodyComplete,
	})
	step := c.Granted(t.Context(), c.Acquire(t.Context()))
	if diff := cmp.Diff([]LockRequest{{IDs: []string{"1", "20", "3"}, Purpose: "batch"}}, locks.requests); diff != "" {
		t.Error("asked for (-want +got):\n" + diff)
	}
	if c.Key() != "order:lock:1,order:lock:20,order:lock:3" || FenceText(step.Lease) != "7,8,9" || step.Lease.Owner() != "owner" {
		t.Errorf("key %q, fence %q, owner %q", c.Key(), FenceText(step.Lease), step.Lease.Owner())
	}
}

// BenchmarkSettle is the gate's share of a settlement.
func BenchmarkSettle(b *testing.B) {
	bench := newBench(b, false)
	bench.gate.record = silent{}
	req := order.Request{Method: "POST", Target: "/orders/42/settle", Header: headers{"x-request-id", "7d9f4c1e-0000-4000-8000-000000000001"}, BodyState: order.BodyComplete}
	known := &Response{Details: "via_upstream", Attempts: 1}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		bench.lock.requests, bench.lock.did = bench.lock.requests[:0], bench.lock.did[:0]
		c := bench.gate.Open(req)
		c.Granted(ctx, c.Acquire(ctx))
		c.Answered(known)
		c.Ended(ctx)
	}
}

// TestFences tells the fences of few orders one by one, and those of many by differences.
func TestFences(t *testing.T) {
	many := func(first int64, differences ...int64) []int64 {
		fences := []int64{first}
		for _, d := range differences {
			fences = append(fences, fences[len(fences)-1]+d)
		}
		for len(fences) <= maxListed {
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
		if got := FenceText(fenced(tt.fences)); got != tt.want {
			t.Errorf("%d: %s, want %s", tt.fences, got, tt.want)
		}
	}
}

// fenced is a lease of these fences.
type fenced []int64

func (f fenced) Fences() []int64                  { return f }
func (fenced) Owner() string                      { return "owner" }
func (fenced) Lost() <-chan struct{}              { return nil }
func (fenced) Release(context.Context) error      { return nil }
func (fenced) Hold(context.Context, string) error { return nil }

// TestClientOf names clients by what Envoy tells of their addresses.
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
		if got := clientOf(address); got != want {
			t.Errorf("%q is client %q, want %q", address, got, want)
		}
	}
}

// TestLargestSettlement refuses one byte more, announced or sent. An observed one passes.
func TestLargestSettlement(t *testing.T) {
	for size, refused := range map[int]bool{MaxSettlement: false, MaxSettlement + 1: true} {
		for _, observe := range []bool{false, true} {
			announced := order.Request{
				Method: "POST", Target: "/orders/42/settle", Header: headers{"content-length", strconv.Itoa(size)},
			}
			sent := order.Request{Method: "POST", Target: "/orders/42/settle", Body: make([]byte, size), BodyState: order.BodyComplete}
			for _, req := range []order.Request{announced, sent} {
				b := newBench(t, observe)
				if c := b.gate.Open(req); c.Decision.Refused != (refused && !observe) {
					t.Errorf("%d bytes, observed %t: %+v", size, observe, c.Decision)
				}
				if g := b.gate.TryScreen(req); g.Decision.Refused != (refused && !observe) {
					t.Errorf("%d bytes, observed %t: glanced %+v", size, observe, g.Decision)
				}
			}
		}
	}
}
