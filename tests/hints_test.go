package tests

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// attributes are what the example's ext_proc has for the outcome.
const attributes = `              response_attributes:
              - response.code_details
              - upstream.request_attempt_count
`

// TestNoResponseAttributes has an Envoy that does not tell what an outcome is read off.
func TestNoResponseAttributes(t *testing.T) {
	needsSidecar(t, "the module asks Envoy itself")
	t.Parallel()
	const warning, condition = `level=WARN msg="Envoy does not report the origin of an answer`, `"name":"response attributes","ready":false`
	counted := edit(t, "            - name: orders\n              domains:", "            - name: orders\n              include_attempt_count_in_response: true\n              domains:")
	for _, tt := range []struct {
		name          string
		envoy, gate   func(string) string
		method, path  string
		fate          fate // of the order; "": it is none that is settled
		warned, ready bool
	}{
		{"none", edit(t, attributes, ""), nil, "POST", "/orders/1/settle", held, true, false},
		{"one of the two", edit(t, "              - response.code_details\n", ""), nil, "POST", "/orders/1/settle", held, true, false},
		{"none in a create", edit(t, attributes, ""), nil, "POST", "/orders?do=create&id=77", "", true, false},
		{"none in observe mode", edit(t, attributes, ""), edit(t, settleAction, settleAction+"\n    mode: observe"), "POST", "/orders/1/settle", "", true, true},
		{"attempts are counted in a header", both(edit(t, attributes, ""), counted), nil, "POST", "/orders/1/settle", released, false, true},
		{"both", nil, nil, "POST", "/orders/1/settle", released, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			gate := shortLease
			if tt.gate != nil {
				gate = both(shortLease, tt.gate)
			}
			s := newStack(t, settings{backend: b.addr(), orders: 10, gate: gate, envoy: tt.envoy})
			if a := s.must(tt.method, tt.path, ""); a.status >= 400 {
				t.Errorf("got %d %s", a.status, a.body)
			}
			if tt.fate != "" {
				s.wantFate("1", tt.fate)
			}
			for range 3 {
				s.must("POST", "/orders/2/settle", "")
			}
			status, text := s.admin("GET", "/readyz", "")
			if (status == 200) != tt.ready || strings.Contains(text, condition) == tt.ready {
				t.Errorf("/readyz: %d %s", status, text)
			}
			want := 0
			if tt.warned {
				want = 1
			}
			if n := strings.Count(logOf(t, s.gate), warning); n != want {
				t.Errorf("%d warnings, want %d", n, want)
			}
		})
	}
}

// TestMessageTimeoutIsTooShort has an Envoy that gives up before the wait for a lock is over,
// and then clients who leave after times of their own.
func TestMessageTimeoutIsTooShort(t *testing.T) {
	needsSidecar(t, "the module has no such limit")
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: waitingUpTo(t, 40*time.Second), envoy: edit(t, patience+"5s", patience+"2s")})
	const hint = "is message_timeout of Envoy's ext_proc, or the timeout of a client, shorter than the lock's wait?"
	s.redis.HSet(t.Context(), "order:lock:2", "another:1", 1)
	for i := range 8 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(150+i%2*600)*time.Millisecond)
		if a, err := s.send(ctx, "POST", "/orders/2/settle", ""); err == nil {
			t.Errorf("a client who leaves got %d", a.status)
		}
		cancel()
	}
	canceled := func() bool {
		return s.metric(`ordergate_lock_acquire_total{lock="settlement",result="canceled"}`) == "8"
	}
	bedtest.Eventually(t, "all have left", canceled)
	if strings.Contains(logOf(t, s.gate), hint) {
		t.Error("clients who leave are taken for Envoy")
	}
	sent := 0
	bedtest.Eventually(t, "the hint", func() bool { // after five, unless the machine is too busy to be in time
		if a := s.must("POST", "/orders/2/settle", strings.Repeat(`{"a":1}`, sent%2)); a.status != 504 {
			t.Errorf("got %d, want 504", a.status)
		}
		sent++
		return strings.Contains(logOf(t, s.gate), hint)
	})
	if sent < 5 {
		t.Errorf("a hint after %d requests", sent)
	}
	s.wantLogged("level=WARN", hint, "rule=commission-settle order=2 request=", " after=")
	if n := strings.Count(logOf(t, s.gate), hint); n != 1 {
		t.Errorf("%d hints", n)
	}
}
