package command

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
	"github.com/ordergate/ordergate/internal/bundle"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/listen"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/systemd"
	"github.com/ordergate/ordergate/internal/timeouts"
	"github.com/ordergate/ordergate/lockmw"
)

type serveOptions struct {
	delay     time.Duration // time that new calls are served after readiness ends
	drain     time.Duration // time for running calls to finish after that
	file      string        // path of the configuration
	load      func() (*config.Effective, error)
	recent    *bundle.Log      // of the logger
	reload    <-chan os.Signal // each signal reloads the configuration
	keepalive time.Duration    // idle time before a keepalive ping, at least 1 s; 0: keepaliveTime
}

// serve runs the sidecar until ctx ends or a listener fails. After ctx ends it serves new calls
// for opts.delay. It then waits up to opts.drain for running calls.
func serve(ctx context.Context, e *config.Effective, opts serveOptions, log *slog.Logger, getenv func(string) string) error {
	c := e.Config
	m, err := engine.New(ctx, c, versionText(), log)
	if err != nil {
		return err
	}
	defer m.Close()
	if opts.recent != nil {
		m.KeepLog(opts.recent)
	}
	m.TuneGC(getenv)
	f, err := newAdapters(m, c, cmp.Or(opts.keepalive, keepaliveTime), log)
	if err != nil {
		return err
	}
	// Listen before Start. The process that has the addresses is the only one with this
	// instance ID, in the change log too.
	if err := f.listen(c.Listen); err != nil {
		return err
	}
	m.Start()
	m.ReloadFrom(opts.file, e, opts.load, opts.reload, systemd.Reloading)
	failed := f.start()
	log.Info("serving", "version", versionText(), "rules", len(c.Rules))
	systemd.Serving()
	watched, endWatch := context.WithCancel(context.Background())
	defer endWatch()
	go systemd.Watchdog(watched, f.alive, func(err error) {
		log.Error("systemd's watchdog is not fed", "error", err,
			runbook.Down.Do("nothing: systemd restarts it if this lasts"))
	})

	select {
	case <-ctx.Done():
		systemd.Stopping()
		endWatch() // the listeners are about to close
		f.lameDuck(opts.delay)
		log.Info("stopping: running calls may finish", "within", opts.drain)
	case err = <-failed:
	}
	drained, cancel := context.WithTimeout(context.Background(), opts.drain)
	defer cancel()
	f.stop(opts.drain)
	m.AwaitLateEnds(drained)
	log.Info("stopped")
	return err
}

// adapters holds the servers for Envoy, other proxies and operators.
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

// server is one server with its listener. ext_authz and ext_proc have separate servers: a
// check takes microseconds, but an ext_proc stream lasts as long as its call.
type server struct {
	name     string
	protocol string // h2 for gRPC
	secured  bool   // by TLS
	listener net.Listener
	serve    func(net.Listener) error
}

// streamWorkers is the number of permanent goroutines of each gRPC server. A new goroutine
// grows its stack first, which took a sixth of the CPU with 32 workers and 200 checks in
// flight. A call occupies a worker until it ends; so does a check that waits for a filter in
// Redis. If all workers are busy, gRPC starts a goroutine for each check or call.
const streamWorkers = 128

const (
	// readHeaderTimeout bounds the time that a client takes to send its headers.
	readHeaderTimeout = 5 * time.Second
	// subrequestTimeout bounds reading a sub-request, without its body, and writing the
	// answer. It is longer than any verdict takes.
	subrequestTimeout = 30 * time.Second
	// subrequestIdle is longer than proxies keep an idle connection (nginx 1 min, Traefik
	// 90 s, Envoy 1 h). If ordergate closed it first, a sub-request could fail on it.
	subrequestIdle = 2 * time.Hour
	// connectTimeout bounds the HTTP/2 handshake of a gRPC client.
	connectTimeout = 10 * time.Second
	// maxSubrequestHeader bounds the headers of a sub-request, in bytes. By default Traefik
	// accepts 1 MiB and Envoy 60 KiB, and a sub-request repeats the target in a header.
	maxSubrequestHeader = 2 << 20
	// maxMessage bounds a message of Envoy to ext_proc, in bytes. A message can hold a whole
	// buffered body, which Envoy bounds by per_connection_buffer_limit_bytes.
	maxMessage = 256 << 20
	// httpDrain bounds the wait for running HTTP requests on shutdown.
	httpDrain = time.Second
)

const (
	// keepaliveTime is the idle time before the server pings a connection, keepaliveTimeout
	// the time for the reply. Without pings, the server does not notice a lost proxy (its
	// machine died, or a firewall dropped the connection). It would renew the leases of that
	// proxy's calls until settle.max_hold.
	keepaliveTime, keepaliveTimeout = 10 * time.Second, 5 * time.Second
	// shortestPing is the minimum interval between pings of a proxy (Envoy's
	// connection_keepalive). gRPC closes a connection that pings more often. The default of
	// gRPC is 5 min.
	shortestPing = 100 * time.Millisecond
)

func newAdapters(m *engine.Engine, c *config.Config, silent time.Duration, log *slog.Logger) (*adapters, error) {
	checks, err := extauthz.NewServer(m.Gate())
	if err != nil {
		return nil, err
	}
	checks.LogTo(log)
	seal, renewSeal := m.Seal()
	checks.Attach(seal)
	authzMarks := m.Marks()
	checks.Prove(authzMarks)
	brackets := lockmw.NewServer(m.Gate(), lockmw.Options{
		AnswerDelay: timeouts.LongestLearn(c), BodyUnseen: m.BodyUnseen, AttributesMissing: m.AttributesMissing, EndsMissing: m.EndsMissing, EndsShown: m.EndsShown,
		Seal: seal, RenewSeal: renewSeal, Marks: m.Marks(), AuthzMarks: authzMarks, Logger: log,
	})
	m.WatchGate(func(g *gate.Gate) {
		if err := checks.Use(g); err != nil { // only for text that is not UTF-8, which YAML is
			log.Error("ext_authz keeps the earlier rules", "error", err,
				runbook.ConfigRefused.Do("write the file in UTF-8"))
		}
		brackets.Use(g)
	})
	alive := grpc.KeepaliveParams(keepalive.ServerParameters{Time: silent, Timeout: min(silent, keepaliveTimeout)})
	pings := grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: shortestPing, PermitWithoutStream: true})
	usual := []grpc.ServerOption{
		grpc.NumStreamWorkers(streamWorkers), grpc.WaitForHandlers(true), grpc.ConnectionTimeout(connectTimeout), alive, pings,
	}
	f := &adapters{
		log:    log,
		authz:  checks.NewGRPC(usual...),
		proc:   checks.NewGRPC(append(usual, grpc.MaxRecvMsgSize(maxMessage))...),
		health: health.NewServer(),
	}
	// Each serves both, so that an Envoy whose clusters are swapped is right.
	extproc.RegisterExternalProcessorServer(f.proc, brackets)
	extproc.RegisterExternalProcessorServer(f.authz, brackets)
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

// listen opens all configured addresses, but for those that systemd has opened. After an error it
// closes them.
func (f *adapters) listen(c config.Listen) (err error) {
	passed, err := systemd.TakeSockets()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			passed.Close()
			for _, open := range f.servers {
				_ = open.listener.Close()
			}
		}
	}()
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
		l := passed.Take(s.addr)
		if l == nil {
			l, err = listen.Listen(s.addr, c.FileMode())
		}
		if err == nil {
			l, err = listen.WithTLS(l, s.tls, []string{s.protocol}, f.log)
		}
		if err != nil {
			return fmt.Errorf("listen.%s: %w", s.name, err)
		}
		f.servers = append(f.servers, server{s.name, s.protocol, s.tls != nil && l.Addr().Network() == "tcp", l, s.serve})
	}
	return passed.Unused()
}

// start serves on all listeners in the background. It returns a channel that receives the
// error of each listener that fails.
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

// lameDuck ends readiness and keeps serving for delay. Proxies and load balancers then send
// new calls to other instances before the listeners close. A second SIGTERM or SIGINT ends
// the delay.
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

// stop refuses new calls, waits for running calls up to within, and ends the rest. Their
// locks become holds, because the outcome is unknown.
func (f *adapters) stop(within time.Duration) {
	f.draining.Store(true)
	f.health.Shutdown()
	timer := time.AfterFunc(within, func() {
		f.log.Warn("calls cut off at the end of the drain time",
			runbook.Stopping.Do("raise --drain to more than the longest call takes; the locks of these calls are held for on_unknown_outcome.hold"))
		f.authz.Stop()
		f.proc.Stop()
	})
	f.authz.GracefulStop()
	f.proc.GracefulStop()
	timer.Stop()
	shutdown(f.http) // last: lookups are answered while calls drain
	shutdown(f.admin)
	_ = f.group.Wait()
}

// shutdown waits up to httpDrain for running requests, and then closes their connections. A
// proxy does not wait longer for a sub-request.
func shutdown(s *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), httpDrain)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		_ = s.Close()
	}
}
