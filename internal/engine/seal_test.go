package engine

import (
	"bytes"
	"log/slog"
	"strings"
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
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	a, b := newSharedSeal(client, logger), newSharedSeal(client, logger)
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
	c := newSharedSeal(client, logger) // it starts while Redis has no key
	c.look(t.Context())
	reads("sealed before", c, a.Hide("GET", "/pay?id=1"), false)
	path := a.Hide("GET", "/pay?id=1")
	a.look(t.Context())
	reads("by the one that has changed its key", a, path, true)
	reads("with the key that Redis has now", c, a.Hide("GET", "/pay?id=1"), true)
	for _, value := range []string{"", "abc", strings.Repeat("x", 32)} {
		log.Reset()
		if err := client.Set(t.Context(), sealKey, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		a.look(t.Context())
		a.look(t.Context())
		if text := log.String(); strings.Count(text, "ordergate:seal") == 0 || strings.Count(text, "\n") > 1 {
			t.Errorf("with %q in Redis: logged %q", value, text)
		}
		client.Del(t.Context(), sealKey)
		a.look(t.Context())
	}
	client.Del(t.Context(), sealKey)
	client.LPush(t.Context(), sealKey, "x")
	if a.look(t.Context()); !strings.Contains(log.String(), "WRONGTYPE") {
		t.Errorf("with a list in Redis: logged %q", log.String())
	}
	for _, forged := range []string{"", "x", "%", path[:len(path)-1], path + "A"} {
		reads("forged", a, forged, false)
	}
}
