package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed"
)

// The orders 1 to existing exist; the IDs from firstAbsent on do not.
const (
	existing    = 100_000
	firstAbsent = 900_000_000_000
)

// noopWorkers is what cmd/internal/command gives its ext_authz server (streamWorkers).
const noopWorkers = 128

func orderPath(id int64) string { return fmt.Sprintf("/orders/%d", id) }

// servers is everything that is measured, and the backend behind it.
type servers struct {
	dir     string // for files
	backend *http.Server

	window      *sidecar // ordergate, as in examples/envoy
	windowless  *sidecar // with freshness: none
	noop        *sidecar
	noopWorkers *sidecar // without an Envoy
	noopRaw     *sidecar // without an Envoy
	noopRefuses *sidecar
}

// sidecar is a server of Envoy's two services, the Envoy in front of it and the
// Redis behind it.
type sidecar struct {
	process *testbed.Gate
	authz   string         // "host:port"
	envoy   *testbed.Envoy // nil for one that is measured alone
	url     string         // of the Envoy
	server  *testbed.Redis // nil for a no-op
	redis   *redis.Client
}

// start starts the servers; they end with the bed, but for what close ends.
func start(ctx context.Context, bed *testbed.Bed, window time.Duration) (*servers, error) {
	s := &servers{dir: bed.Dir()}
	if err := s.start(ctx, bed, window); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *servers) start(ctx context.Context, bed *testbed.Bed, window time.Duration) error {
	backend, err := s.serveOrders()
	if err != nil {
		return err
	}
	ordergate, err := bed.Build(ctx, "./cmd/sidecar", false)
	if err != nil {
		return err
	}
	noop, err := bed.Build(ctx, "./tests/bench/noop", false)
	if err != nil {
		return err
	}
	ids, err := writeIDs(bed.Dir())
	if err != nil {
		return err
	}
	if s.window, err = startOrdergate(ctx, bed, ordergate, ids, fmt.Sprintf("{window: %v}", window)); err != nil {
		return err
	}
	if s.windowless, err = startOrdergate(ctx, bed, ordergate, ids, "none"); err != nil {
		return err
	}
	if s.noop, err = startNoop(ctx, bed, noop, "refuse: false"); err != nil {
		return err
	}
	if s.noopWorkers, err = startNoop(ctx, bed, noop, fmt.Sprintf("workers: %d", noopWorkers)); err != nil {
		return err
	}
	if s.noopRaw, err = startNoop(ctx, bed, noop, fmt.Sprintf("{workers: %d, raw: true}", noopWorkers)); err != nil {
		return err
	}
	if s.noopRefuses, err = startNoop(ctx, bed, noop, "refuse: true"); err != nil {
		return err
	}
	for _, behind := range []*sidecar{s.window, s.windowless, s.noop, s.noopRefuses} {
		if err := behind.startEnvoy(ctx, bed, backend); err != nil {
			return err
		}
	}
	return nil
}

// close ends what does not belong to the bed.
func (s *servers) close() {
	for _, c := range []*sidecar{s.window, s.windowless} {
		if c != nil {
			_ = c.redis.Close()
		}
	}
	if s.backend != nil {
		_ = s.backend.Close()
	}
}

// serveOrders starts the order service in this process, and returns its
// address. It answers everything alike, at once: the time is the gate's.
func (s *servers) serveOrders() (addr string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("starting the backend: %w", err)
	}
	answer := []byte(`{"orderId":1,"amount":"101","commission":"open"}` + "\n")
	s.backend = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // a client that has gone is h2load's to report
	})}
	go func() { _ = s.backend.Serve(l) }() // until it is closed
	return l.Addr().String(), nil
}

// writeIDs writes the file of all orders, one a line, and returns its path.
func writeIDs(dir string) (string, error) {
	path := filepath.Join(dir, "orders.csv")
	var lines strings.Builder
	for id := range existing {
		fmt.Fprintln(&lines, id+1)
	}
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		return "", fmt.Errorf("writing the orders: %w", err)
	}
	return path, nil
}

// startOrdergate starts one with the configuration of examples/envoy and this
// freshness, on a Redis of its own.
func startOrdergate(ctx context.Context, bed *testbed.Bed, binary, ids, freshness string) (*sidecar, error) {
	server, err := bed.Redis(ctx)
	if err != nil {
		return nil, err
	}
	config, err := bed.GateExample(server.Addr(), ids)
	if err != nil {
		return nil, err
	}
	if config, err = testbed.WithFreshness(config, freshness); err != nil {
		return nil, err
	}
	gate, err := bed.Gate(ctx, binary, config)
	if err != nil {
		return nil, err
	}
	s := &sidecar{process: gate, server: server}
	if s.authz, err = gate.Addr(ctx, "authz"); err != nil {
		return nil, err
	}
	s.redis = redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 1})
	return s, nil
}

func startNoop(ctx context.Context, bed *testbed.Bed, binary, config string) (*sidecar, error) {
	process, err := bed.GateUnready(ctx, binary, config)
	if err != nil {
		return nil, err
	}
	s := &sidecar{process: process}
	s.authz, err = process.Addr(ctx, "authz")
	return s, err
}

// startEnvoy puts an Envoy with the configuration of examples/envoy in front.
func (s *sidecar) startEnvoy(ctx context.Context, bed *testbed.Bed, backend string) error {
	proc, err := s.process.Addr(ctx, "proc")
	if err != nil {
		return err
	}
	config, err := bed.EnvoyExample(s.authz, proc, backend)
	if err != nil {
		return err
	}
	if config, err = testbed.Unhurried(config); err != nil {
		return err
	}
	if s.envoy, err = bed.Envoy(ctx, config); err != nil {
		return err
	}
	addr, err := s.envoy.ListenerAddr(ctx, "orders")
	s.url = "http://" + addr
	return err
}

// meters returns what can be read of the sidecar and what is around it.
func (s *sidecar) meters() map[benchmark.Metric]meter {
	m := map[benchmark.Metric]meter{sidecarCPU: cpuMeter(s.process.PID())}
	if s.envoy != nil {
		m[envoyCPU] = cpuMeter(s.envoy.PID())
	}
	if s.server != nil {
		m[redisCPU] = cpuMeter(s.server.PID())
		m[scripts] = s.scriptsRun
	}
	return m
}
