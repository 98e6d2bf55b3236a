package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/ordergate/ordergate/tests/testbed"
)

// The orders 1 to existing exist. Those from firstAbsent on do not. Orders from
// firstSettled on are settled.
const (
	existing     = 100_000
	firstAbsent  = 900_000_000_000
	firstSettled = 500_000_000_000
)

// What RedisBloom is told: as many orders as the example's filter is for, at its rate.
const (
	bloomKey      = "orders"
	bloomRate     = 0.001
	bloomCapacity = 1_000_000
	bloomBatch    = 10_000
)

// noWindow is the other freshness that is measured.
const noWindow = "none"

// servers are the gateways that are compared, each with its own of everything but
// the backend, which they share.
type servers struct {
	bed     *testbed.Bed
	window  string // the freshness of most
	backend string // "host:port"
	ids     string // a file of the orders
	binary  string // ordergate
	library string // ordergate as a module
	noop    string // package noop

	envoy, direct           gateway
	noopPasses, noopRefuses gateway
	noopAll                 gateway // asks for all of a settlement
	noopModule              gateway
	authz, authzNone        gateway
	authzTwice              gateway // through both filters
	module, moduleNone      gateway
	nginx, lua              gateway
}

// start starts the servers; they end with the bed, but for what close ends.
func start(ctx context.Context, bed *testbed.Bed, window time.Duration) (*servers, error) {
	s := &servers{bed: bed, window: fmt.Sprintf("{window: %v}", window)}
	if err := s.start(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *servers) start(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	// Side by side: most of a start is waiting.
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range []func(context.Context) error{
		s.startPlain,
		func(ctx context.Context) error { return s.startNoop(ctx, &s.noopPasses, "refuse: false") },
		func(ctx context.Context) error { return s.startNoop(ctx, &s.noopRefuses, "refuse: true") },
		func(ctx context.Context) error { return s.startNoop(ctx, &s.noopAll, "all: true") },
		s.startNoopModule,
		func(ctx context.Context) error { return s.startAuthz(ctx, &s.authz, s.window) },
		func(ctx context.Context) error { return s.startAuthz(ctx, &s.authzNone, noWindow) },
		func(ctx context.Context) error {
			return s.startAuthz(ctx, &s.authzTwice, s.window, testbed.ThroughBoth)
		},
		func(ctx context.Context) error { return s.startModule(ctx, &s.module, s.window) },
		func(ctx context.Context) error { return s.startModule(ctx, &s.moduleNone, noWindow) },
		s.startByHand,
	} {
		group.Go(func() error { return one(ctx) })
	}
	return group.Wait()
}

// prepare makes what all need.
func (s *servers) prepare(ctx context.Context) error {
	backend, err := startBackend(ctx, s.bed)
	if err != nil {
		return err
	}
	s.backend = backend.Addr()
	if s.ids, err = writeIDs(s.bed.Dir()); err != nil {
		return err
	}
	if s.binary, err = s.bed.Build(ctx, "./cmd/sidecar", false); err != nil {
		return err
	}
	if s.noop, err = s.bed.Build(ctx, "./tests/bench/noop", false); err != nil {
		return err
	}
	s.library, err = s.bed.Module(ctx)
	return err
}

// close ends what does not belong to the bed.
func (s *servers) close() {
	for _, g := range []*gateway{&s.authz, &s.authzNone, &s.authzTwice, &s.module, &s.moduleNone, &s.lua} {
		g.close()
	}
}

// startPlain starts the proxies without a gate.
func (s *servers) startPlain(ctx context.Context) error {
	config, err := s.bed.EnvoyExample(s.backend, s.backend, s.backend)
	if err != nil {
		return err
	}
	if config, err = plain(config); err != nil {
		return err
	}
	if err := s.envoy.startEnvoy(ctx, s.bed, config); err != nil {
		return err
	}
	if config, err = direct(config); err != nil {
		return err
	}
	if err := s.direct.startEnvoy(ctx, s.bed, config); err != nil {
		return err
	}
	return s.nginx.startNginx(ctx, s.bed, "plain.conf", map[string]string{"BACKEND": s.backend})
}

// startNoop starts an Envoy with a sidecar that does nothing, or refuses all.
func (s *servers) startNoop(ctx context.Context, g *gateway, settings string) error {
	sidecar, err := s.bed.GateUnready(ctx, s.noop, settings)
	if err != nil {
		return err
	}
	return s.startSidecar(ctx, g, sidecar)
}

// startNoopModule starts an Envoy with a module that refuses all.
func (s *servers) startNoopModule(ctx context.Context) error {
	library := filepath.Join(s.bed.Dir(), "libordergate.so")
	const events = "internal/envoymodule/abi"
	cc := exec.CommandContext(ctx, "gcc", "-O2", "-shared", "-fPIC", "-I", events, "-o", library,
		filepath.Join(events, "module.c"), "tests/bench/gateway/noop/noop.c")
	cc.Dir = s.bed.Root()
	if out, err := cc.CombinedOutput(); err != nil {
		return fmt.Errorf("building the module that refuses all: %w: %s", err, out)
	}
	_, err := s.withModule(ctx, &s.noopModule, library, "")
	return err
}

// startAuthz starts an Envoy with ordergate beside it.
func (s *servers) startAuthz(ctx context.Context, g *gateway, freshness string, changes ...func(string) (string, error)) error {
	if err := s.startRedis(ctx, g); err != nil {
		return err
	}
	config, err := gateConfig(s.bed, g.redis.Addr(), s.ids, freshness)
	if err != nil {
		return err
	}
	sidecar, err := s.bed.Gate(ctx, s.binary, config)
	if err != nil {
		return err
	}
	g.lockForeign()
	return s.startSidecar(ctx, g, sidecar, changes...)
}

// startSidecar puts an Envoy with the configuration of examples/envoy in front.
func (s *servers) startSidecar(ctx context.Context, g *gateway, sidecar *testbed.Gate, changes ...func(string) (string, error)) error {
	g.sidecar = sidecar.Process
	authz, err := sidecar.Addr(ctx, "authz")
	if err != nil {
		return err
	}
	proc, err := sidecar.Addr(ctx, "proc")
	if err != nil {
		return err
	}
	config, err := s.bed.EnvoyExample(authz, proc, s.backend)
	if err != nil {
		return err
	}
	for _, change := range append(changes, testbed.Unhurried, quiet) {
		if config, err = change(config); err != nil {
			return err
		}
	}
	return g.startEnvoy(ctx, s.bed, config)
}

// startModule starts an Envoy with ordergate as a module of its process.
func (s *servers) startModule(ctx context.Context, g *gateway, freshness string) error {
	if err := s.startRedis(ctx, g); err != nil {
		return err
	}
	config, err := gateConfig(s.bed, g.redis.Addr(), s.ids, freshness)
	if err != nil {
		return err
	}
	gate, err := s.withModule(ctx, g, s.library, config)
	if err != nil {
		return err
	}
	g.lockForeign()
	return gate.WaitReady(ctx)
}

// withModule puts an Envoy with a module in front.
func (s *servers) withModule(ctx context.Context, g *gateway, library, config string) (*testbed.Gate, error) {
	envoy, gate, err := s.bed.EnvoyWithModule(ctx, library, config, func(file string) (string, error) {
		config, err := s.bed.ModuleExample(file, s.backend)
		if err != nil {
			return "", err
		}
		return quiet(config)
	})
	if err != nil {
		return nil, err
	}
	return gate, g.behind(ctx, envoy)
}

// startByHand starts nginx with Lua, and RedisBloom with the orders.
func (s *servers) startByHand(ctx context.Context) error {
	g := &s.lua
	args, err := s.bed.RedisBloomArgs()
	if err != nil {
		return err
	}
	if err := s.startRedis(ctx, g, args...); err != nil {
		return err
	}
	if err := fillBloom(ctx, g.client); err != nil {
		return fmt.Errorf("filling RedisBloom: %w", err)
	}
	g.lockByHand()
	return g.startLua(ctx, s.bed, s.backend)
}

func (s *servers) startRedis(ctx context.Context, g *gateway, args ...string) (err error) {
	if g.redis, err = s.bed.Redis(ctx, args...); err != nil {
		return err
	}
	g.client = redis.NewClient(&redis.Options{Addr: g.redis.Addr(), PoolSize: 1})
	return nil
}

// fillBloom adds the orders.
func fillBloom(ctx context.Context, client *redis.Client) error {
	if err := client.BFReserve(ctx, bloomKey, bloomRate, bloomCapacity).Err(); err != nil {
		return err
	}
	for first := 1; first <= existing; first += bloomBatch {
		var batch []any
		for id := first; id < first+bloomBatch && id <= existing; id++ {
			batch = append(batch, id)
		}
		if err := client.BFMAdd(ctx, bloomKey, batch...).Err(); err != nil {
			return err
		}
	}
	return nil
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
