package tests

import (
	"strings"
	"testing"
)

// TestLongForm sends the largest form that is looked into, with as much that may be a
// field's name as it holds: it is answered while Envoy waits for that.
func TestLongForm(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	for _, path := range []string{"/orders/5", "/index.php"} {
		body := strings.Repeat("name=_method\n", 1_000_000/len("name=_method\n"))
		s.must("POST", path, body, "content-type", "multipart/form-data; boundary=b").want(t, 400, "ambiguous")
	}
}

// TestChosenUnderAnotherMethod has a parameter choose a settlement, on the path of a lookup and under
// another method than that.
func TestChosenUnderAnotherMethod(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: func(yaml string) string {
		return yaml + `
  - name: chosen
    match: {methods: [POST], path: /index.php, query: {action: settle}}
    id: {query: id}
    settle: {lock: settlement}
`
	}})
	s.must("POST", "/index.php?action=settle&id=7", "").want(t, 200, "")
	if key := b.last("key"); key != "order:lock:7" {
		t.Errorf("the key is %q", key)
	}
	before := len(b.seen())
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	s.must("POST", "/orders/7?action=settle", "").want(t, 400, "ambiguous")
	s.must("PUT", "/orders/7?action=settle&id=7", "").want(t, 400, "ambiguous")
	s.must("POST", "/orders/7", "action=settle&id=7", form...).want(t, 400, "ambiguous")
	if n := len(b.seen()) - before; n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
	s.must("POST", "/orders/7?note=settle", "note=settle", form...).want(t, 200, "")
}
