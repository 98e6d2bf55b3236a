package tests

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOneMemberTwice starts two ordergates with one redis.member. Each says so, once a
// minute, and refuses nothing until it is alone.
func TestOneMemberTwice(t *testing.T) {
	t.Parallel()
	const nobody, wrong = 5000, "two ordergates have the same instance ID: give each its own redis.member"
	bed := bedtest.New(t)
	server := bed.Redis()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	table := mariaTable(t, bed, 10)
	one := table.gate(bed, server.Addr(), tableSettings{member: "same"})
	one.becomes(nobody, "absent")
	two := table.gate(bed, server.Addr(), tableSettings{member: "same"})
	both := []*tableGate{one, two}
	for _, g := range both {
		bedtest.Eventually(t, "it says what is wrong", func() bool { return g.said(wrong) })
		g.becomes(nobody, "unknown")
	}
	entries := client.XLen(t.Context(), "ordergate:{orders}:log").Val()
	for range 200 {
		for _, g := range both {
			if a := g.answer(nobody); a != "unknown" {
				t.Fatalf("an order that does not exist is %s", a)
			}
		}
	}
	if now := client.XLen(t.Context(), "ordergate:{orders}:log").Val(); now != entries {
		t.Errorf("the log went from %d to %d entries", entries, now)
	}
	for _, g := range both {
		text, err := os.ReadFile(g.Output())
		must(t, err)
		if n, lines := strings.Count(string(text), wrong), strings.Count(string(text), "\n"); n != 1 || lines > 25 {
			t.Errorf("of %d lines, %d say what is wrong:\n%s", lines, n, text)
		}
	}
	must(t, two.Stop())
	one.becomes(nobody, "absent")
}

// TestWithoutInfo has a user of Redis who may not run INFO: a failover would go
// unnoticed. It is said at the start, and the ordergate is not ready until he may.
func TestWithoutInfo(t *testing.T) {
	t.Parallel()
	const wrong = "restarts and failovers of Redis cannot be detected: let the user run INFO"
	bed := bedtest.New(t)
	server := bed.Redis("--user", "default", "on", "nopass", "~*", "&*", "+@all", "-info")
	table := mariaTable(t, bed, 10)
	for _, kind := range []string{"local", "redis-bitmap"} {
		gate := table.gate(bed, server.Addr(), tableSettings{member: kind, kind: kind, unready: true})
		bedtest.Eventually(t, "it says what is wrong", func() bool { return gate.said(wrong) })
		bedtest.Eventually(t, "the table is read", func() bool { return gate.answer(10) == "maybe" })
		if a := gate.answer(5000); a != "unknown" {
			t.Errorf("an order that does not exist is %s", a)
		}
		if status, body := readiness(t, gate); status != http.StatusServiceUnavailable || !strings.Contains(body, wrong) {
			t.Errorf("it is ready, %d: %s", status, body)
		}
		admin := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: testbed.User, Password: testbed.Password})
		t.Cleanup(func() { _ = admin.Close() })
		must(t, admin.Do(t.Context(), "acl", "setuser", "default", "+info").Err())
		gate.becomes(5000, "absent")
		must(t, gate.WaitReady(t.Context()))
		must(t, admin.Do(t.Context(), "acl", "setuser", "default", "-info").Err())
		gate.becomes(5000, "unknown")
		must(t, gate.Stop())
	}
}

func readiness(t *testing.T, g *tableGate) (status int, body string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, g.admin+"/readyz", nil)
	must(t, err)
	response, err := client.Do(req)
	must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(text)
}
