package engine

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestSharedSeal has two instances that start before Redis can be reached, and a Redis that loses
// the key.
func TestSharedSeal(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: bedtest.New(t).Redis().Addr()})
	t.Cleanup(func() { _ = client.Close() })
	a, b := newSharedSeal(client), newSharedSeal(client)
	reads := func(what string, s *sharedSeal, path string, want bool) {
		t.Helper()
		if target, ok := s.Reveal("GET", path); ok != want || ok && target != "/pay?id=1" {
			t.Errorf("%s: %q, %t", what, target, ok)
		}
	}
	early := a.Hide("GET", "/pay?id=1")
	reads("of another process", b, early, false)
	a.look(t.Context())
	b.Renew(t.Context())
	reads("with a key in Redis", b, early, true)
	reads("with another method", b, a.Hide("POST", "/pay?id=1"), false)

	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	c := newSharedSeal(client) // it starts while Redis has no key
	c.look(t.Context())
	reads("sealed before", c, a.Hide("GET", "/pay?id=1"), false)
	path := a.Hide("GET", "/pay?id=1")
	a.look(t.Context())
	reads("by the one that has changed its key", a, path, true)
	reads("with the key that Redis has now", c, a.Hide("GET", "/pay?id=1"), true)
	for _, forged := range []string{"", "x", "%", path[:len(path)-1], path + "A"} {
		reads("forged", a, forged, false)
	}
}
