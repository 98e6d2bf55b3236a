package tests

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// testRoutes are added to the example's, for what its own routes cannot
// provoke. The header selects one.
const testRoutes = `
              - match: { prefix: /, headers: [{ name: x-test-route, string_match: { exact: timeout } }] }
                route: { cluster: backend-writes, timeout: 0.2s }
              - match: { prefix: /, headers: [{ name: x-test-route, string_match: { exact: retry } }] }
                route: { cluster: backend-writes, timeout: 20s, retry_policy: { retry_on: "gateway-error,reset", num_retries: 1, per_try_timeout: 0.2s } }
              - match: { prefix: /, headers: [{ name: x-test-route, string_match: { exact: refused } }] }
                route: { cluster: refused }
              - match: { prefix: /, headers: [{ name: x-test-route, string_match: { exact: empty } }] }
                route: { cluster: empty }
              - match: { prefix: /, headers: [{ name: x-test-route, string_match: { exact: nocluster } }] }
                route: { cluster_header: x-no-such-header }
              - match: { prefix: /, headers: [{ name: x-test-route, string_match: { exact: redirect } }] }
                redirect: { path_redirect: /elsewhere }
              - match: { prefix: /, headers: [{ name: x-test-route, string_match: { exact: direct } }] }
                direct_response: { status: 200 }
`

const testClusters = `
  clusters:
  - { name: empty, type: STATIC, connect_timeout: 1s, load_assignment: { cluster_name: empty } }
  - name: refused
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: refused
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 1 } } } }] }]
`

func withTestRoutes(yaml string) string {
	yaml = bedtest.Replace(yaml, "              routes:\n", "              routes:"+testRoutes)
	return bedtest.Replace(yaml, "\n  clusters:\n", testClusters)
}

// fate is what becomes of an order's lock after the call.
type fate string

const (
	released fate = "released"
	held     fate = "held"
)

// heldFor is longer than the lease in these tests, so that the time left tells
// a lock that is held for its unknown outcome from one that is still renewed.
const lease, heldFor = 10 * time.Second, 100 * time.Second

func shortLease(yaml string) string {
	short := fmt.Sprintf("lease: %v", lease)
	if strings.Contains(yaml, short) { // it was called before
		return yaml
	}
	yaml = bedtest.Replace(yaml, "lease: 90s", short)
	return bedtest.Replace(yaml, "hold: 60s", fmt.Sprintf("hold: %v", heldFor))
}

// wantFate waits until the order's lock has met its fate.
func (s *stack) wantFate(id string, want fate) {
	s.t.Helper()
	key := "order:lock:" + id
	bedtest.Eventually(s.t, fmt.Sprintf("lock of order %s %s", id, want), func() bool {
		left := s.redis.PTTL(s.t.Context(), key).Val() // -2ns: no such key
		switch {
		case left > lease && want == released:
			s.t.Fatalf("order %s: the lock is held for %v, want it released", id, left)
		case left == -2 && want == held:
			s.t.Fatalf("order %s: the lock was released, want it held", id)
		}
		return want == released && left == -2 || want == held && left > lease
	})
}

// TestOutcomes is the table of what can become of a settlement, row by row, as
// Envoy shows it: what is released, and what is held.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 200, gate: shortLease, envoy: both(withTestRoutes, describing)})
	tests := []struct {
		name   string
		do     string // what the backend does
		route  string // how Envoy gets there
		status int
		fate   fate
		counts string // the outcome that is counted
	}{
		{"answered 200", "", "", 200, released, "known"},
		{"answered 204", "204", "", 204, released, "known"},
		{"the backend's own 500", "500", "", 500, released, "known"},
		{"503, by the backend or by a proxy before it that lost it", "503", "", 503, held, "unknown"},
		{"a gateway's timeout, behind which PHP still pays", "504", "", 504, held, "unknown"},
		{"a gateway that got no answer", "502", "", 502, held, "unknown"},
		{"route timeout", "hang", "timeout", 504, held, "unknown"},
		{"reset before headers", "reset", "", 503, held, "unknown"},
		{"connection refused", "", "refused", 503, released, "not_forwarded"},
		{"no endpoints", "", "empty", 503, released, "not_forwarded"},
		{"no such cluster", "", "nocluster", 503, released, "not_forwarded"},
		{"redirect", "", "redirect", 301, released, "not_forwarded"},
		{"direct response", "", "direct", 200, released, "not_forwarded"},
		{"second try answered, first may still run", "hang-once", "retry", 200, held, "unknown"},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id := fmt.Sprint(100 + i)
			counter := fmt.Sprintf(`ordergate_lock_outcome_total{lock="settlement",outcome=%q}`, tt.counts)
			before := s.metric(counter)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			path := "/orders/" + id + "/settle?do=" + tt.do
			a, err := s.send(ctx, "POST", path, "", "x-test-route", tt.route)
			if err != nil {
				t.Fatal(err)
			}
			if a.status != tt.status {
				t.Errorf("status %d, want %d (%s)", a.status, tt.status, a.body)
			}
			s.wantFate(id, tt.fate)
			bedtest.Eventually(t, "outcome "+tt.counts+" counted", func() bool { return s.metric(counter) != before })
			if _, metadata := s.described(path); metadata["outcome"] != tt.counts || metadata["verdict"] != "acquired" {
				t.Errorf("Envoy has %v, want the outcome %s", metadata, tt.counts)
			}
			if tt.fate == held {
				s.must("POST", "/orders/"+id+"/settle", "").want(t, 409, "busy")
			}
		})
	}
}

// TestAborts has the client leave at each stage.
func TestAborts(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, gate: both(shortLease, waitingUpTo(t, 40*time.Second)), envoy: patiently(t),
	})

	t.Run("while the backend runs", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		done := s.inBackground(ctx, "/orders/1/settle?do=hang")
		bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/1/settle") == 1 })
		leave()
		<-done
		s.wantFate("1", held)
	})

	t.Run("while it waits for the lock", func(t *testing.T) {
		s.redis.HSet(t.Context(), "order:lock:2", "somebody:1", 1)
		ctx, leave := context.WithCancel(t.Context())
		done := s.inBackground(ctx, "/orders/2/settle")
		waiters := `ordergate_lock_waiters{lock="settlement"}`
		bedtest.Eventually(t, "it waits", func() bool { return s.metric(waiters) == "1" })
		leave()
		<-done
		bedtest.Eventually(t, "the wait ended", func() bool { return s.metric(waiters) == "0" })
		if n := b.arrived("/orders/2/settle"); n != 0 {
			t.Errorf("%d requests reached the backend", n)
		}
		// Nothing of the waiter's may be left: the lock is free once its holder goes.
		s.redis.Del(t.Context(), "order:lock:2")
		s.must("POST", "/orders/2/settle", "").want(t, 200, "")
		s.wantFate("2", released)
	})

	t.Run("during the answer", func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		done := s.inBackground(ctx, "/orders/3/settle?do=stream")
		bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/3/settle") == 1 })
		bedtest.Eventually(t, "it is answered", func() bool { return <-done })
		leave()
		s.wantFate("3", held) // its beginning had come: what follows may be the payment
	})
}

// inBackground settles and reports on the channel: true once an answer's headers
// have come, false when the request failed.
func (s *stack) inBackground(ctx context.Context, path string) <-chan bool {
	done := make(chan bool, 1)
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+path, http.NoBody)
	must(s.t, err)
	go func() {
		resp, err := client.Do(req)
		if err == nil {
			defer resp.Body.Close()
		}
		done <- err == nil
		<-ctx.Done()
	}()
	return done
}

// TestLongAnswer checks that the lock is kept until the answer ends, and is held if the
// answer breaks off.
func TestLongAnswer(t *testing.T) {
	t.Parallel()
	for do, want := range map[string]fate{"stream": released, "stream-trailers": released, "reset-in-body": held} {
		t.Run(do, func(t *testing.T) {
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortLease})
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			if !<-s.inBackground(ctx, "/orders/1/settle?do="+do) {
				t.Fatal("no answer")
			}
			s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
			b.goOn()
			s.wantFate("1", want)
		})
	}
}

// TestFailedUpgrade is the stream that begins with response headers.
func TestFailedUpgrade(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortLease})
	a := s.must("POST", "/orders/1/settle", "", "Connection", "Upgrade", "Upgrade", "websocket")
	if a.status != 403 {
		t.Errorf("status %d, want Envoy's 403", a.status)
	}
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	s.wantFate("1", released)
}
