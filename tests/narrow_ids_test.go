package tests

import (
	"strings"
	"testing"
)

// TestNarrowIDs has a lookup whose ID may be missing, and numbers above the largest one of rules.
func TestNarrowIDs(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: func(yaml string) string {
		head, rules, found := strings.Cut(yaml, "\nrules:\n")
		if !found {
			t.Fatal("the example has no rules")
		}
		return head + "\nrules:\n" +
			"  - name: form\n    match: {methods: [GET], path: /admin/order}\n    id: {query: order_id, optional: true, max: int32}\n    lookup: {filter: orders}\n" +
			"  - name: narrow\n    match: {methods: [POST], path: \"/narrow/{id}/settle\"}\n    id: {path: id, max: int32}\n    settle: {lock: settlement}\n" + rules
	}})
	for _, tt := range []struct {
		method, target string
		status         int
		verdict        string
	}{
		{"GET", "/admin/order", 200, ""},
		{"GET", "/admin/order?order_id=", 200, ""},
		{"GET", "/admin/order?order_id=7", 200, ""},
		{"GET", "/admin/order?order_id=77", 404, "absent"},
		{"GET", "/admin/order?order_id=07", 400, "invalid"},
		{"GET", "/admin/order?order_id=4294967303", 400, "invalid"}, // 7 to a backend of 32 bits
		{"GET", "/admin/order?order_id=&order_id=7", 400, "ambiguous"},
		{"POST", "/narrow/7/settle", 200, ""},
		{"POST", "/narrow/2147483647/settle", 200, ""},
		{"POST", "/narrow/2147483648/settle", 400, "invalid"},
		{"POST", "/narrow/4294967303/settle", 400, "invalid"},
		{"POST", "/narrow/18446744073709551623/settle", 400, "invalid"},
	} {
		before := len(b.seen())
		a := s.must(tt.method, tt.target, "")
		a.want(t, tt.status, tt.verdict)
		if came := len(b.seen()) - before; (came == 1) != (tt.status == 200) {
			t.Errorf("%s %s: %d requests reached the backend", tt.method, tt.target, came)
		}
	}
}
