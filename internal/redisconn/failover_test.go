package redisconn_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/redisconntest"
)

// TestFailover has the master die, and hang, under a client that is in use.
// A question may fail meanwhile; each ends in time, and they are answered again
// once there is a new master.
func TestFailover(t *testing.T) {
	t.Parallel()
	const key = "order:lock:1001"
	type place struct {
		section string // of the configuration
		await   func(context.Context, *testbed.Redis) (*testbed.Redis, error)
		before  func(*testing.T) // what else goes away, nil for nothing
	}
	sentinel := func(t *testing.T) place {
		s := bedtest.New(t).Sentinel()
		return place{section: fmt.Sprintf("{mode: sentinel, addresses: %s}", redisconntest.List(s.Addrs()...)), await: s.Await}
	}
	cluster := func(t *testing.T) place {
		c := bedtest.New(t).Cluster()
		await := func(ctx context.Context, old *testbed.Redis) (*testbed.Redis, error) { return c.Await(ctx, key, old) }
		return place{section: fmt.Sprintf("{mode: cluster, addresses: %s}", redisconntest.List(c.Addrs()...)), await: await}
	}
	// Where each machine has a Redis and a Sentinel, they fail together.
	both := func(t *testing.T) place {
		bed := bedtest.New(t)
		s := bed.Sentinel()
		return place{
			section: fmt.Sprintf("{mode: sentinel, addresses: %s}", redisconntest.List(s.Addrs()...)), await: s.Await,
			before: func(t *testing.T) {
				if err := asked(t, bed, s).Pause(); err != nil {
					t.Fatal(err)
				}
			},
		}
	}
	kill := func(r *testbed.Redis) error { r.Kill(); return nil }
	hang := func(r *testbed.Redis) error { return r.Pause() }
	for _, tt := range []struct {
		name  string
		start func(*testing.T) place
		away  func(*testbed.Redis) error
	}{
		{"sentinel killed", sentinel, kill},
		{"sentinel hanging", sentinel, hang},
		{"sentinel killed with the Sentinel that was asked", both, kill},
		{"sentinel hanging with the Sentinel that was asked", both, hang},
		{"cluster killed", cluster, kill},
		{"cluster hanging", cluster, hang},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := tt.start(t)
			client := redisconntest.Connect(t, p.section)
			var slowest time.Duration
			ask := func() error {
				start := time.Now()
				err := client.Eval(t.Context(), "return redis.call('incr', KEYS[1])", []string{key}).Err()
				slowest = max(slowest, time.Since(start))
				return err
			}
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			old, err := p.await(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			if p.before != nil {
				p.before(t)
			}
			if err := tt.away(old); err != nil {
				t.Fatal(err)
			}
			away := time.Now()
			if err := ask(); err == nil {
				t.Error("who answers, with the master away?")
			}
			bedtest.Eventually(t, "questions are answered again", func() bool { return ask() == nil })
			t.Logf("answered again after %v, the slowest question took %v", time.Since(away), slowest)
			// Three tries of a second and their pauses, and as much again for a machine
			// that is busy. With the client's own limits it would be 20 seconds.
			if slowest > 8*time.Second {
				t.Errorf("a question took %v", slowest)
			}
			if _, err := p.await(ctx, old); err != nil {
				t.Error(err)
			}
		})
	}
}

// asked returns the Sentinel that ordergate listens to.
func asked(t *testing.T, bed *bedtest.Bed, s *testbed.Sentinel) *testbed.Redis {
	t.Helper()
	for _, sentinel := range s.Sentinels() {
		clients, err := redisconntest.Admin(t, bed, sentinel).Do(t.Context(), "client", "list").Text()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(clients, " name=ordergate ") {
			return sentinel
		}
	}
	t.Fatal("ordergate is connected to no sentinel")
	return nil
}

// TestSilentRedis asks a server that takes connections and never answers.
func TestSilentRedis(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"single", "sentinel", "cluster"} {
		for _, tls := range []string{"", ", tls: {}"} {
			t.Run(mode+tls, func(t *testing.T) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close() // the kernel takes the connections, nobody reads from them
				client := redisconntest.Connect(t, fmt.Sprintf("{mode: %s, addresses: [%s]%s}", mode, l.Addr(), tls))
				start := time.Now()
				if err := client.Ping(t.Context()).Err(); err == nil {
					t.Error("who answered?")
				}
				if took := time.Since(start); took > 8*time.Second {
					t.Errorf("gave up after %v", took)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				start = time.Now()
				if err := client.Ping(ctx).Err(); err == nil {
					t.Error("who answered?")
				}
				// Far less than the client's own limit, and enough for a machine that is busy.
				if took := time.Since(start); took > redisconn.Timeout-100*time.Millisecond {
					t.Errorf("with 50ms left it took %v", took)
				}
			})
		}
	}
}
