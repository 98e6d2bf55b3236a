package tests

import (
	"os"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestRedisEvicts has an operator choose a policy by which Redis may evict locks, and then
// take it back.
func TestRedisEvicts(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
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
	must(t, s.redis.ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
	if !ready(200)() {
		t.Error("not ready, although the memory of Redis has no limit")
	}
	must(t, s.redis.ConfigSet(t.Context(), "maxmemory", "1gb").Err())
	bedtest.Eventually(t, "it is not ready", ready(503, "may evict locks", "set maxmemory-policy noeviction at "+s.server.Addr()+" (volatile-lru)"))
	s.must("POST", "/orders/1/settle", "").want(t, 200, "") // nothing is lost yet
	must(t, s.redis.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	bedtest.Eventually(t, "it is ready again", ready(200))

	text, err := os.ReadFile(s.gate.Output())
	must(t, err)
	if n := strings.Count(string(text), "Redis may evict locks"); n != 1 {
		t.Errorf("%d lines say so", n)
	}
}
