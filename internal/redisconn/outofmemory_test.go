package redisconn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOutOfMemory fills the one server that has a key: of a cluster the others take writes.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	const key = "order:lock:1001"
	for name, start := range map[string]func(*bedtest.Bed) (section string, has *testbed.Redis){
		"single": func(bed *bedtest.Bed) (string, *testbed.Redis) {
			r := bed.Redis()
			return "{addresses: [" + r.Addr() + "]}", r
		},
		"cluster": func(bed *bedtest.Bed) (string, *testbed.Redis) {
			c := bed.Cluster()
			r, err := c.MasterOf(t.Context(), "{"+key+"}")
			bedtest.Check(t, err)
			return "{mode: cluster, addresses: " + "[" + strings.Join(c.Addrs(), ", ") + "]" + "}", r
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			section, server := start(bedtest.New(t))
			c, err := config.Parse("f.yaml", []byte("redis: "+section+"\nrules: []\n"), func(string) string { return "" })
			bedtest.Check(t, err)
			client, closeClient, err := Connect(t.Context(), c.Redis, 0)
			bedtest.Check(t, err)
			t.Cleanup(closeClient)
			log := &strings.Builder{}
			f := WatchMemory(client, slog.New(slog.NewTextHandler(log, nil)))
			writes := map[string]func(context.Context, string) error{
				"a command": func(ctx context.Context, key string) error { return client.Set(ctx, key, 1, 0).Err() },
				"a script": func(ctx context.Context, key string) error {
					return client.Eval(ctx, "return redis.call('incr', KEYS[1])", []string{key}).Err()
				},
				"a pipeline": func(ctx context.Context, key string) error {
					pipe := client.Pipeline()
					pipe.Get(ctx, key)
					pipe.Incr(ctx, key)
					_, err := pipe.Exec(ctx)
					return err
				},
			}
			if cluster, ok := client.(*redis.ClusterClient); ok {
				writes["a node's own client"] = func(ctx context.Context, key string) error {
					node, err := cluster.MasterForKey(ctx, key)
					if err != nil {
						return err
					}
					return node.Incr(ctx, key).Err()
				}
			}
			for how, write := range writes {
				if err := write(t.Context(), key); err != nil && !errors.Is(err, redis.Nil) || f.Reason() != "" {
					t.Fatalf("%s while there is room: %v, %q", how, err, f.Reason())
				}
				limit(t, server, "500kb")
				for range 10 {
					if err := write(t.Context(), key); err == nil || f.Reason() == "" {
						t.Fatalf("%s while there is none: %v, %q", how, err, f.Reason())
					}
				}
				for i := range 20 { // in other slots
					_ = client.Set(t.Context(), fmt.Sprint("other:", i), 1, 0).Err()
				}
				if f.try(t.Context()); f.Reason() == "" {
					t.Errorf("%s: a write was taken elsewhere", how)
				}
				limit(t, server, "0")
				if f.Reason() == "" {
					t.Errorf("%s: it has room again without a try", how)
				}
				if f.try(t.Context()); f.Reason() != "" {
					t.Errorf("%s: after there was room: %q", how, f.Reason())
				}
			}
			if n := strings.Count(log.String(), "\n"); n != 2*len(writes) {
				t.Errorf("%d lines: %s", n, log)
			}
		})
	}
}

// limit sets a server's maxmemory.
func limit(t *testing.T, server *testbed.Redis, most string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	bedtest.Check(t, client.ConfigSet(t.Context(), "maxmemory", most).Err())
}

func TestHashTag(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{"a": "a", "{a}:b": "a", "x{a}{b}": "a", "{}a": "{}a", "{a": "{a", "": ""} {
		if got := hashTag(key); got != want {
			t.Errorf("hashTag(%q) = %q, want %q", key, got, want)
		}
	}
}
