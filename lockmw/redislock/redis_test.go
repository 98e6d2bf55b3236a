package redislock

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onEveryRedis runs a test against each kind of Redis that is supported. Each
// run has a server of its own.
func onEveryRedis(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Helper()
	for _, kind := range []struct {
		name  string
		start func(*testing.T) string
	}{
		{"embedded", func(t *testing.T) string { return miniredis.RunT(t).Addr() }},
		{"single", func(t *testing.T) string { return bedtest.New(t).Redis().Addr() }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: kind.start(t), ContextTimeoutEnabled: true})
			t.Cleanup(func() { _ = client.Close() })
			test(t, client)
		})
	}
}
