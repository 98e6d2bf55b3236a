package testbed_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// topology is what a Sentinel and a Cluster have in common.
type topology interface {
	Nodes() []*testbed.Redis
	Settle(context.Context) error
}

// onEveryTopology runs a test on Sentinel and Cluster, plain and with TLS. The
// functions find the master of a key, wait for another one, and force one.
func onEveryTopology(t *testing.T, test func(*testing.T, *tried)) {
	for _, tt := range []struct {
		name    string
		tls     bool
		cluster bool
	}{
		{"sentinel", false, false},
		{"sentinel with TLS", true, false},
		{"cluster", false, true},
		{"cluster with TLS", true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			var args []string
			s := &tried{}
			if tt.tls {
				args = bed.Certificates().Args()
				config, err := bed.Certificates().ClientConfig()
				if err != nil {
					t.Fatal(err)
				}
				s.tls = config
			}
			if tt.cluster {
				c := bed.Cluster(args...)
				s.topology = c
				s.master = func(ctx context.Context) (*testbed.Redis, error) { return c.MasterOf(ctx, key) }
				s.await = func(ctx context.Context, old *testbed.Redis) (*testbed.Redis, error) { return c.Await(ctx, key, old) }
				s.failover = func(ctx context.Context) (*testbed.Redis, error) { return c.Failover(ctx, key) }
			} else {
				c := bed.Sentinel(args...)
				s.topology, s.master, s.await, s.failover = c, c.Current, c.Await, c.Failover
			}
			test(t, s)
		})
	}
}

// tried is a topology under test.
type tried struct {
	topology
	tls      *tls.Config
	master   func(context.Context) (*testbed.Redis, error)
	await    func(context.Context, *testbed.Redis) (*testbed.Redis, error)
	failover func(context.Context) (*testbed.Redis, error)
}

const key = "order:lock:42"

// must ends the test on an error, which has to come within its time.
func must[T any](t *testing.T, f func(context.Context) (T, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	v, err := f(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (s *tried) settle(t *testing.T) {
	t.Helper()
	must(t, func(ctx context.Context) (any, error) { return nil, s.Settle(ctx) })
}

// write writes to the master, waits for a replica to have it, and returns the
// master. A busy machine can look like a failed one: the master may have changed
// since it was asked for.
func (s *tried) write(t *testing.T, value string) (master *testbed.Redis) {
	t.Helper()
	eventually(t, func() error {
		master = must(t, s.master)
		client := redis.NewClient(&redis.Options{Addr: master.Addr(), TLSConfig: s.tls})
		defer client.Close()
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		if err := conn.Set(t.Context(), key, value, 0).Err(); err != nil {
			return err
		}
		if n := conn.Wait(t.Context(), 1, time.Second).Val(); n == 0 {
			return errors.New("no replica has it")
		}
		return nil
	})
	return master
}

// want reads what was written from the master.
func (s *tried) want(t *testing.T, master *testbed.Redis, value string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: master.Addr(), TLSConfig: s.tls})
	defer client.Close()
	if got, err := client.Get(t.Context(), key).Result(); err != nil || got != value {
		t.Errorf("%s has %q, %v, want %q", master.Name(), got, err, value)
	}
}

// TestFailovers replaces the master in each way there is. What was replicated
// stays, and the old master comes back as a replica.
func TestFailovers(t *testing.T) {
	t.Parallel()
	onEveryTopology(t, func(t *testing.T, s *tried) {
		killed := s.write(t, "1")
		killed.Kill()
		s.want(t, must(t, func(ctx context.Context) (*testbed.Redis, error) { return s.await(ctx, killed) }), "1")
		if err := killed.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.settle(t)

		s.write(t, "2")
		s.want(t, must(t, s.failover), "2")
		s.settle(t)

		paused := s.write(t, "3")
		if err := paused.Pause(); err != nil {
			t.Fatal(err)
		}
		master := must(t, func(ctx context.Context) (*testbed.Redis, error) { return s.await(ctx, paused) })
		s.want(t, master, "3")
		if err := paused.Resume(); err != nil {
			t.Fatal(err)
		}
		s.settle(t)
		s.want(t, must(t, s.master), "3")
	})
}

// TestWithoutMaster waits in vain for a master where nobody is left to vote.
func TestWithoutMaster(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	s := bed.Sentinel()
	if want := 3; len(s.Addrs()) != want || len(slices.Compact(slices.Sorted(slices.Values(s.Addrs())))) != want {
		t.Errorf("addresses %v, want %d", s.Addrs(), want)
	}
	for _, sentinel := range s.Sentinels()[1:] {
		sentinel.Kill()
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Current(ctx)
		done <- err
	}()
	reason := errors.New("waited enough")
	cancel(reason)
	if err := <-done; !errors.Is(err, reason) || strings.Contains(fmt.Sprint(err), "%!") {
		t.Errorf("got %v, want %v", err, reason)
	}
}

// TestRedisTLS has what a server with TLS asks for.
func TestRedisTLS(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server := bed.RedisTLS("--user", "default", "off", "--user", "ordergate", "on", ">secret", "~*", "+ping")
	config, err := bed.Certificates().ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := testbed.NewCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	strange, err := stranger.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	named := config.Clone()
	named.ServerName = testbed.ServerName
	misnamed := config.Clone()
	misnamed.ServerName = "elsewhere.test"
	unsigned := config.Clone()
	unsigned.Certificates = nil
	for _, tt := range []struct {
		name     string
		config   *tls.Config
		password string
		fails    string
	}{
		{"as it should be", config, "secret", ""},
		{"by name", named, "secret", ""},
		{"another name", misnamed, "secret", "elsewhere.test"},
		{"no certificate", unsigned, "secret", "certificate required"},
		{"another authority", strange, "secret", "unknown authority"},
		{"no TLS", nil, "secret", "EOF"},
		{"wrong password", config, "sacred", "WRONGPASS"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{
				Addr: server.Addr(), TLSConfig: tt.config, Username: "ordergate", Password: tt.password,
				MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
			})
			defer client.Close()
			err := client.Ping(t.Context()).Err()
			if tt.fails == "" && err != nil || tt.fails != "" && (err == nil || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("got %v, want %q", err, tt.fails)
			}
		})
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Error(err)
	}
}
