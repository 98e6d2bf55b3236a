package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/lockmw/redislock"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// withUUIDs adds a rule that settles up to 1,000 orders in one call.
func withUUIDs(yaml string) string {
	return shortLease(yaml) + `
  - name: batch
    match: {methods: [POST], path: /batch}
    id: {json: ids, list: true, max_list: 1000, max_body: 131072, format: uuid}
    settle: {lock: settlement}
`
}

// batchOf returns n orders, sorted, and a body that lists them in another order.
func batchOf(t testing.TB, n int) (ids []string, body string) {
	for range n {
		ids = append(ids, uuid.NewString())
	}
	text, err := json.Marshal(map[string][]string{"ids": ids})
	must(t, err)
	slices.Sort(ids)
	return ids, string(text)
}

// readFences reads the header of more than 50 orders as docs/locks.md shows.
func readFences(t testing.TB, text string) (fences []int64) {
	t.Helper()
	first, rest, _ := strings.Cut(text, ",")
	fence, err := strconv.ParseInt(first, 10, 64)
	must(t, err)
	fences = append(fences, fence)
	for part := range strings.SplitSeq(rest, ",") {
		difference, times, _ := strings.Cut(part, "*")
		if !strings.HasPrefix(difference, "+") && !strings.HasPrefix(difference, "-") {
			t.Fatalf("%q has no sign", part)
		}
		d, err := strconv.ParseInt(difference, 10, 64)
		must(t, err)
		n := 1
		if times != "" {
			n, err = strconv.Atoi(times)
			must(t, err)
		}
		for range n {
			fence += d
			fences = append(fences, fence)
		}
	}
	return fences
}

// TestLargeBatch settles as many orders as a list may have, on a single Redis and on a
// cluster, where each slot has a script and a time of its own.
func TestLargeBatch(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		new  func(t *testing.T, change settings) (*stack, redis.UniversalClient)
	}{
		{"single", func(t *testing.T, change settings) (*stack, redis.UniversalClient) {
			s := newStack(t, change)
			return s, s.redis
		}},
		{"cluster", func(t *testing.T, change settings) (*stack, redis.UniversalClient) {
			bed := bedtest.New(t)
			cluster := bed.Cluster()
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
			t.Cleanup(func() { _ = client.Close() })
			section := fmt.Sprintf("mode: cluster\n  addresses: [%s]", strings.Join(cluster.Addrs(), ", "))
			return stackOn(t, bed, cluster.Nodes()[0], section, change), client
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s, client := tt.new(t, settings{backend: b.addr(), orders: 10, gate: withUUIDs})
			for _, n := range []int{51, 1000} {
				ids, body := batchOf(t, n)
				s.must("POST", "/batch", body, "Content-Type", jsonBody).want(t, 200, "")
				if key, want := b.last("key"), fmt.Sprintf("order:lock:{id};%d", n); key != want {
					t.Errorf("key %.200q, want %q", key, want)
				}
				fences := readFences(t, b.last("fence"))
				if len(fences) != n {
					t.Fatalf("%d fences of %d orders", len(fences), n)
				}
				for i, id := range ids {
					if last := client.Get(t.Context(), redislock.FenceKey("order:lock:"+id)).Val(); last != fmt.Sprint(fences[i]) {
						t.Fatalf("order %d: fence %s, told as %d", i, last, fences[i])
					}
				}
				t.Logf("%d orders: %d bytes of fences", n, len(b.last("fence")))
				bedtest.Eventually(t, "all are released", func() bool {
					return client.Exists(t.Context(), "order:lock:"+ids[0]).Val()+client.Exists(t.Context(), "order:lock:"+ids[n-1]).Val() == 0
				})
			}
			ids, body := batchOf(t, 50)
			s.must("POST", "/batch", body, "Content-Type", jsonBody).want(t, 200, "")
			if key, want := b.last("key"), "order:lock:"+strings.Join(ids, ",order:lock:"); key != want {
				t.Errorf("keys %.200q, want %.200q", key, want)
			}
			if n := strings.Count(b.last("fence"), ",") + 1; n != 50 || strings.Contains(b.last("fence"), "+") {
				t.Errorf("fences %.200q", b.last("fence"))
			}
		})
	}
}

// TestHeadersThatEnvoyCannotCarry sends requests that are just small enough for Envoy, and
// too large with the headers of their lease. They are refused before anything is locked.
// (A few bytes more, and Envoy's ext_authz refuses them.)
func TestHeadersThatEnvoyCannotCarry(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: withUUIDs})
	_, batch := batchOf(t, 1000)
	refused, passed := 0, 0
	send := func(what, path, body string, header ...string) {
		t.Helper()
		before := b.arrived(path)
		a := s.must("POST", path, body, append(header, "Content-Type", jsonBody)...)
		arrived := b.arrived(path) - before
		switch {
		case a.status == http.StatusOK && arrived == 1:
			passed++
		case a.status == http.StatusRequestHeaderFieldsTooLarge && arrived == 0:
			refused++
			if a.verdict == "invalid" && !strings.Contains(a.body, "no room") {
				t.Errorf("%s: %s", what, a.body)
			}
		default:
			t.Errorf("%s: %d %q (%.200s), %d at the backend", what, a.status, a.verdict, a.body, arrived)
		}
		s.wantGone("order:lock:*")
	}
	for _, size := range []int{30_000, 60_600, 60_800, 60_900, 60_950, 61_000} {
		send(fmt.Sprintf("%d bytes", size), "/orders/1/settle", "", "x-large", strings.Repeat("x", size))
	}
	for _, n := range []int{60, 80, 81, 82, 84, 86} {
		var many []string
		for i := range n {
			many = append(many, fmt.Sprintf("x-many-%d", i), "x")
		}
		send(fmt.Sprintf("%d headers", n), "/orders/1/settle", "", many...)
	}
	send("a batch, alone", "/batch", batch)
	send("a batch with 60,000 bytes", "/batch", batch, "x-large", strings.Repeat("x", 60_000))
	if passed < 5 || refused < 3 {
		t.Errorf("%d passed, %d were refused", passed, refused)
	}
	if n := s.metric(`ordergate_refused_total{reason="headers_too_large",rule="batch"}`); n != "1" {
		t.Errorf("%s refused batches were counted", n)
	}
}
