package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// fill puts so much into a Redis with a limit that it refuses every write, and returns what
// makes room again.
func (s *stack) fill() (empty func()) {
	s.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	s.t.Cleanup(func() { _ = client.Close() })
	must(s.t, client.ConfigSet(s.t.Context(), "maxmemory-policy", "noeviction").Err())
	must(s.t, client.ConfigSet(s.t.Context(), "maxmemory", "500kb").Err()) // less than an empty one takes
	if err := client.Set(s.t.Context(), "filler", "1", 0).Err(); err == nil || !strings.Contains(err.Error(), "OOM") {
		s.t.Fatalf("Redis is not full: %v", err)
	}
	return func() { must(s.t, client.ConfigSet(s.t.Context(), "maxmemory", "0").Err()) }
}

// TestRedisFull has a Redis that takes no more writes, and does again.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	running := s.inBackground(t.Context(), "/orders/9/settle?do=hang")
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/9/settle") == 1 })
	empty := s.fill()
	logged := func() int {
		text, err := os.ReadFile(s.gate.Output())
		must(t, err)
		return strings.Count(string(text), "\n") - strings.Count(string(text), "via_upstream") - strings.Count(string(text), "ordergate_unavailable")
	}
	before := logged()
	s.must("POST", "/orders/1/settle", "").want(t, 503, "unavailable")
	ready := func(want int, words ...string) func() bool {
		return func() bool {
			status, text := s.admin("GET", "/readyz", "")
			for _, w := range words {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return status == want
		}
	}
	if !ready(503, "OOM", "raise maxmemory")() {
		_, text := s.admin("GET", "/readyz", "")
		t.Errorf("after a settlement was refused: %s", text)
	}
	for i := range 200 {
		s.must("POST", fmt.Sprintf("/orders/%d/settle", i%8+1), "").want(t, 503, "unavailable")
		s.must("POST", fmt.Sprintf("/orders?do=create&id=%d", 100+i), "")
	}
	b.goOn() // the lock of what ran is released: that is no room for another
	<-running
	if !ready(503, "OOM", "raise maxmemory")() {
		t.Error("ready, although Redis is full")
	}
	if n := logged() - before; n > 8 {
		t.Errorf("%d lines in the log of 400 requests", n)
	}

	empty()
	bedtest.Eventually(t, "it is ready again", ready(200))
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	s.must("POST", "/orders/9/settle", "").want(t, 200, "")
}
