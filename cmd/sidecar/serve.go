package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/extauthz"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/listen"
	"github.com/ordergate/ordergate/lockmw"
)

type serveOptions struct {
	delay     time.Duration // how long new calls are served after readiness has gone
	drain     time.Duration // how long running calls may take to finish after that
	file      string        // where the configuration is
	load      func() (*config.Config, error)
	reload    <-chan os.Signal // asks for it to be read again
	keepalive time.Duration    // after which a connection is asked for a sign of life, at least 1s; 0: silentTime
}

// serve runs the sidecar until ctx ends, then lets running calls finish.
func serve(ctx context.Context, c *config.Config, opts serveOptions, log *slog.Logger, getenv func(string) string) error {
	m, err := engine.New(ctx, c, versionText(), log)
	if err != nil {
		return err
	}
	defer m.Close()
	m.TuneGC(getenv)
	f, err := newAdapters(m, cmp.Or(opts.keepalive, keepaliveTime), log)
	if err != nil {
		return err
	}
	// First: whoever has the addresses is the one at this place, for the change log too.
	if err := f.listen(c.Listen); err != nil {
		return err
	}
	m.Start()
	m.ReloadFrom(opts.file, opts.load, opts.reload)
	failed := f.start()
	log.Info("serving", "version", versionText(), "rules", len(c.Rules))

	select {
	case <-ctx.Done():
		f.lameDuck(opts.delay)
		log.Info("stopping: running calls may finish", "within", opts.drain)
	case err = <-failed:
	}
	drained, cancel := context.WithTimeout(context.Background(), opts.drain)
	defer cancel()
	f.stop(opts.drain)
	m.AwaitHolds(drained)
	log.Info("stopped")
	return err
}

// adapters are the servers that others talk to.
type adapters struct {
	log      *slog.Logger
	authz    *grpc.Server
	proc     *grpc.Server
	http     *http.Server
	admin    *http.Server
	health   *health.Server
	draining atomic.Bool

	servers []server
	group   errgroup.Group
}

// server is one of them with its listener. They are separate because an ext_proc
// stream lasts as long as its call, while a check takes microseconds.
type server struct {
	name     string
	listener net.Listener
	serve    func(net.Listener) error
}

// streamWorkers is how many goroutines of each server answer without being started for
// each check or call: a new one grows its stack first, which took a sixth of the CPU with
// 32 of them and 200 checks in flight. A check that waits for a filter in Redis holds one, and so
// does a call as long as it lasts; past their number gRPC starts goroutines as usual.
const streamWorkers = 128

const (
	// readHeaderTimeout bounds how long a client may take over its headers.
	readHeaderTimeout = 5 * time.Second
	// subrequestTimeout bounds how long a client may take over a sub-request, whose body is
	// not read, and over its answer. It is more than a verdict waits for.
	subrequestTimeout = 30 * time.Second
	// subrequestIdle is longer than proxies keep an idle connection (nginx a minute, Traefik
	// 90 s, Envoy an hour): one that ordergate closed could be closed beneath a sub-request.
	subrequestIdle = 2 * time.Hour
	// connectTimeout bounds how long a client of gRPC may take until it speaks HTTP/2.
	connectTimeout = 10 * time.Second
	// maxSubrequestHeader bounds the headers of a sub-request, in bytes: those that
	// Traefik and Envoy take by default (1 MiB, 60 KiB), and the target once more.
	maxSubrequestHeader = 2 << 20
	// maxMessage bounds a message of Envoy to ext_proc, in bytes. Bodies come as Envoy buffers
	// them, and how much that is, its per_connection_buffer_limit_bytes says.
	maxMessage = 256 << 20
	// httpDrain bounds the wait for running HTTP requests at the end.
	httpDrain = time.Second
)

const (
	// keepaliveTime is after which silence a connection is asked for a sign of life, and
	// keepaliveTimeout how long that may take. Without it a proxy that is gone without a word (its
	// machine died, a firewall forgot the connection) leaves its calls behind, and their
	// leases would be renewed until settle.max_hold.
	keepaliveTime, keepaliveTimeout = 10 * time.Second, 5 * time.Second
	// shortestPing is how often a proxy may ask for one itself (Envoy's
	// connection_keepalive). gRPC closes the connection on one that asks more often, by
	// default than every five minutes.
	shortestPing = 100 * time.Millisecond
)

func newAdapters(m *engine.Engine, silent time.Duration, log *slog.Logger) (*adapters, error) {
	checks, err := extauthz.NewServer(m.Gate())
	if err != nil {
		return nil, err
	}
	checks.LogTo(log)
	brackets := lockmw.NewServer(m.Gate(), lockmw.Options{
		LearnTimeout: m.LearnTimeout(), BodyUnseen: m.BodyUnseen, AttributesMissing: m.AttributesMissing, Logger: log,
	})
	m.WatchGate(func(g *gate.Gate) {
		if err := checks.Use(g); err != nil { // YAML is UTF-8
			log.Error("checks go by the rules from before", "error", err)
		}
		brackets.Use(g)
		warnOfGETRules(g, log)
	})
	alive := grpc.KeepaliveParams(keepalive.ServerParameters{Time: silent, Timeout: min(silent, keepaliveTimeout)})
	pings := grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: shortestPing, PermitWithoutStream: true})
	usual := []grpc.ServerOption{
		grpc.NumStreamWorkers(streamWorkers), grpc.WaitForHandlers(true), grpc.ConnectionTimeout(connectTimeout), alive, pings,
	}
	f := &adapters{
		log:    log,
		authz:  checks.NewGRPC(usual...),
		proc:   grpc.NewServer(append(usual, grpc.MaxRecvMsgSize(maxMessage))...),
		health: health.NewServer(),
	}
	extproc.RegisterExternalProcessorServer(f.proc, brackets)
	healthpb.RegisterHealthServer(f.authz, f.health)
	healthpb.RegisterHealthServer(f.proc, f.health)
	f.http = &http.Server{
		Handler:           checks.HTTPHandler(),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       subrequestTimeout,
		WriteTimeout:      subrequestTimeout,
		IdleTimeout:       subrequestIdle,
		MaxHeaderBytes:    maxSubrequestHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	f.admin = m.AdminServer(f.draining.Load)
	return f, nil
}

// warnOfGETRules logs which rules create or settle by methods for which Envoy may have been told
// to leave ext_proc out, as the example does.
func warnOfGETRules(g *gate.Gate, log *slog.Logger) {
	for _, p := range g.Policies() {
		reads := slices.ContainsFunc(p.Rule.Methods, func(m string) bool { return m == http.MethodGet || m == http.MethodHead })
		if reads && (p.Create != nil || p.Settle != nil) {
			log.Warn("the rule creates or settles by GET or HEAD: have Envoy send these through ext_proc, too", "rule", p.Rule.Name)
		}
	}
}

// listen opens every configured address, or none.
func (f *adapters) listen(c config.Listen) error {
	for _, s := range []struct {
		name, addr string
		serve      func(net.Listener) error
		tls        *config.ListenTLS
		protocol   string
	}{
		{"authz", c.Authz, f.authz.Serve, c.TLS, "h2"},
		{"proc", c.Proc, f.proc.Serve, c.TLS, "h2"},
		{"http", c.HTTP, f.http.Serve, c.TLS, "http/1.1"},
		{"admin", c.Admin, f.admin.Serve, nil, ""},
	} {
		if s.addr == "" {
			continue
		}
		l, err := listen.Listen(s.addr, c.FileMode())
		if err == nil {
			l, err = listen.WithTLS(l, s.tls, []string{s.protocol}, f.log)
		}
		if err != nil {
			for _, open := range f.servers {
				_ = open.listener.Close()
			}
			return fmt.Errorf("listen.%s: %w", s.name, err)
		}
		f.servers = append(f.servers, server{s.name, l, s.serve})
	}
	return nil
}

// start serves on all listeners. The channel tells when one of them fails.
func (f *adapters) start() <-chan error {
	failed := make(chan error, len(f.servers))
	for _, s := range f.servers {
		f.log.Info("listening", "name", s.name, "addr", s.listener.Addr().String())
		f.group.Go(func() error {
			err := s.serve(s.listener)
			if err != nil && !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("listen.%s: %w", s.name, err)
			}
			return nil
		})
	}
	return failed
}

// lameDuck takes readiness away and serves on, so that proxies and load balancers send their new
// calls to others before the listeners close. A second signal to stop ends that time.
func (f *adapters) lameDuck(delay time.Duration) {
	f.draining.Store(true)
	f.health.Shutdown()
	if delay <= 0 {
		return
	}
	f.log.Info("stopping: not ready any more, new calls are still served", "for", delay)
	again, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-again.Done():
	case <-timer.C:
	}
}

// stop refuses new calls, gives running ones the time to finish, and ends the
// rest: their locks are held, as after any call without an outcome.
func (f *adapters) stop(within time.Duration) {
	f.draining.Store(true)
	f.health.Shutdown()
	timer := time.AfterFunc(within, func() {
		f.log.Warn("calls cut off at the end of the drain time")
		f.authz.Stop()
		f.proc.Stop()
	})
	f.authz.GracefulStop()
	f.proc.GracefulStop()
	timer.Stop()
	shutdown(f.http) // lookups are answered as long as calls drain
	shutdown(f.admin)
	_ = f.group.Wait()
}

// shutdown lets the requests finish that a server is answering, and cuts off what
// takes longer than a proxy waits for a sub-request.
func shutdown(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), httpDrain)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close()
	}
}
