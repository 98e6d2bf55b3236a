package engine

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/internal/testbed"
	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

// policy sets a server's policy, and the limit of its memory.
func policy(t *testing.T, server *testbed.Redis, name, most string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory-policy", name).Err())
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory", most).Err())
}

// TestEviction gives one server of each kind of Redis a policy by which keys may go that must
// stay, as a user who may run no CONFIG.
func TestEviction(t *testing.T) {
	t.Parallel()
	const login = "username: ordergate, password_env: PW"
	for name, start := range map[string]func(*bedtest.Bed) (clients []redis.UniversalClient, one *testbed.Redis){
		"single": func(bed *bedtest.Bed) ([]redis.UniversalClient, *testbed.Redis) {
			r := bed.Redis("--user", "ordergate", "on", ">ordergate-secret", "~*", "+info", "+client|setname")
			return []redis.UniversalClient{connected(t, "{addresses: ["+r.Addr()+"], "+login+"}")}, r
		},
		"sentinel": func(bed *bedtest.Bed) ([]redis.UniversalClient, *testbed.Redis) {
			s := bed.Sentinel()
			master, err := s.Await(t.Context(), nil)
			bedtest.Check(t, err)
			return []redis.UniversalClient{connected(t, "{mode: sentinel, addresses: "+list(s.Addrs()...)+"}")}, master
		},
		"cluster": func(bed *bedtest.Bed) ([]redis.UniversalClient, *testbed.Redis) {
			c := bed.Cluster()
			master, err := c.MasterOf(t.Context(), "anything")
			bedtest.Check(t, err)
			return []redis.UniversalClient{connected(t, "{mode: cluster, addresses: "+list(c.Addrs()...)+"}")}, master
		},
		"quorum with one away": func(bed *bedtest.Bed) (clients []redis.UniversalClient, one *testbed.Redis) {
			for range 3 {
				one = bed.Redis()
				clients = append(clients, connected(t, "{addresses: ["+one.Addr()+"]}"))
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
			at := stake{locks: true, logs: true}
			e := &eviction{
				servers: func() []redis.UniversalClient { return clients }, stake: func() stake { return at },
				log: slog.New(slog.NewTextHandler(log, nil)),
			}
			steps := []struct {
				policy, most string
				stake        stake
				want         string // in the reason; "": there is none
			}{
				{"noeviction", "100mb", stake{true, true}, ""},
				{"volatile-lru", "0", stake{true, true}, ""}, // without a limit nothing goes
				{"volatile-lru", "100mb", stake{true, true}, "two settle one order at once: set maxmemory-policy noeviction at"},
				{"volatile-ttl", "100mb", stake{true, false}, "(volatile-ttl)"},
				{"allkeys-lfu", "100mb", stake{true, false}, "(allkeys-lfu)"},
				{"allkeys-random", "100mb", stake{false, true}, "may evict the change log"},
				{"volatile-lru", "100mb", stake{false, true}, ""},
				{"allkeys-lru", "100mb", stake{false, false}, ""},
			}
			lines, before := 0, ""
			for _, step := range steps {
				at = step.stake
				policy(t, one, step.policy, step.most)
				for range 3 {
					e.look(t.Context())
				}
				found := e.found()
				if !strings.Contains(found.text, step.want) || (found.text == "") != (step.want == "") || found.harms != (step.want != "") {
					t.Errorf("%+v: found %+v", step, found)
				}
				if step.want != "" && name != "sentinel" && !strings.Contains(found.text, one.Addr()) {
					t.Errorf("%+v: %q does not name %s", step, found.text, one.Addr())
				}
				if found.text != before {
					lines, before = lines+1, found.text
				}
			}
			if n := strings.Count(log.String(), "\n"); n != lines {
				t.Errorf("%d lines, want %d: %s", n, lines, log)
			}
		})
	}
}

// TestEvictionUntold has a user who may not ask.
func TestEvictionUntold(t *testing.T) {
	t.Parallel()
	r := bedtest.New(t).Redis("--user", "ordergate", "on", ">ordergate-secret", "~*", "+ping", "+client|setname")
	client := connected(t, fmt.Sprintf("{addresses: [%s], username: ordergate, password_env: PW}", r.Addr()))
	e := &eviction{
		servers: func() []redis.UniversalClient { return []redis.UniversalClient{client} },
		stake:   func() stake { return stake{locks: true} }, log: slog.New(slog.DiscardHandler),
	}
	e.look(t.Context())
	if found := e.found(); found.harms || !strings.Contains(found.text, "let the user run INFO at "+r.Addr()) {
		t.Errorf("found %+v", found)
	}
}
