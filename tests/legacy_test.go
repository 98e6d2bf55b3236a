package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// onEveryLegacy runs a test in front of each old order service.
func onEveryLegacy(t *testing.T, change settings, test func(*testing.T, *stack, *testbed.Orders)) {
	for _, kind := range []struct {
		name  string
		start func(*bedtest.Bed) *testbed.Orders
	}{
		{"php", func(b *bedtest.Bed) *testbed.Orders { return b.PHP(seeded, 8) }},
		{"java", func(b *bedtest.Bed) *testbed.Orders { return b.Java(seeded) }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			orders := kind.start(bedtest.New(t))
			s := change
			s.backend, s.orders = orders.Addr(), seeded
			test(t, newStack(t, s), orders)
		})
	}
}

// seeded is how many orders the old services begin with.
const seeded = 500

// atOnce calls f n times at the same time.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func lines(t testing.TB, read func() ([]string, error)) []string {
	t.Helper()
	l, err := read()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLegacyLookups sends made-up IDs: none may reach the service, and every
// order that exists must.
func TestLegacyLookups(t *testing.T) {
	t.Parallel()
	onEveryLegacy(t, settings{}, func(t *testing.T, s *stack, orders *testbed.Orders) {
		atOnce(20, func(worker int) {
			for i := range 20 {
				n := worker*20 + i
				s.must("GET", fmt.Sprintf("/orders/9%012d", n), "").want(t, 404, "absent")
				if a := s.must("GET", fmt.Sprintf("/orders/%d", n+1), ""); a.status != 200 || a.verdict != "" {
					t.Errorf("order %d: %d %s", n+1, a.status, a.verdict)
				}
			}
		})
		log := lines(t, orders.AccessLog)
		if i := slices.IndexFunc(log, func(l string) bool { return strings.Contains(l, "/orders/9000") }); i >= 0 {
			t.Errorf("a made-up order reached the service: %s", log[i])
		}
		if len(log) != 400 {
			t.Errorf("%d requests reached the service, want 400", len(log))
		}
	})
}

// TestLegacyCreates looks every new order up the moment its creation was
// answered.
func TestLegacyCreates(t *testing.T) {
	t.Parallel()
	onEveryLegacy(t, settings{}, func(t *testing.T, s *stack, _ *testbed.Orders) {
		s.must("GET", fmt.Sprintf("/orders/%d", seeded+1), "").want(t, 404, "absent")
		atOnce(10, func(int) {
			for range 5 {
				a := s.must("POST", "/orders", `{"amount": 100}`, "Content-Type", "application/json")
				var created struct{ OrderID int64 }
				if err := json.Unmarshal([]byte(a.body), &created); err != nil || a.status != 201 {
					t.Errorf("create: %d %s", a.status, a.body)
					return
				}
				if a := s.must("GET", fmt.Sprintf("/orders/%d", created.OrderID), ""); a.status != 200 {
					t.Errorf("order %d was created, and then: %d %s", created.OrderID, a.status, a.verdict)
				}
			}
		})
	})
}

// TestLegacySettlements has many settle one order at the same time.
func TestLegacySettlements(t *testing.T) {
	t.Parallel()
	onEveryLegacy(t, settings{gate: shortLease}, func(t *testing.T, s *stack, orders *testbed.Orders) {
		var mu sync.Mutex
		answers := map[string]int{}
		atOnce(200, func(int) {
			a := s.must("POST", "/orders/7/settle", "")
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprint(a.status, a.verdict)]++
			if a.status == 409 && a.header.Get("Retry-After") != "1" {
				t.Errorf("409 with Retry-After %q", a.header.Get("Retry-After"))
			}
		})
		if n := answers["200"] + answers["409busy"]; n != 200 || answers["200"] == 0 {
			t.Errorf("answers %v", answers)
		}
		paid, err := orders.PaymentsOf(7)
		if err != nil || paid != 1 {
			t.Errorf("paid %d times (%v), want once; answers %v", paid, err, answers)
		}
		s.wantFate("7", released)
	})
}

// TestLegacyOutcomes repeats those rows of the table that an old service can
// bring about by being slow, or gone.
func TestLegacyOutcomes(t *testing.T) {
	t.Parallel()
	change := settings{gate: shortLease, envoy: withTestRoutes}
	onEveryLegacy(t, change, func(t *testing.T, s *stack, orders *testbed.Orders) {
		s.must("POST", "/orders/1/settle", "").want(t, 200, "")
		s.wantFate("1", released)

		// Envoy gives up, the service goes on to pay: nobody else may, meanwhile.
		a := s.must("POST", "/orders/2/settle?slow=1000", "", "x-test-route", "timeout")
		a.want(t, 504, "")
		s.wantFate("2", held)
		s.must("POST", "/orders/2/settle", "").want(t, 409, "busy")
		bedtest.Eventually(t, "the service paid after all", func() bool {
			n, err := orders.PaymentsOf(2)
			return err == nil && n == 1
		})

		ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer leave()
		if _, err := s.send(ctx, "POST", "/orders/3/settle?slow=1000", ""); err == nil {
			t.Error("the client did not leave")
		}
		s.wantFate("3", held)

		if err := orders.Stop(); err != nil {
			t.Fatal(err)
		}
		s.must("POST", "/orders/4/settle", "").want(t, 503, "")
		s.wantFate("4", released)
	})
}

// TestLegacyOddCreates has the services create orders from odd requests. Each answer has
// to tell the truth: a 201 names an order that can be looked up, and no request makes
// later creates fail.
func TestLegacyOddCreates(t *testing.T) {
	t.Parallel()
	onEveryLegacy(t, settings{}, func(t *testing.T, s *stack, orders *testbed.Orders) {
		for _, body := range []string{
			`{"amount":1e999}`, `{"amount":"1e999"}`, `{"amount":-1e999}`, `{"amount":"12\n"}`, `{"amount":" 12 "}`,
			`{"amount":[1]}`, `{"amount":{}}`, `{"amount":null}`, `{"amount":true}`, `{"amount":"\ud800"}`,
			`{"amount":5,"orderId":9223372036854775807}`, `{"amount":5,"orderId":999999999999999999}`,
			`{"amount":5,"orderId":99999999999999999}`, `{"amount":5,"orderId":1e30}`, `{"amount":5,"orderId":[7]}`,
			`{"amount":5,"orderId":{}}`, `{"amount":5,"orderId":-1}`, `{"amount":` + strings.Repeat("9", 400) + `}`,
			`{"amount":5}`,
		} {
			a := s.must("POST", "/orders", body, "content-type", "application/json")
			if a.status == 400 || a.status == 409 {
				continue
			}
			var order struct{ OrderID int64 }
			if err := json.Unmarshal([]byte(a.body), &order); a.status != 201 || err != nil || order.OrderID < 1 {
				t.Errorf("%.60s: %d %q (%v)", body, a.status, a.body, err)
				continue
			}
			s.must("GET", fmt.Sprintf("/orders/%d", order.OrderID), "").want(t, 200, "")
			s.must("POST", fmt.Sprintf("/orders/%d/settle", order.OrderID), "").want(t, 200, "")
		}
		if a := s.must("POST", "/orders", `{"amount":5}`, "content-type", "application/json"); a.status != 201 {
			t.Errorf("no more orders can be created: %d %s", a.status, a.body)
		}
		s.must("GET", "/orders/9000000001", "").want(t, 404, "absent")
		for _, line := range lines(t, orders.Payments) {
			if !paid.MatchString(line) {
				t.Errorf("payments.log has the line %q", line)
			}
		}
	})
}

var paid = regexp.MustCompile(`^order=\d+ amount=[0-9.e+-]+$`)
