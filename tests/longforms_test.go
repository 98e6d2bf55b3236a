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
