package tests

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// heldHint is in the warning that Envoy waits for less time than answers may be held.
const heldHint = "while its answer was held, and its order may exist"

// TestMessageTimeoutIsShorterThanAnswersAreHeld has an Envoy that gives up while the answers
// to creates are held, since Redis hangs.
func TestMessageTimeoutIsShorterThanAnswersAreHeld(t *testing.T) {
	needsSidecar(t, "the module has no such limit")
	t.Parallel()
	b := newBackend(t)
	short := both(withTestRoutes, edit(t, patience+"5s", patience+"0.5s"))
	for _, tt := range []struct {
		name, path string
		envoy      func(string) string
		status     int
		hints      int
	}{
		{"of a body", "/orders?do=create&id=1001", short, 504, 1},
		{"of a header", "/named?do=create&id=1001", short, 504, 1},
		{"passed on all the same", "/orders?do=create&id=1001", both(short, edit(t, "              failure_mode_allow: false\n", "              failure_mode_allow: true\n")), 201, 1},
		{"long enough", "/orders?do=create&id=1001", withTestRoutes, 201, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, settings{backend: b.addr(), orders: 10, gate: withForms(t), envoy: tt.envoy})
			// Just after the start an answer may be held for a window.
			bedtest.Eventually(t, "creates are answered", func() bool { return s.must("POST", tt.path, "").status == 201 })
			must(t, s.server.Pause())
			for range 3 {
				s.must("POST", tt.path, "").want(t, tt.status, "")
			}
			if tt.hints > 0 {
				s.wantLogged("level=WARN", heldHint, " message_timeout ", "request=", " after=", " held_up_to=")
			}
			must(t, s.server.Resume())
			if n := strings.Count(logOf(t, s.gate), heldHint); n != tt.hints {
				t.Errorf("%d hints, want %d", n, tt.hints)
			}
		})
	}
}

// TestRouteTimeoutIsShorterThanAnswersAreHeld has the timeout of a route end, and clients
// leave, while the answers to creates are held inside Envoy.
func TestRouteTimeoutIsShorterThanAnswersAreHeld(t *testing.T) {
	needsModule(t)
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, gate: withForms(t),
		envoy: edit(t, "backend-writes, timeout: 30s }", "backend-writes, timeout: 0.3s }"),
	})
	s.must("POST", "/named?do=create&id=1001", "").want(t, 201, "")
	must(t, s.server.Pause())
	// A route's timeout ends with the answer of the backend, and Envoy holds it on.
	s.must("POST", "/named?do=create&id=1002", "").want(t, 201, "")
	for range 2 {
		ctx, leave := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if _, err := s.send(ctx, "POST", "/named?do=create&id=1003", ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client who leaves got %v", err)
		}
		leave()
	}
	if n := strings.Count(logOf(t, s.gate), heldHint); n != 0 {
		t.Errorf("%d hints", n)
	}
	for _, id := range []string{"1004", "1005", "1006"} { // whose bodies are not whole
		s.must("POST", "/named?do=stream&status=201&named="+id, "").want(t, 504, "")
	}
	must(t, s.server.Resume())
	bedtest.Eventually(t, "the hint", func() bool { return strings.Contains(logOf(t, s.gate), heldHint) })
	s.wantLogged("[warning]", heldHint, "rule=named-create", " after=", " held_up_to=", "details=response_timeout")
	if n := strings.Count(logOf(t, s.gate), heldHint); n != 1 {
		t.Errorf("%d hints", n)
	}
}
