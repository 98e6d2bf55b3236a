package changelog

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a Redis that a test may stop and restart.
type server interface {
	options() *redis.Options
	stop(t *testing.T)
	start(t *testing.T) // with its former data
}

// onEveryRedis runs a test against miniredis and against redis-server.
func onEveryRedis(t *testing.T, test func(t *testing.T, s server)) {
	t.Run("miniredis", func(t *testing.T) {
		bedtest.OnlyShort(t)
		m := miniredis.RunT(t)
		test(t, &miniServer{m})
	})
	t.Run("redis-server", func(t *testing.T) { test(t, startRealServer(t)) })
}

type miniServer struct{ m *miniredis.Miniredis }

func (s *miniServer) options() *redis.Options { return &redis.Options{Addr: s.m.Addr()} }
func (s *miniServer) stop(*testing.T)         { s.m.Close() }
func (s *miniServer) start(t *testing.T) {
	if err := s.m.Restart(); err != nil {
		t.Fatal(err)
	}
}

// realServer is a redis-server on a Unix socket. It persists every write.
type realServer struct {
	dir string
	cmd *exec.Cmd
}

func startRealServer(t *testing.T) *realServer {
	t.Helper()
	bedtest.NeedProcesses(t)
	if _, err := exec.LookPath("redis-server"); err != nil {
		bedtest.Check(t, &testbed.MissingError{Program: "redis-server", Fetch: "redis"})
	}
	// Not t.TempDir: with a long test name the path exceeds the length of a socket's address.
	dir, err := os.MkdirTemp("", "changelog")
	if err != nil {
		t.Fatal(err)
	}
	s := &realServer{dir: dir}
	t.Cleanup(func() {
		s.stop(t)
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.start(t)
	return s
}

func (s *realServer) options() *redis.Options {
	return &redis.Options{Network: "unix", Addr: filepath.Join(s.dir, "redis.sock")}
}

func (s *realServer) start(t *testing.T) {
	s.startIn(t, s.dir)
}

// startIn starts the server with the data in another folder, on the same socket.
func (s *realServer) startIn(t *testing.T, data string) {
	s.cmd = exec.Command("redis-server", "--port", "0", "--unixsocket", s.options().Addr, "--dir", data,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no", "--logfile", "redis.log")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := connect(t, s)
	eventually(t, "redis-server answers", func() bool { return client.Ping(t.Context()).Err() == nil })
}

func (s *realServer) stop(t *testing.T) {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Error("redis-server:", err)
	}
	s.cmd = nil
}

// eventually polls for a condition that depends on another process or the clock.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	bedtest.Eventually(t, what, holds)
}

func connect(t *testing.T, s server) *redis.Client {
	t.Helper()
	o := s.options()
	o.ContextTimeoutEnabled = true
	o.PoolSize = 100
	o.DialerRetries = 1
	return newClient(t, o)
}

func newClient(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	client := redis.NewClient(o)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// instance is one ordergate: a log, and the IDs that it has applied.
type instance struct {
	*Log
	client *redis.Client
	stop   func() // ends Run and waits for it

	mu     sync.Mutex
	ids    map[string]int
	doubts []Doubt
}

// doubted returns the doubts that the instance has received.
func (i *instance) doubted() []Doubt {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.doubts)
}

func (i *instance) has(id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ids[id] > 0
}

func (i *instance) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.ids)
}

// idle polls so rarely that only Wait reads.
var idle = Options{PollEvery: time.Hour, Timeout: 10 * time.Second}

func newInstance(t *testing.T, s server, opts Options) *instance {
	t.Helper()
	i := &instance{client: connect(t, s), ids: map[string]int{}}
	_, opts.Ephemeral = s.(*miniServer)
	opts.OnDoubt = func(d Doubt) {
		if d.Kind == Start {
			return // every instance has one
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		i.doubts = append(i.doubts, d)
	}
	log, err := New(i.client, "orders", func(id string) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.ids[id]++
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	i.Log = log
	return i
}

func runInstance(t *testing.T, s server, opts Options) *instance {
	t.Helper()
	i := newInstance(t, s, opts)
	i.start(t)
	return i
}

func (i *instance) mustAppend(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := i.appendAndWait(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}

// appendAndWait appends an ID, and returns nil once a client may receive it.
func (i *instance) appendAndWait(ctx context.Context, id string) error {
	if err := i.Append(ctx, id); err != nil {
		return err
	}
	return i.WaitForPeers(ctx)
}

func (i *instance) mustWait(t *testing.T) {
	t.Helper()
	if err := i.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
