package redislock

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// topology is a way to run Redis. Start returns a client for each of n
// independent ones; they end with the test.
type topology struct {
	name  string
	start func(t *testing.T, n int) []redis.UniversalClient
}

// simple are those that start in no time: a test may have one of its own.
var simple = []topology{{"embedded", embedded}, {"single", single}}

// topologies are all that are supported.
var topologies = append(simple[:len(simple):len(simple)], topology{"sentinel", sentinel}, topology{"cluster", cluster})

// onEveryRedis runs a test against each simple topology, with a server of its own.
func onEveryRedis(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Helper()
	for _, top := range simple {
		t.Run(top.name, func(t *testing.T) {
			t.Parallel()
			test(t, top.start(t, 1)[0])
		})
	}
}

// clientOptions are those of the sidecar, in what matters here: a caller's
// context bounds its question, and what breaks is asked again once.
func clientOptions(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addrs, ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1,
		DialTimeout: 500 * time.Millisecond, ReadTimeout: time.Second, WriteTimeout: time.Second,
	}
}

func connect(t *testing.T, opts *redis.UniversalOptions) redis.UniversalClient {
	client := redis.NewUniversalClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func embedded(t *testing.T, n int) (clients []redis.UniversalClient) {
	bedtest.OnlyShort(t)
	for range n {
		server := miniredis.RunT(t)
		driveClock(t, server)
		clients = append(clients, connect(t, clientOptions(server.Addr())))
	}
	return clients
}

// driveClock lets the keys of a server expire, whose own clock stands still.
func driveClock(t *testing.T, server *miniredis.Miniredis) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				server.FastForward(now.Sub(last))
				last = now
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

func single(t *testing.T, n int) (clients []redis.UniversalClient) {
	bed := bedtest.New(t)
	for range n {
		clients = append(clients, connect(t, clientOptions(bed.Redis().Addr())))
	}
	return clients
}

func sentinel(t *testing.T, _ int) []redis.UniversalClient {
	s := bedtest.New(t).Sentinel()
	opts := clientOptions(s.Addrs()...)
	opts.MasterName = s.Master()
	return []redis.UniversalClient{connect(t, opts)}
}

func cluster(t *testing.T, _ int) []redis.UniversalClient {
	opts := clientOptions(bedtest.New(t).Cluster().Addrs()...)
	opts.IsClusterMode = true
	return []redis.UniversalClient{connect(t, opts)}
}
