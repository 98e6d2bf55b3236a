package redisconn

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
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

// TestConnectWithoutItsFiles connects after a file was removed that the check had found.
func TestConnectWithoutItsFiles(t *testing.T) {
	t.Parallel()
	_, _, err := Connect(t.Context(), &config.Redis{Mode: config.RedisSingle, Addresses: []string{"127.0.0.1:1"}, TLS: &config.TLS{CA: "none.pem"}}, 0)
	if want := "connecting to Redis: reading redis.tls.ca: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
