// Command noop is what ordergate is measured against: an ordinary grpc-go server
// with the generated code of Envoy's two services, which answers every message
// without looking at it.
//
// It stands in for ordergate: it is started with "serve --config FILE" and logs
// its listeners in the same words. The file is a [settings] in YAML.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// ballast is what the server keeps alive, in bytes, besides its own 1 MB: as much
// as ordergate does with the configuration of examples/envoy (4 MB by
// GODEBUG=gctrace=1, of which 1.8 MB are the filter). Without it the collector
// would run twice as often here, and the comparison would be one of heaps.
const ballast = 3 << 20

// settings is the configuration file.
type settings struct {
	Workers uint32 `yaml:"workers"` // grpc.NumStreamWorkers of the ext_authz server; 0 is gRPC's default
	Refuse  bool   `yaml:"refuse"`  // answer every check with a 404
	Raw     bool   `yaml:"raw"`     // do not even decode a check
	All     bool   `yaml:"all"`     // ask for all that ordergate asks for of a settlement
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) < 3 || args[0] != "serve" || args[1] != "--config" {
		return fmt.Errorf("noop: arguments %q: use serve --config FILE", args)
	}
	s, err := load(args[2])
	if err != nil {
		return err
	}
	authz, err := newAuthz(s)
	if err != nil {
		return err
	}
	proc := grpc.NewServer()
	procv3.RegisterExternalProcessorServer(proc, processor{all: s.All})

	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	memory := make([]byte, ballast)
	defer runtime.KeepAlive(memory)
	var group errgroup.Group
	for _, server := range []struct {
		name string
		grpc *grpc.Server
	}{{"authz", authz}, {"proc", proc}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listening for %s: %w", server.name, err)
		}
		log.Info("listening", "name", server.name, "addr", l.Addr().String())
		group.Go(func() error { return server.grpc.Serve(l) })
	}
	<-ctx.Done()
	authz.Stop()
	proc.Stop()
	return group.Wait()
}

// newAuthz returns the ext_authz server.
func newAuthz(s settings) (*grpc.Server, error) {
	var opts []grpc.ServerOption
	if s.Workers > 0 {
		opts = append(opts, grpc.NumStreamWorkers(s.Workers))
	}
	if s.Raw {
		server := grpc.NewServer(append(opts, grpc.ForceServerCodecV2(rawCodec{}))...)
		return server, registerRaw(server)
	}
	server := grpc.NewServer(opts...)
	authv3.RegisterAuthorizationServer(server, authorization{refuse: s.Refuse})
	return server, nil
}

// load reads the configuration file.
func load(path string) (s settings, err error) {
	f, err := os.Open(path)
	if err != nil {
		return s, fmt.Errorf("reading the settings: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	decoder := yaml.NewDecoder(f)
	decoder.KnownFields(true)
	if err := decoder.Decode(&s); err != nil {
		return s, fmt.Errorf("reading the settings in %s: %w", path, err)
	}
	return s, nil
}
