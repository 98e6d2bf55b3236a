package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestRedisLost takes Redis away in the middle, and brings it back: lookups go
// on, settlements are refused, nothing hangs, and nobody has to be restarted.
func TestRedisLost(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		away, back func(*testing.T, *stack)
	}{
		{"killed",
			func(_ *testing.T, s *stack) { s.server.Kill() },
			func(t *testing.T, s *stack) { must(t, s.server.Restart(t.Context())) }},
		{"hanging",
			func(t *testing.T, s *stack) { must(t, s.server.Pause()) },
			func(t *testing.T, s *stack) { must(t, s.server.Resume()) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10})
			s.must("GET", "/orders/77", "").want(t, 404, "absent")
			s.must("POST", "/orders/5/settle", "").want(t, 200, "")

			tt.away(t, s)
			// A window that was open goes on: whoever creates an order waits for its end.
			bedtest.Eventually(t, "the window is over", func() bool { return s.must("GET", "/orders/77", "").status == 200 })
			atOnce(10, func(int) {
				a := s.must("POST", "/orders/5/settle", "")
				a.want(t, 503, "unavailable")
				if a.header.Get("Retry-After") == "" {
					t.Error("503 without Retry-After")
				}
				s.must("GET", "/orders/77", "").want(t, 200, "") // not certain any more
				s.must("GET", "/orders/5", "").want(t, 200, "")
			})
			if n := b.arrived("/orders/5/settle"); n != 1 {
				t.Errorf("%d settlements reached the backend, want the first only", n)
			}

			tt.back(t, s)
			bedtest.Eventually(t, "settlements go on", func() bool { return s.must("POST", "/orders/6/settle", "").status == 200 })
			if tt.name == "hanging" { // nothing was lost
				bedtest.Eventually(t, "absence is certain again", func() bool { return s.must("GET", "/orders/78", "").status == 404 })
				return
			}
			// The log came back empty: what others appended may be gone with it. No read has found all
			// well since the window was over.
			if a := s.must("GET", "/orders/78", ""); a.status != 200 {
				t.Errorf("after the log was lost: %d %s", a.status, a.verdict)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSidecarKilled is Envoy's failure mode of each filter.
func TestSidecarKilled(t *testing.T) {
	needsSidecar(t, "the module ends with Envoy")
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	s.gate.Kill()
	s.must("GET", "/orders/77", "", "x-ordergate-verdict", "maybe").want(t, 200, "")
	if got := b.seen()[0].Header.Get("x-ordergate-verdict"); got != "" {
		t.Errorf("the client's own verdict %q reached the backend", got)
	}
	if a := s.must("POST", "/orders/5/settle", ""); a.status != 503 {
		t.Errorf("settled without a sidecar: %d", a.status)
	}
	if n := b.arrived("/orders/5/settle"); n != 0 {
		t.Error("an unlocked settlement reached the backend")
	}
}

// TestShutdown lets a running call finish, and takes no new ones.
func TestShutdown(t *testing.T) {
	needsSidecar(t, "the calls of the module end when Envoy does")
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortLease})
	done := s.inBackground(t.Context(), "/orders/1/settle?do=hang")
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/1/settle") == 1 })
	must(t, s.gate.Signal(syscall.SIGTERM))
	// Until it has heard, calls go on as usual; from then on none does.
	bedtest.Eventually(t, "no new settlement", func() bool { return s.must("POST", "/orders/2/settle", "").status == 503 })
	if a := s.must("POST", "/orders/3/settle", ""); a.status != 503 {
		t.Errorf("a new settlement got %d", a.status)
	}
	select {
	case <-s.gate.Done():
		t.Fatal("it did not wait for the call that runs")
	default:
	}
	b.goOn()
	if !<-done {
		t.Error("the running call failed")
	}
	must(t, s.gate.Wait(t.Context()))
	s.wantFate("1", released)
	if n := b.arrived("/orders/3/settle"); n != 0 {
		t.Error("an unlocked settlement reached the backend")
	}
}

// TestShutdownIsAnnounced has readiness go first: until the delay is over, or a second signal
// ends it, new calls are served as ever.
func TestShutdownIsAnnounced(t *testing.T) {
	needsSidecar(t, "the module ends with Envoy")
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, flags: []string{"--drain-delay=1h"}})
	must(t, s.gate.Signal(syscall.SIGTERM))
	bedtest.Eventually(t, "it is not ready", func() bool {
		status, text := s.admin("GET", "/readyz", "")
		return status == 503 && strings.Contains(text, `"stopping"`)
	})
	for _, name := range []string{"authz", "proc"} {
		if got := s.health(name); got != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("%s is %v", name, got)
		}
	}
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	if a := s.must("POST", "/orders?do=create&id=1077", "{}", "Content-Type", "application/json"); a.status != 201 {
		t.Errorf("create: %d %s", a.status, a.body)
	}
	must(t, s.gate.Signal(syscall.SIGTERM))
	must(t, s.gate.Wait(t.Context()))
}

// health asks one of ordergate's gRPC listeners how it is.
func (s *stack) health(name string) healthpb.HealthCheckResponse_ServingStatus {
	s.t.Helper()
	conn, err := grpc.NewClient(s.GateAddr(s.gate, name), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(s.t, err)
	defer func() { _ = conn.Close() }()
	answer, err := healthpb.NewHealthClient(conn).Check(s.t.Context(), &healthpb.HealthCheckRequest{})
	must(s.t, err)
	return answer.GetStatus()
}

// TestBadConfiguration is what an operator sees: every violation, by place.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 1})
	bad := s.GateExample(s.server.Addr(), "orders.csv")
	bad = bedtest.Replace(bad, "lease: 90s", "lease: soon")
	bad = bedtest.Replace(bad, "filter: orders}", "filter: order}")
	gate, err := s.GateUnready(t.Context(), s.Build("./cmd/sidecar", false), bad)
	must(t, err)
	err = gate.Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exit status 2") {
		t.Errorf("ended with %v, want exit status 2", err)
	}
	for _, want := range []string{": locks.settlement.lease: ", ": rules[0].lookup.filter: "} {
		if !strings.Contains(gate.Tail(), want) {
			t.Errorf("stderr does not name %q: %s", want, gate.Tail())
		}
	}
}

// TestExampleIsValid has Envoy read the example as it is (docs/compatibility.md has what an older one lacks).
func TestExampleIsValid(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	text, err := os.ReadFile(filepath.Join(bed.Root(), "examples", "envoy", "envoy.yaml"))
	must(t, err)
	bedtest.Check(t, bed.Validate(t.Context(), testbed.ForThisEnvoy(string(text))))
}
