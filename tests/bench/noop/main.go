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
	"syscall"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	procv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// settings is the configuration file.
type settings struct {
	Workers uint32 `yaml:"workers"` // grpc.NumStreamWorkers of the ext_authz server; 0 is gRPC's default
	Refuse  bool   `yaml:"refuse"`  // answer every check with a 404
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
	if len(args) != 3 || args[0] != "serve" || args[1] != "--config" {
		return fmt.Errorf("noop: arguments %q: use serve --config FILE", args)
	}
	s, err := load(args[2])
	if err != nil {
		return err
	}
	var opts []grpc.ServerOption
	if s.Workers > 0 {
		opts = append(opts, grpc.NumStreamWorkers(s.Workers))
	}
	authz, proc := grpc.NewServer(opts...), grpc.NewServer()
	authv3.RegisterAuthorizationServer(authz, authorization{refuse: s.Refuse})
	procv3.RegisterExternalProcessorServer(proc, processor{})

	var group errgroup.Group
	for _, server := range []struct {
		name string
		grpc *grpc.Server
	}{{"authz", authz}, {"proc", proc}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listening for %s: %w", server.name, err)
		}
		slog.Info("listening", "name", server.name, "addr", l.Addr().String())
		group.Go(func() error { return server.grpc.Serve(l) })
	}
	<-ctx.Done()
	authz.Stop()
	proc.Stop()
	return group.Wait()
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
