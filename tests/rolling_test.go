package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestRollingRestart restarts two ordergates behind one Envoy, one after the other, as the
// documentation has it: under load, and with settlements in flight, no request fails.
func TestRollingRestart(t *testing.T) {
	needsSidecar(t, "the module restarts with Envoy")
	t.Parallel()
	b := newBackend(t)
	s, gates := newPair(t, b)

	var long []<-chan bool
	for i := range 4 {
		long = append(long, s.inBackground(t.Context(), fmt.Sprintf("/orders/%d/settle?do=hang", i+1)))
	}
	for i, g := range gates {
		bedtest.Eventually(t, fmt.Sprintf("ordergate %d has a settlement", i), func() bool { return s.on(g).metric("ordergate_settlements_in_flight") != "0" })
	}
	stop := s.press()
	for i, g := range gates {
		must(t, g.Signal(syscall.SIGTERM))
		bedtest.Eventually(t, "it takes no more calls", func() bool { return strings.Contains(logOf(t, g), "stopping: running calls may finish") })
		if i == 0 { // the settlements that were in flight have outlasted the delay
			b.goOn()
		}
		must(t, g.Wait(t.Context()))
		must(t, g.Restart(t.Context()))
		bedtest.Eventually(t, "Envoy has noticed that it is back", func() bool {
			for _, name := range []string{"authz", "proc"} {
				stats, err := s.envoy.Stats(t.Context(), "cluster.ordergate-"+name+".membership_healthy")
				if err != nil || stats["cluster.ordergate-"+name+".membership_healthy"] != 2 {
					return false
				}
			}
			return true
		})
	}
	if requests := stop(); requests < 500 {
		t.Errorf("only %d requests", requests)
	}
	for _, g := range gates {
		g.Kill() // or it would take its time once more
	}
	for _, done := range long {
		if !<-done {
			t.Error("a settlement that was in flight failed")
		}
	}
}

// newPair starts two ordergates behind one Envoy, which is configured as the documentation
// says.
func newPair(t *testing.T, b *backend) (*stack, [2]*testbed.Gate) {
	t.Helper()
	var gates [2]*testbed.Gate
	bed := bedtest.New(t)
	s := &stack{Bed: bed, t: t, server: bed.Redis()}
	config := check(t)(s.EnvoyExample("127.0.0.1:1", "127.0.0.1:1", b.addr()))
	for _, name := range []string{"authz", "proc"} {
		config = replacedCluster(t, config, name)
	}
	for i, name := range []string{"a", "b"} {
		dir, err := os.MkdirTemp("", "og") // a socket's path has to be short
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		sockets := edit(t, "authz: 127.0.0.1:0", "authz: unix:"+dir+"/authz.sock", "proc:  127.0.0.1:0", "proc: unix:"+dir+"/proc.sock")
		gates[i] = s.Gate(s.Build("./cmd/sidecar", true), sockets(s.GateExample(s.server.Addr(), idFile(t, 20_000))), "--drain-delay=5s")
		config = strings.ReplaceAll(config, "/run/ordergate-"+name+"/", dir+"/")
	}
	s.envoy = s.Envoy(config)
	s.url = "http://" + s.ListenerAddr(s.envoy, "orders")
	return s, gates
}

// replacedCluster gives one of the two clusters of ordergate what the documentation has.
func replacedCluster(t *testing.T, envoy, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "docs", "restart.md"))
	must(t, err)
	block := regexp.MustCompile("(?s)```yaml\n([^`]*?cluster_name: ordergate-proc.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("the documentation has no cluster for two ordergates")
	}
	before, rest, found := strings.Cut(envoy, "    load_assignment:\n      cluster_name: ordergate-"+name+"\n")
	_, after, ended := strings.Cut(rest, "\n\n")
	if !found || !ended {
		t.Fatalf("the example has no cluster ordergate-%s, followed by an empty line", name)
	}
	return before + strings.NewReplacer("ordergate-proc", "ordergate-"+name, "proc.sock", name+".sock").Replace(string(block[1])) + "\n" + after
}

// on is the stack with another ordergate to look at.
func (s *stack) on(g *testbed.Gate) *stack { return &stack{Bed: s.Bed, t: s.t, gate: g} }

func logOf(t testing.TB, g *testbed.Gate) string {
	t.Helper()
	text, err := os.ReadFile(g.Output())
	must(t, err)
	return string(text)
}

// press sends requests of each kind until it is stopped, and has each that fails fail the test.
func (s *stack) press() (stop func() (requests int64)) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	var next, requests atomic.Int64
	next.Store(100)
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				id := next.Add(1)
				for _, r := range []struct {
					method, target string
					statuses       string
				}{
					{"GET", fmt.Sprintf("/orders/%d", id), "200"},
					{"GET", fmt.Sprintf("/orders/%d", 10_000_000+id), "404 200"}, // while a filter loads, it passes
					{"POST", fmt.Sprintf("/orders?do=create&id=%d", 1_000_000+id), "201"},
					{"POST", fmt.Sprintf("/orders/%d/settle", id), "200"},
				} {
					a, err := s.send(s.t.Context(), r.method, r.target, "")
					if err != nil || !strings.Contains(r.statuses, fmt.Sprint(a.status)) {
						s.t.Errorf("%s %s: got %d %q %v, want %s", r.method, r.target, a.status, a.verdict, err, r.statuses)
					}
					requests.Add(1)
				}
				time.Sleep(50 * time.Millisecond) // requests enough for each step of a restart
			}
		})
	}
	return func() int64 {
		cancel()
		wg.Wait()
		return requests.Load()
	}
}
