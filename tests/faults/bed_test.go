// Package faults breaks the locks: it cuts, delays and swallows what they say to
// Redis, kills and stops their processes, and looks whether two ever hold one lock,
// whether the fence saves what a lease cannot, and whether anything is left behind.
package faults

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/lockmw/redislock"
)

// scratch is a directory for what all tests share.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "faults-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy logs each interruption
	goleak.VerifyTestMain(m, ignoreToxiproxy, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(scratch)
		os.Exit(code)
	}))
}

// ignoreToxiproxy leaves out its pipes: of a connection that broke while a toxic
// came or went, one may stay.
var ignoreToxiproxy = goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run")

// connect returns a client whose timeouts are short, as redislock.New asks for.
func connect(t testing.TB, addr string) *redis.Client {
	t.Helper()
	return connectWithin(t, addr, time.Second)
}

func connectWithin(t testing.TB, addr string, timeout time.Duration) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true,
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newLocker(t testing.TB, c redis.UniversalClient, opts redislock.Options) *redislock.Locker {
	t.Helper()
	l, err := redislock.New(c, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}
