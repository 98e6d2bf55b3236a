package redisconn

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
)

// dialing is a goroutine of go-redis that looks for a dead server each second. It ends when
// it next wakes after its client was closed, for which goleak waits hardly longer.
const dialing = "github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(dialing)) }

// TestConnectWithoutItsFiles connects after a file was removed that the check had found.
func TestConnectWithoutItsFiles(t *testing.T) {
	t.Parallel()
	_, _, err := Connect(t.Context(), &config.Redis{Mode: config.RedisSingle, Addresses: []string{"127.0.0.1:1"}, TLS: &config.TLS{CA: "none.pem"}}, 0)
	if want := "connecting to Redis: reading redis.tls.ca: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
