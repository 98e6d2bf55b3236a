package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// edit replaces parts of the example's configuration, which have to be there:
// pairs of what is and what shall be.
func edit(t testing.TB, pairs ...string) func(yaml string) string {
	return func(yaml string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if !strings.Contains(yaml, pairs[i]) {
				t.Fatalf("the example has no %q", pairs[i])
			}
			yaml = strings.Replace(yaml, pairs[i], pairs[i+1], 1)
		}
		return yaml
	}
}

// both makes one change of two.
func both(f, g func(string) string) func(string) string {
	return func(yaml string) string { return g(f(yaml)) }
}

const (
	settlementLock = "  settlement:\n"                 // where the example's lock begins
	settleAction   = "settle: {lock: settlement}"      // of the example's rule
	patience       = "              message_timeout: " // of Envoy, up to the value
)

// patiently lets requests wait longer for a lock than the example does: inside Envoy nothing limits that.
// And it lets answers wait for a thread of Envoy that is busy. Those to "Connection: close", Envoy drops when
// it has not sent them within a second.
func patiently(t testing.TB) func(string) string {
	const idle = "          stream_idle_timeout: 60s\n"
	closing := edit(t, idle, "          delayed_close_timeout: 60s\n"+idle)
	if *attachment == asModule {
		return closing
	}
	return both(closing, edit(t, patience+"5s", patience+"50s"))
}

// hanging is a request that the backend keeps until it is told to go on.
type hanging struct {
	done  <-chan string // what came instead of an answer 200
	leave context.CancelFunc
	seen  *http.Request // as it came to the backend
}

// hang sends a request that the backend keeps, and waits until it is there.
func (s *stack) hang(b *backend, method, path, body string, header ...string) hanging {
	s.t.Helper()
	before := len(b.seen())
	ctx, leave := context.WithCancel(s.t.Context())
	s.t.Cleanup(leave)
	done := make(chan string, 1)
	go func() {
		a, err := s.send(ctx, method, path+"?do=hang", body, header...)
		var instead string
		if err != nil || a.status != 200 {
			instead = fmt.Sprintf("%d %q %s (%v)", a.status, a.verdict, a.body, err)
		}
		done <- instead
	}()
	h := hanging{done: done, leave: leave}
	bedtest.Eventually(s.t, "the backend has "+path, func() bool {
		for _, r := range b.seen()[before:] {
			if r.URL.Path == path {
				h.seen = r
			}
		}
		return h.seen != nil
	})
	return h
}

// wantAnswer checks that a request that hung was answered after all.
func (h hanging) wantAnswer(t testing.TB) {
	t.Helper()
	select {
	case instead := <-h.done:
		if instead != "" {
			t.Errorf("a request that hung was not answered 200: %s", instead)
		}
	case <-time.After(30 * time.Second):
		t.Error("a request that hung was never answered")
	}
}

// ours returns what ordergate told the backend.
func (h hanging) ours(name string) string { return h.seen.Header.Get("x-ordergate-" + name) }

// last returns what ordergate told the backend with the last request.
func (b *backend) last(name string) string {
	seen := b.seen()
	return seen[len(seen)-1].Header.Get("x-ordergate-" + name)
}

// readiness returns the answer of /readyz: its status, and the reasons by
// condition.
func (s *stack) readiness() (status int, reasons map[string]string) {
	s.t.Helper()
	resp, err := client.Get("http://" + s.GateAddr(s.gate, "admin") + "/readyz")
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var body struct {
		Conditions []struct{ Name, Reason string }
	}
	if err := json.Unmarshal(text, &body); err != nil {
		s.t.Fatalf("%v in %s", err, text)
	}
	reasons = make(map[string]string)
	for _, c := range body.Conditions {
		reasons[c.Name] = c.Reason
	}
	return resp.StatusCode, reasons
}

// wantGone waits until no key fits a pattern.
func (s *stack) wantGone(pattern string) {
	s.t.Helper()
	bedtest.Eventually(s.t, fmt.Sprintf("no key %s", pattern), func() bool {
		return len(s.redis.Keys(s.t.Context(), pattern).Val()) == 0
	})
}
