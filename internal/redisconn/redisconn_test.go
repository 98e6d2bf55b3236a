package redisconn

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// lateEnds are tests with goroutines that end late: go-redis looks for a dead server each
// second, and notices only then that its client was closed.
type lateEnds struct{ *testing.M }

func (m lateEnds) Run() int {
	code := m.M.Run()
	for range 3 {
		if goleak.Find() == nil { // which waits for a second
			break
		}
	}
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(lateEnds{m}) }

// TestDatabase writes to another database than 0, in both modes that have several, and to one that
// the server does not have.
func TestDatabase(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server, sentinel := bed.Redis(), bed.Sentinel()
	for name, c := range map[string]config.Redis{
		"single":   {Mode: config.RedisSingle, Addresses: []string{server.Addr()}},
		"sentinel": {Mode: config.RedisSentinel, Addresses: sentinel.Addrs(), Master: sentinel.Master()},
		"quorum":   *QuorumServer(&config.Redis{Database: 3}, server.Addr()),
	} {
		c.Database = 3
		client, closeClient, err := Connect(t.Context(), &c, 0)
		bedtest.Check(t, err)
		bedtest.Check(t, client.Set(t.Context(), "k", name, 0).Err())
		closeClient()
		for database, want := range map[int]int64{0: 0, 3: 1} {
			c.Database = database
			client, closeClient, err := Connect(t.Context(), &c, 0)
			bedtest.Check(t, err)
			if n, err := client.Exists(t.Context(), "k").Result(); err != nil || n != want {
				t.Errorf("%s: database %d has %d (%v)", name, database, n, err)
			}
			closeClient()
		}
	}
	client, closeClient, err := Connect(t.Context(), &config.Redis{Mode: config.RedisSingle, Addresses: []string{server.Addr()}, Database: 99}, 0)
	bedtest.Check(t, err)
	defer closeClient()
	if err := client.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "DB index is out of range") {
		t.Errorf("database 99: %v", err)
	}
}

// TestConnectWithoutItsFiles connects after a file was removed that the check had found.
func TestConnectWithoutItsFiles(t *testing.T) {
	t.Parallel()
	_, _, err := Connect(t.Context(), &config.Redis{Mode: config.RedisSingle, Addresses: []string{"127.0.0.1:1"}, TLS: &config.TLS{CA: "none.pem"}}, 0)
	if want := "connecting to Redis: reading redis.tls.ca: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
