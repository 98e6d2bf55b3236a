// Package redisconntest connects tests to the servers of a test bed as a configuration file
// does.
package redisconntest

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// Connect returns the client for a file with this section redis. The test closes it.
func Connect(t *testing.T, section string) redis.UniversalClient {
	t.Helper()
	getenv := func(name string) string {
		return map[string]string{"PW": "ordergate-secret", "SENTINEL_PW": "watcher-secret"}[name]
	}
	c, err := config.Parse("ordergate.yaml", []byte("redis: "+section+"\n"), getenv)
	if err != nil {
		t.Fatal(err)
	}
	client, closeClient, err := redisconn.Connect(t.Context(), c.Redis, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closeClient)
	return client
}

// List returns addresses as a list in YAML.
func List(addrs ...string) string { return "[" + strings.Join(addrs, ", ") + "]" }

// Admin returns a client of one server with all permissions.
func Admin(t *testing.T, bed *bedtest.Bed, r *testbed.Redis) *redis.Client {
	t.Helper()
	opts := &redis.Options{Addr: r.Addr(), Username: testbed.User, Password: testbed.Password}
	if r.TLS() {
		var err error
		if opts.TLSConfig, err = bed.Certificates().ClientConfig(); err != nil {
			t.Fatal(err)
		}
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}
