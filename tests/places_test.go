package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// morePlaces adds settlements whose ID stands elsewhere than in the path.
func morePlaces(yaml string) string {
	return shortLease(yaml) + `
  - {name: by-json, match: {methods: [POST], path: /json}, id: {json: order.id}, settle: {lock: settlement}}
  - {name: by-form, match: {methods: [POST], path: /form}, id: {form: orderId}, settle: {lock: settlement}}
  - {name: by-query, match: {methods: [POST], path: /query}, id: {query: orderId}, settle: {lock: settlement}}
  - {name: by-header, match: {methods: [POST], path: /header}, id: {header: x-order-id}, settle: {lock: settlement}}
  - {name: by-cookie, match: {methods: [POST], path: /cookie}, id: {cookie: orderId}, settle: {lock: settlement}}
  - {name: by-two, match: {methods: [POST], path: "/two/{id}"}, id: [{path: id}, {json: orderId}], settle: {lock: settlement}}
  - {name: batch, match: {methods: [POST], path: /batch}, id: {json: ids, list: true, max_body: 2000}, settle: {lock: settlement}}
  - {name: small, match: {methods: [POST], path: /small}, id: {json: id, max_body: 20}, settle: {lock: settlement}}
`
}

// TestPlaces settles order 42 by each place that an ID can stand in, and checks
// that the backend got the body as it was.
func TestPlaces(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 50, gate: morePlaces})
	const json, form = "application/json", "application/x-www-form-urlencoded"
	tests := []struct {
		name, path, body, contentType, header, value string
		key                                          string // "" when refused
		status                                       int
		verdict                                      string
	}{
		{"JSON", "/json", `{"order":{"id":42}}`, json, "", "", "42", 200, ""},
		{"JSON twice", "/json", `{"order":{"id":42,"id":43}}`, json, "", "", "", 400, "ambiguous"},
		{"JSON as text", "/json", `{"order":{"id":42}}`, "text/plain", "", "", "", 400, "ambiguous"},
		{"JSON missing", "/json", `{"order":{}}`, json, "", "", "", 400, "invalid"},
		{"no body", "/json", "", json, "", "", "", 400, "invalid"},
		{"JSON of 200 kB", "/json", `{"x":"` + strings.Repeat("x", 200_000) + `","order":{"id":42}}`, json, "", "", "", 413, "invalid"},
		{"JSON past the rule's limit", "/small", `{"id":42,"x":"0123456789"}`, json, "", "", "", 413, "invalid"},
		{"form", "/form", "a=1&orderId=42", form, "", "", "42", 200, ""},
		{"form twice", "/form", "orderId=42&orderId=43", form, "", "", "", 400, "ambiguous"},
		{"multipart", "/form", "orderId=42", "multipart/form-data; boundary=x", "", "", "", 400, "ambiguous"},
		{"query", "/query?orderId=42", "", "", "", "", "42", 200, ""},
		{"query and form", "/query?orderId=42", "orderId=43", form, "", "", "", 400, "ambiguous"},
		{"header", "/header", "", "", "x-order-id", "42", "42", 200, ""},
		{"cookie", "/cookie", "", "", "cookie", "a=b; orderId=42", "42", 200, ""},
		{"two places", "/two/42", `{"orderId":"42"}`, json, "", "", "42", 200, ""},
		{"two places differ", "/two/42", `{"orderId":43}`, json, "", "", "", 400, "ambiguous"},
		{"path and JSON", "/orders/42/settle", `{"amount":7,"items":[{"id":1}]}`, json, "", "", "42", 200, ""},
		{"path, and the same in JSON", "/orders/42/settle", `{"id":"42"}`, json, "", "", "42", 200, ""},
		{"path, and another in JSON", "/orders/42/settle", `{"id":43}`, json, "", "", "", 400, "ambiguous"},
		{"path, and another method in JSON", "/orders/42/settle", `{"_method":"DELETE"}`, json, "", "", "", 400, "ambiguous"},
		{"path, and a large JSON", "/orders/42/settle", `{"x":"` + strings.Repeat("x", 200_000) + `"}`, json, "", "", "42", 200, ""},
		{"one of two places", "/two/42", "", "", "", "", "42", 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := len(b.seen())
			a := s.must("POST", tt.path, tt.body, "Content-Type", tt.contentType, tt.header, tt.value)
			a.want(t, tt.status, tt.verdict)
			if seen := b.seen()[before:]; len(seen) != min(1, len(tt.key)) {
				t.Fatalf("%d requests reached the backend", len(seen))
			} else if tt.key != "" {
				if key := seen[0].Header.Get("x-ordergate-key"); key != "order:lock:"+tt.key {
					t.Errorf("key %q", key)
				}
				if got := b.body(seen[0]); got != tt.body {
					t.Errorf("the backend got the body %.100q", got)
				}
			}
		})
	}
	s.must("GET", "/orders/", "").want(t, 200, "") // no order: another page
}

// TestBatch settles several orders in one call: all of them are locked, or none.
func TestBatch(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 50, gate: morePlaces})
	post := func() answer {
		return s.must("POST", "/batch", `{"ids":[3,"1",2]}`, "Content-Type", "application/json")
	}
	post().want(t, 200, "")
	h := b.seen()[0].Header
	if got := h.Get("x-ordergate-key"); got != "order:lock:1,order:lock:2,order:lock:3" {
		t.Errorf("keys %q", got)
	}
	if n := strings.Count(h.Get("x-ordergate-fence"), ","); n != 2 {
		t.Errorf("fences %q", h.Get("x-ordergate-fence"))
	}
	for i := 1; i <= 3; i++ {
		s.wantFate(fmt.Sprint(i), released)
	}
	s.redis.HSet(t.Context(), "order:lock:3", "somebody:1", 1)
	post().want(t, 409, "busy")
	s.wantFate("1", released)
	s.wantFate("2", released)
	if n := b.arrived("/batch"); n != 1 {
		t.Errorf("%d batches reached the backend, want the first only", n)
	}
}

// TestCreateByBody reads the request's body and learns from the answer's: both
// have to be asked for at once.
func TestCreateByBody(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: func(yaml string) string {
		return bedtest.Replace(yaml, "id: {format: digits}\n    create", "id: {json: orderId, optional: true}\n    create")
	}})
	create := func(id, body string) answer {
		return s.must("POST", "/orders?do=create&id="+id, body, "Content-Type", "application/json")
	}
	s.must("GET", "/orders/1001", "").want(t, 404, "absent")
	create("1001", `{"amount":1}`).want(t, 201, "")
	create("1002", `{"amount":1,"orderId":1002}`).want(t, 201, "")
	create("1003", `{"orderId":1003,"orderId":1004}`).want(t, 400, "ambiguous")
	s.must("GET", "/orders/1001", "").want(t, 200, "")
	s.must("GET", "/orders/1002", "").want(t, 200, "")
	s.must("GET", "/orders/1003", "").want(t, 404, "absent")
}
