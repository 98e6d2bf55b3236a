package redisconn_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/redisconntest"
)

// policy sets a server's policy, and the limit of its memory.
func policy(t *testing.T, server *testbed.Redis, name, most string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory-policy", name).Err())
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory", most).Err())
}

// TestEviction gives one server of each kind of Redis a policy that evicts keys that must
// stay. The user may not run CONFIG.
func TestEviction(t *testing.T) {
	t.Parallel()
	const login = "username: ordergate, password_env: PW"
	for name, start := range map[string]func(*bedtest.Bed) (clients []redis.UniversalClient, one *testbed.Redis){
		"single": func(bed *bedtest.Bed) ([]redis.UniversalClient, *testbed.Redis) {
			r := bed.Redis("--user", "ordergate", "on", ">ordergate-secret", "~*", "+info", "+client|setname")
			return []redis.UniversalClient{redisconntest.Connect(t, "{addresses: ["+r.Addr()+"], "+login+"}")}, r
		},
		"sentinel": func(bed *bedtest.Bed) ([]redis.UniversalClient, *testbed.Redis) {
			s := bed.Sentinel()
			master, err := s.Await(t.Context(), nil)
			bedtest.Check(t, err)
			return []redis.UniversalClient{redisconntest.Connect(t, "{mode: sentinel, addresses: "+redisconntest.List(s.Addrs()...)+"}")}, master
		},
		"cluster": func(bed *bedtest.Bed) ([]redis.UniversalClient, *testbed.Redis) {
			c := bed.Cluster()
			master, err := c.MasterOf(t.Context(), "anything")
			bedtest.Check(t, err)
			return []redis.UniversalClient{redisconntest.Connect(t, "{mode: cluster, addresses: "+redisconntest.List(c.Addrs()...)+"}")}, master
		},
		"quorum with one away": func(bed *bedtest.Bed) (clients []redis.UniversalClient, one *testbed.Redis) {
			for range 3 {
				one = bed.Redis()
				clients = append(clients, redisconntest.Connect(t, "{addresses: ["+one.Addr()+"]}"))
				if len(clients) == 1 {
					one.Kill()
				}
			}
			return clients, one
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clients, one := start(bedtest.New(t))
			log := &strings.Builder{}
			at := redisconn.Stored{Locks: true, ChangeLogs: true}
			e := redisconn.NewEvictionWatch(func() []redis.UniversalClient { return clients },
				func() redisconn.Stored { return at }, slog.New(slog.NewTextHandler(log, nil)))
			steps := []struct {
				policy, most string
				stored       redisconn.Stored
				want         string // in the reason; "": there is none
			}{
				{"noeviction", "100mb", redisconn.Stored{Locks: true, ChangeLogs: true}, ""},
				{"volatile-lru", "0", redisconn.Stored{Locks: true, ChangeLogs: true}, ""}, // without a limit nothing goes
				{"volatile-lru", "100mb", redisconn.Stored{Locks: true, ChangeLogs: true}, "two calls settle one order at once: set maxmemory-policy noeviction at"},
				{"volatile-ttl", "100mb", redisconn.Stored{Locks: true, ChangeLogs: false}, "(volatile-ttl)"},
				{"allkeys-lfu", "100mb", redisconn.Stored{Locks: true, ChangeLogs: false}, "(allkeys-lfu)"},
				{"allkeys-random", "100mb", redisconn.Stored{Locks: false, ChangeLogs: true}, "may evict the change log"},
				{"volatile-lru", "100mb", redisconn.Stored{Locks: false, ChangeLogs: true}, ""},
				{"allkeys-lru", "100mb", redisconn.Stored{Locks: false, ChangeLogs: false}, ""},
			}
			lines, before := 0, ""
			for _, step := range steps {
				at = step.stored
				policy(t, one, step.policy, step.most)
				for range 3 {
					e.Check(t.Context())
				}
				found := e.Finding()
				if !strings.Contains(found.Text, step.want) || (found.Text == "") != (step.want == "") || found.Harmful != (step.want != "") {
					t.Errorf("%+v: found %+v", step, found)
				}
				if step.want != "" && name != "sentinel" && !strings.Contains(found.Text, one.Addr()) {
					t.Errorf("%+v: %q does not name %s", step, found.Text, one.Addr())
				}
				if found.Text != before {
					lines, before = lines+1, found.Text
				}
			}
			if n := strings.Count(log.String(), "\n"); n != lines {
				t.Errorf("%d lines, want %d: %s", n, lines, log)
			}
		})
	}
}

// TestEvictionUnreadable has a user without the permission for INFO.
func TestEvictionUnreadable(t *testing.T) {
	t.Parallel()
	r := bedtest.New(t).Redis("--user", "ordergate", "on", ">ordergate-secret", "~*", "+ping", "+client|setname")
	client := redisconntest.Connect(t, fmt.Sprintf("{addresses: [%s], username: ordergate, password_env: PW}", r.Addr()))
	e := redisconn.NewEvictionWatch(func() []redis.UniversalClient { return []redis.UniversalClient{client} },
		func() redisconn.Stored { return redisconn.Stored{Locks: true} }, slog.New(slog.DiscardHandler))
	e.Check(t.Context())
	if found := e.Finding(); found.Harmful || !strings.Contains(found.Text, "let the user run INFO at "+r.Addr()) {
		t.Errorf("found %+v", found)
	}
}
