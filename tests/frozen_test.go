package tests

import (
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOrdergateThatHangs is what clients get while ordergate is stopped: docs/how-it-works.md
// has it in a table. Nothing is settled or created meanwhile.
func TestOrdergateThatHangs(t *testing.T) {
	needsSidecar(t, "inside Envoy, it hangs with Envoy")
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
	before := len(b.seen())
	must(t, s.gate.Pause())
	for _, path := range []string{"/orders/5/settle", "/orders?do=create&id=1001"} {
		began := time.Now()
		s.must("POST", path, "").want(t, 504, "")
		if took := time.Since(began); took < 4*time.Second || took > 15*time.Second {
			t.Errorf("POST %s was answered after %v", path, took)
		}
	}
	if n := len(b.seen()) - before; n != 0 {
		t.Errorf("%d requests reached the backend", n)
	}
	s.must("GET", "/orders/5", "").want(t, 200, "")
	must(t, s.gate.Resume())
	// The call that Envoy gave up may get the lock of order 5 first, and hold it if the end of its stream comes late.
	bedtest.Eventually(t, "order 6 is settled", func() bool { return s.must("POST", "/orders/6/settle", "").status == 200 })
	if n := b.arrived("/orders/5/settle"); n != 1 {
		t.Errorf("the backend got %d settlements of order 5, want that before", n)
	}
}
