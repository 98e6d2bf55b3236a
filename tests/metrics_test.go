package tests

import (
	"context"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestLockMetrics has everything happen to a lock, and looks at what is counted:
// all of it, and nothing else.
func TestLockMetrics(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, envoy: patiently(t),
		gate: edit(t, "wait: {tries: 3, every: 100ms}", "wait: {up_to: 40s}\n    max_waiters_per_key: 1"),
	})
	want := map[string]string{
		`acquire_total{lock="settlement",result="granted"}`:  "0",
		`acquire_total{lock="settlement",result="busy"}`:     "0",
		`acquire_total{lock="settlement",result="answered"}`: "0",
		`acquire_total{lock="settlement",result="canceled"}`: "0",
		`acquire_total{lock="settlement",result="failed"}`:   "0",
		`wait_seconds_count{lock="settlement"}`:              "0",
		`hold_seconds_count{lock="settlement"}`:              "0",
		`held{lock="settlement"}`:                            "0",
		`waiters{lock="settlement"}`:                         "0",
		`lost_total{lock="settlement"}`:                      "0",
		`forced_total{lock="settlement"}`:                    "0",
		`outcome_total{lock="settlement",outcome="known"}`:   "0",
		`outcome_total{lock="settlement",outcome="unknown"}`: "0",
	}
	// now checks all of it after a change: a call can end a moment before its lock.
	now := func(change map[string]string) {
		t.Helper()
		for name, value := range change {
			for full := range want {
				if strings.HasPrefix(full, name) {
					want[full] = value
				}
			}
		}
		var diff string
		defer func() {
			if diff != "" {
				t.Errorf("after %v (-want +got):\n%s", change, diff)
			}
		}()
		bedtest.Eventually(t, "all is counted", func() bool {
			diff = cmp.Diff(want, s.lockMetrics())
			return diff == ""
		})
	}
	result := func(name string) string { return `acquire_total{lock="settlement",result="` + name }
	outcome := func(name string) string { return `outcome_total{lock="settlement",outcome="` + name }
	now(nil)

	ends := s.hang(b, "POST", "/orders/1/settle", "")
	loses := s.hang(b, "POST", "/orders/2/settle", "")
	leaves := s.hang(b, "POST", "/orders/3/settle", "")
	now(map[string]string{result("granted"): "3", "wait_seconds": "3", "held": "3"})

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	waits := s.inBackground(ctx, "/orders/1/settle")
	now(map[string]string{"waiters": "1"})
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy") // there is room for one
	now(map[string]string{result("busy"): "1", "wait_seconds": "4"})
	leave()
	<-waits
	now(map[string]string{result("canceled"): "1", "wait_seconds": "5", "waiters": "0"})

	leaves.leave()
	now(map[string]string{outcome("unknown"): "1", "hold_seconds": "1", "held": "2"})
	s.redis.Del(t.Context(), "order:lock:2")
	b.goOn()
	ends.wantAnswer(t)
	loses.wantAnswer(t)
	now(map[string]string{outcome("known"): "2", "hold_seconds": "3", "held": "0", "lost": "1"})

	s.server.Kill()
	s.must("POST", "/orders/4/settle", "").want(t, 503, "unavailable")
	now(map[string]string{result("failed"): "1", "wait_seconds": "6"})
}

// lockMetrics returns all that /metrics shows of locks, without what depends on
// time: seconds, and calls that were not forwarded, which one whose client leaves
// while it waits may be or not.
func (s *stack) lockMetrics() map[string]string {
	s.t.Helper()
	resp, err := client.Get("http://" + s.GateAddr(s.gate, "admin") + "/metrics")
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	found := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "ordergate_lock_"); ok {
			name, value, _ := strings.Cut(strings.TrimSpace(rest), " ")
			found[name] = value
		}
	}
	maps.DeleteFunc(found, func(name, _ string) bool {
		return strings.Contains(name, "_bucket{") || strings.Contains(name, "_sum{") ||
			strings.Contains(name, `outcome="not_forwarded"`)
	})
	return found
}
