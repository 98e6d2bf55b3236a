package testbed_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const (
	seed         = 1000
	simultaneous = 20
)

// TestOrders runs one suite against both old services: to a client they are
// the same.
func TestOrders(t *testing.T) {
	t.Parallel()
	services := map[string]func(*bedtest.Bed) *testbed.Orders{
		"php":  func(bed *bedtest.Bed) *testbed.Orders { return bed.PHP(seed, simultaneous) },
		"java": func(bed *bedtest.Bed) *testbed.Orders { return bed.Java(seed) },
	}
	for name, start := range services {
		t.Run(name, func(t *testing.T) { testOrders(t, start(bedtest.New(t))) })
	}
}

func testOrders(t *testing.T, orders *testbed.Orders) {
	answers := []struct {
		name, method, target, body string
		status                     int
		want                       string
	}{
		{"seeded order", "GET", "/orders/7", "", 200, `{"orderId":7,"amount":107,"commission":"open"}`},
		{"last seeded order", "GET", "/orders/1000", "", 200, `{"orderId":1000,"amount":200,"commission":"open"}`},
		{"head", "HEAD", "/orders/7", "", 200, ``},
		{"query", "GET", "/orders/7?a=b", "", 200, `{"orderId":7,"amount":107,"commission":"open"}`},
		{"order after the last", "GET", "/orders/1001", "", 404, `{"error":"order not found"}`},
		{"order zero", "GET", "/orders/0", "", 404, `{"error":"order not found"}`},
		{"no such page", "GET", "/", "", 404, `{"error":"not found"}`},
		{"not a number", "GET", "/orders/7a", "", 404, `{"error":"not found"}`},
		{"settle of none", "POST", "/orders/1001/settle", "", 404, `{"error":"order not found"}`},
		{"statement of none", "GET", "/orders/1001/statement", "", 404, `{"error":"order not found"}`},
		{"settle by get", "GET", "/orders/7/settle", "", 405, `{"error":"method not allowed"}`},
		{"create without amount", "POST", "/orders", `{}`, 400, `{"error":"amount missing"}`},
		{"create", "POST", "/orders", `{"amount":12.5}`, 201, `{"orderId":1001,"amount":12.5,"commission":"open"}`},
		{"created order", "GET", "/orders/1001", "", 200, `{"orderId":1001,"amount":12.5,"commission":"open"}`},
		{"create by ID", "POST", "/orders", `{"orderId":2000,"amount":3}`, 201, `{"orderId":2000,"amount":3,"commission":"open"}`},
		{"create by ID again", "POST", "/orders", `{"orderId":2000,"amount":4}`, 409, `{"error":"order exists","orderId":2000}`},
		{"create after it", "POST", "/orders", `{"amount":5}`, 201, `{"orderId":2001,"amount":5,"commission":"open"}`},
		{"settle", "POST", "/orders/7/settle", "", 200, `{"paid":true}`},
		{"settle again", "POST", "/orders/7/settle", "", 200, `{"paid":false,"reason":"already paid"}`},
		{"settled order", "GET", "/orders/7", "", 200, `{"orderId":7,"amount":107,"commission":"paid"}`},
		{"statement", "GET", "/orders/7/statement?chunks=2&every=1", "", 200, "order 7 line 1 of 2\norder 7 line 2 of 2"},
	}
	var log []string
	for _, a := range answers {
		status, body := do(t, a.method, orders.URL()+a.target, a.body)
		if body = strings.TrimSpace(body); status != a.status || body != a.want {
			t.Errorf("%s: %d %s, want %d %s", a.name, status, body, a.status, a.want)
		}
		log = append(log, fmt.Sprintf("%s %s %d", a.method, a.target, a.status))
	}
	if got, err := orders.AccessLog(); err != nil || !slices.Equal(got, log) {
		t.Errorf("access log is %q, %v, want %q", got, err, log)
	}
	if got, err := orders.Payments(); err != nil || !slices.Equal(got, []string{"order=7 amount=107"}) {
		t.Errorf("payments are %q, %v, want one, of order 7", got, err)
	}

	t.Run("concurrent creates are distinct", func(t *testing.T) {
		ids := make(map[int64]bool)
		for _, body := range atOnce(t, orders.URL()+"/orders", `{"amount":1}`) {
			var order struct{ OrderID int64 }
			if err := json.Unmarshal([]byte(body), &order); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			ids[order.OrderID] = true
		}
		if len(ids) != simultaneous {
			t.Errorf("%d creates gave %d IDs: %v", simultaneous, len(ids), ids)
		}
	})
	t.Run("concurrent settles pay more than once", func(t *testing.T) {
		// One of PHP's workers may happen to take all the connections and
		// answer them in turn, so the race gets a few orders to show itself.
		for id := int64(100); id < 120; id++ {
			bodies := atOnce(t, fmt.Sprintf("%s/orders/%d/settle?slow=300", orders.URL(), id), "")
			said := 0
			for _, body := range bodies {
				if strings.TrimSpace(body) == `{"paid":true}` {
					said++
				}
			}
			paid, err := orders.PaymentsOf(id)
			if err != nil || paid < 1 || paid != said {
				t.Fatalf("order %d: paid %d times, said so %d times, %v", id, paid, said, err)
			}
			if paid > 1 {
				return
			}
		}
		t.Error("no order was paid more than once")
	})
	t.Run("statement is streamed", func(t *testing.T) {
		// All of it takes minutes: only a streamed first line comes at all.
		req, err := http.NewRequestWithContext(t.Context(), "GET", orders.URL()+"/orders/9/statement?chunks=100&every=2000", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "order 9 line 1 of 100\n" {
			t.Errorf("read %q, %v", line, err)
		}
	})
	t.Run("restart keeps the orders and the address", func(t *testing.T) {
		url := orders.URL()
		if err := orders.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, body := do(t, "GET", url+"/orders/7", ""); !strings.Contains(body, `"commission":"paid"`) {
			t.Errorf("order 7 is now %s", body)
		}
		if status, body := do(t, "POST", url+"/orders", `{"amount":1}`); status != 201 || !strings.Contains(body, fmt.Sprintf(`"orderId":%d,`, 2002+simultaneous)) {
			t.Errorf("create answers %d %s, want ID %d", status, body, 2002+simultaneous)
		}
	})
	if err := orders.Stop(); err != nil {
		t.Error(err)
	}
	eventually(t, func() error { return groupGone(orders.PID()) })
}

// TestJavaNamesTheOrder checks what only the Java service does: the new ID is
// in headers, not only in the body.
func TestJavaNamesTheOrder(t *testing.T) {
	t.Parallel()
	orders := bedtest.New(t).Java(0)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(orders.URL()+"/orders", "application/json", strings.NewReader(`{"amount":1}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if id, location := resp.Header.Get("X-Order-Id"), resp.Header.Get("Location"); id != "1" || location != "/orders/1" {
		t.Errorf("X-Order-Id %q, Location %q", id, location)
	}
}

// atOnce makes the same POST many times at once and returns the bodies.
func atOnce(t *testing.T, url, body string) []string {
	t.Helper()
	bodies := make([]string, simultaneous)
	errs := make([]error, simultaneous)
	var wg sync.WaitGroup
	for i := range simultaneous {
		wg.Go(func() {
			_, bodies[i], errs[i] = request(t, "POST", url, body)
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return bodies
}
