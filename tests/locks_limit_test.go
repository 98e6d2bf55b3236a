package tests

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// limited gives the example's settlements a limit of permits for each merchant.
func limited(t testing.TB, permits int) func(string) string {
	return both(shortLease, edit(t,
		settlementLock, fmt.Sprintf("  merchants: {kind: semaphore, permits: %d, key: \"merchant:settling:{id}\"}\n", permits)+settlementLock,
		settleAction, "settle: {lock: settlement, limit: {lock: merchants, id: {json: merchantId, format: digits}}}"))
}

const jsonBody = "application/json"

// ofMerchant settles an order of a merchant.
func (s *stack) ofMerchant(merchant, path string, header ...string) answer {
	s.t.Helper()
	return s.must("POST", path, `{"merchantId":`+merchant+`}`, append(header, "Content-Type", jsonBody)...)
}

// TestLimit lets two settlements of a merchant run, and not a third.
func TestLimit(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: limited(t, 2), envoy: withTestRoutes})
	other := s.second(settings{backend: b.addr(), orders: 10, gate: limited(t, 2)})
	first := s.hang(b, "POST", "/orders/1/settle", `{"merchantId":7}`, "Content-Type", jsonBody)
	second := other.hang(b, "POST", "/orders/2/settle", `{"a":[],"merchantId":"7"}`, "Content-Type", jsonBody)

	for _, via := range []*stack{s, other} {
		via.ofMerchant("7", "/orders/3/settle").want(t, 409, "busy")
		s.wantFate("3", released) // the order's lock did not stay behind
		via.ofMerchant("8", "/orders/4/settle").want(t, 200, "")
	}
	if n := b.arrived("/orders/3/settle"); n != 0 {
		t.Errorf("the third settlement reached the backend %d times", n)
	}
	if got := first.ours("key"); got != "order:lock:1" {
		t.Errorf("key %q, want the order's", got)
	}

	// Within the first, for its own order: no settlement more.
	lease := first.ours("lease")
	s.ofMerchant("7", "/orders/1/settle", leaseHeader, lease).want(t, 200, "")
	if b.last("fence") != first.ours("fence") || !strings.HasPrefix(lease, strings.Split(b.last("lease"), "+")[0]) {
		t.Errorf("within: fence %q, lease %q, want those of the outer call", b.last("fence"), b.last("lease"))
	}
	// For another order it is one more, whatever is presented.
	s.ofMerchant("7", "/orders/3/settle", leaseHeader, lease).want(t, 409, "busy")

	b.goOn()
	first.wantAnswer(t)
	second.wantAnswer(t)
	s.wantFate("1", released)
	bedtest.Eventually(t, "the permits came back", func() bool {
		return s.redis.Get(t.Context(), "merchant:settling:7").Val() == "2"
	})
	s.ofMerchant("7", "/orders/3/settle").want(t, 200, "")
	s.wantFate("3", released)
}

// TestLimitIsHeld checks that a settlement that may still run keeps its permit.
func TestLimitIsHeld(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: limited(t, 1), envoy: withTestRoutes})
	s.ofMerchant("7", "/orders/1/settle?do=hang", "x-test-route", "timeout").want(t, 504, "")
	s.wantFate("1", held)
	s.ofMerchant("7", "/orders/2/settle").want(t, 409, "busy")
	s.ofMerchant("8", "/orders/2/settle").want(t, 200, "")
	s.wantFate("2", released)
	reasons := s.redis.HVals(t.Context(), "{merchant:settling:7}:ordergate_holders").Val()
	if len(reasons) != 1 || !strings.Contains(reasons[0], "outcome unknown: response_timeout") {
		t.Errorf("written down at the permit: %q", reasons)
	}
}

// TestLimitIsRead sends what does not say for certain whom the limit is for.
func TestLimitIsRead(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: limited(t, 1)})
	for _, tt := range []struct{ path, body, verdict string }{
		{"/orders/1/settle", ``, "invalid"},
		{"/orders/1/settle", `{}`, "invalid"},
		{"/orders/1/settle", `{"merchantId":"07"}`, "invalid"},
		{"/orders/1/settle", `{"merchantId":[7]}`, "invalid"},
		{"/orders/1/settle", `{"merchantId":7,"merchantId":8}`, "ambiguous"},
		{"/orders/1/settle", `{"merchantId":7,"merchant_id":8}`, "ambiguous"},
		{"/orders/1/settle?merchantId=8", `{"merchantId":7}`, "ambiguous"},
		{"/orders/01/settle", `{"merchantId":7}`, "invalid"},
	} {
		s.must("POST", tt.path, tt.body, "Content-Type", jsonBody).want(t, 400, tt.verdict)
	}
	if n := len(b.seen()); n != 0 {
		t.Errorf("%d of them reached the backend", n)
	}
}

// TestLegacyLimit settles many orders of a few merchants at the same time, each
// again and again until it is paid: never more than the limit, and none is
// forgotten.
func TestLegacyLimit(t *testing.T) {
	t.Parallel()
	const orderCount, merchants, permits = 24, 3, 2
	onEveryLegacy(t, settings{gate: limited(t, permits)}, func(t *testing.T, s *stack, orders *testbed.Orders) {
		busy := make([]int, orderCount)
		atOnce(orderCount, func(i int) {
			path, merchant := fmt.Sprintf("/orders/%d/settle?slow=20", i+1), fmt.Sprint(i%merchants+1)
			for a := s.ofMerchant(merchant, path); a.status != 200; a = s.ofMerchant(merchant, path) {
				if a.status != 409 {
					t.Errorf("order %d: %d %s", i+1, a.status, a.body)
					return
				}
				busy[i]++
				if n := s.redis.ZCard(t.Context(), "{merchant:settling:"+merchant+"}:ordergate_leases").Val(); n > permits {
					t.Errorf("merchant %s: %d settlements at once", merchant, n)
				}
			}
		})
		for i := range orderCount {
			if n, err := orders.PaymentsOf(int64(i + 1)); err != nil || n != 1 {
				t.Errorf("order %d was paid %d times (%v)", i+1, n, err)
			}
		}
		t.Logf("tries in vain: %v", busy)
	})
}

// TestMadeUpMerchants settles orders for merchants that a client has made up, and leaves some
// of the calls: what they leave in Redis ends.
func TestMadeUpMerchants(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: limited(t, 2)})
	for merchant := range 5 {
		s.ofMerchant(fmt.Sprint(1000+merchant), "/orders/1/settle").want(t, 200, "")
	}
	s.hang(b, "POST", "/orders/2/settle", `{"merchantId":1007}`, "Content-Type", jsonBody).leave()
	s.wantFate("2", held)
	bedtest.Eventually(t, "only what is left for long is there", func() bool {
		return len(s.redis.Keys(t.Context(), "*merchant:settling:100?}:ordergate_leases").Val()) == 1
	})
	keys := s.redis.Keys(t.Context(), "*merchant:settling:100*").Val()
	if len(keys) < 6*3 {
		t.Errorf("the semaphores left only %q: what is it that ends?", keys)
	}
	for _, key := range keys {
		if left := s.redis.TTL(t.Context(), key).Val(); left <= 0 || left > 25*time.Hour {
			t.Errorf("%s lasts for %v, want a day at the most", key, left)
		}
	}
	s.ofMerchant("1000", "/orders/1/settle").want(t, 200, "") // an end makes it no other service's
}
