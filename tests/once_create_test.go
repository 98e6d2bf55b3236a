package tests

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
)

// TestCreateOnce creates orders with and without an Idempotency-Key: with the same key, they are
// one order, and every caller gets its ID.
func TestCreateOnce(t *testing.T) {
	t.Parallel()
	p := newPayer(t)
	const learn = "learn: {response_json: orderId}"
	s := newStack(t, settings{backend: p.addr(), orders: 10, gate: both(edit(t, learn, learn+", once: {wait: {up_to: 2s}}"), func(yaml string) string {
		return yaml + `
  - name: note
    match: {methods: [POST], path: /notes}
    once: {by: idempotency-key}
`
	})})
	create := func(status int, verdict string, header ...string) (id int) {
		t.Helper()
		a := s.must("POST", "/orders?status=201", `{"amount":100}`, append(header, "Content-Type", jsonBody)...)
		a.want(t, status, verdict)
		var order struct{ OrderID int }
		must(t, json.Unmarshal([]byte(a.body), &order))
		s.must("GET", fmt.Sprint("/orders/", order.OrderID), "").want(t, 200, "")
		return order.OrderID
	}
	if first, second := create(201, ""), create(201, ""); first == second {
		t.Errorf("without a key, both are order %d", first)
	}
	key := []string{"Idempotency-Key", "a"}
	if first, second := create(201, "", key...), create(201, "replayed", key...); first != second {
		t.Errorf("with a key, they are orders %d and %d", first, second)
	}
	before := p.paid("/orders")
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			a, err := s.send(t.Context(), "POST", "/orders?status=201&for=100ms", "{}", "Idempotency-Key", "b", "Content-Type", jsonBody)
			if err != nil || a.status != 201 {
				t.Errorf("at once: %d %s, %v", a.status, a.verdict, err)
			}
		})
	}
	wg.Wait()
	p.wantPaid(t, "/orders", before+1)

	// A proxy before the backend answers 503, and the order may exist.
	s.must("POST", "/orders?status=503", "{}", "Idempotency-Key", "c", "Content-Type", jsonBody).want(t, 503, "")
	s.must("POST", "/orders?status=503", "{}", "Idempotency-Key", "c", "Content-Type", jsonBody).want(t, 409, "in_use")
	p.wantPaid(t, "/orders", before+2)

	s.must("POST", "/notes", "a").want(t, 200, "") // without a key, and not required
	s.must("POST", "/notes", "a").want(t, 200, "")
	p.wantPaid(t, "/notes", 2)
}
