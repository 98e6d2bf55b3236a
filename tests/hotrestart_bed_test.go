package tests

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// hotRestart is what the Envoys of a hot restart have in common. They differ in their
// epoch, and in the name that they give in the header "server". A third one begins as
// usual when both have ended.
type hotRestart struct {
	t       testing.TB
	clients string // the address for clients; the sockets are handed over
	admin   string // listen.admin, which the second gets when the first has ended
	gate    func(yaml string) string
	backend string
	times   []string // arguments of Envoy: how long the first goes on
	idFile  string   // where Envoy writes which of a host's hot restarts this is
}

// The Envoys of a hot restart, as clients see them.
const first, second, third = "first", "second", "third"

func newHotRestart(t testing.TB, c *clerk, gate func(yaml string) string, times ...string) *hotRestart {
	t.Helper()
	h := &hotRestart{t: t, clients: reserved(t), admin: reserved(t), times: times, idFile: filepath.Join(t.TempDir(), "base-id")}
	h.backend = strings.TrimPrefix(c.URL, "http://")
	h.gate = both(gate, edit(t,
		"  proc:  127.0.0.1:0    # gRPC ext_proc\n", "", // as usual: a port of 0 would make each start another place
		"admin: 127.0.0.1:0", "admin: "+h.admin))
	t.Cleanup(func() { // Envoy leaves its shared memory for the next one
		text, err := os.ReadFile(h.idFile)
		if id, convErr := strconv.Atoi(string(text)); err == nil && convErr == nil {
			_ = os.Remove(fmt.Sprintf("/dev/shm/envoy_shared_memory_%d", 10*id))
		}
	})
	return h
}

// settings are those of one of them.
func (h *hotRestart) settings(name string) settings {
	h.t.Helper()
	s := settings{backend: h.backend, orders: clerksOrders, gate: h.gate, envoyArgs: append([]string{"--concurrency", "2"}, h.times...)}
	_, port, err := net.SplitHostPort(h.clients)
	must(h.t, err)
	s.envoy = both(named(h.t, name), edit(h.t, "port_value: 0 ", "port_value: "+port+" "))
	switch name {
	case first:
		s.envoyArgs = append(s.envoyArgs, "--restart-epoch", "0", "--use-dynamic-base-id", "--base-id-path", h.idFile)
		return s
	case second:
		id, err := os.ReadFile(h.idFile)
		must(h.t, err)
		s.envoyArgs = append(s.envoyArgs, "--restart-epoch", "1", "--base-id", string(id))
	}
	s.unready = true // the second has no address for operators yet, the third may find somebody dead
	return s
}

// long is how long a settlement may wait or run: until a whole Envoy has begun, on a
// machine that is busy.
const long = 3 * time.Minute

// named has Envoy tell its name to clients, and be as patient as these tests.
func named(t testing.TB, name string) func(yaml string) string {
	return edit(t, "stat_prefix: orders\n", "stat_prefix: orders\n          server_name: "+name+"\n",
		"stream_idle_timeout: 60s", "stream_idle_timeout: 600s", "                  timeout: 30s\n", "                  timeout: 600s\n", "request_timeout: 20s", "request_timeout: 600s")
}

// reserved returns an address whose port is given to nobody for as long as the test runs.
// Who asks for that very port can have it: a socket that is bound and does not listen is
// in nobody's way who says that it may be shared, as Envoy and Go do.
func reserved(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	must(t, err)
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	const soReusePort = 15 // of Linux, which the module is for
	for _, option := range []int{syscall.SO_REUSEADDR, soReusePort} {
		must(t, syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, option, 1))
	}
	must(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, err := syscall.Getsockname(fd)
	must(t, err)
	return fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
}

// memberNames returns who takes part in the change log of the filter orders.
func (s *stack) memberNames() []string {
	s.t.Helper()
	names, err := s.redis.ZRange(s.t.Context(), "ordergate:{orders}:members", 0, -1).Result()
	must(s.t, err)
	return names
}

// settling is a settlement that runs.
type settling struct {
	t    testing.TB
	done chan error
}

// settles begins to settle an order, on a connection of its own. It is that Envoy that has
// to answer.
func (s *stack) settles(id, by string) *settling {
	v := newVisitor(s.t, s.url)
	run := &settling{t: s.t, done: make(chan error, 1)}
	go func() {
		a, got, err := v.do(s.t.Context(), http.MethodPost, "/orders/"+id+"/settle")
		if err == nil && (a.status != http.StatusOK || got != by) {
			err = fmt.Errorf("%d %q by the %s", a.status, a.verdict, got)
		}
		run.done <- err
	}()
	return run
}

// wantDone checks that it was settled.
func (r *settling) wantDone(what string) {
	r.t.Helper()
	if err := <-r.done; err != nil {
		r.t.Errorf("%s: %v", what, err)
	}
}

// listeners returns how many processes wait for the lock of order 1.
func (s *stack) listeners() int64 {
	s.t.Helper()
	channels, err := s.redis.PubSubChannels(s.t.Context(), "*{order:lock:1}*").Result()
	must(s.t, err)
	var n int64
	if len(channels) > 0 {
		counts, err := s.redis.PubSubNumSub(s.t.Context(), channels...).Result()
		must(s.t, err)
		for _, c := range counts {
			n += c
		}
	}
	return n
}

// takesOver waits until new connections are the second Envoy's.
func (s *stack) takesOver() {
	s.t.Helper()
	bedtest.Eventually(s.t, "the second Envoy takes connections", func() bool {
		return s.must("GET", "/orders/1", "").header.Get("Server") == second
	})
}
