package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/bundle"
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/listen"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/timeouts"
)

const (
	// endTime limits how long Envoy waits for ordergate when it ends: for locks that are released or
	// held, of all files at once. What is left expires.
	endTime = 5 * time.Second
	// stopTime is the part of it that the engine has to disconnect.
	stopTime = time.Second
	// adminRetry is the interval between attempts to listen at an address that is in use.
	adminRetry = time.Second
)

// runtimes are the engines of a process, one for each file. Envoy opens a filter for each
// listener, and again with each new configuration. The zero value is empty. It is safe for
// concurrent use.
type runtimes struct {
	mu     sync.Mutex
	all    map[string]*runtime // by path
	recent bundle.Log          // of all of them
	late   func()              // called when Envoy no longer waits for what release has begun
	ending sync.WaitGroup      // what release has begun
}

// runtime is an engine with its admin server.
type runtime struct {
	path   string
	member string         // its name in the change log, unless the file sets one; "": the address listen.admin
	users  int            // guarded by runtimes.mu
	closes sync.WaitGroup // of its users
	engine *engine.Engine
	log    *slog.Logger
	admin  *http.Server
	cancel context.CancelFunc
	wg     sync.WaitGroup

	answerDelay time.Duration // see envoymodule.Options
}

// get returns the engine of a file, and starts it if necessary. It reads the file only
// then.
func (all *runtimes) get(path string, getenv func(string) string, log *slog.Logger) (*runtime, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.all[path]
	if r == nil {
		if r, err = start(path, getenv, log, &all.recent); err != nil {
			return nil, err
		}
		if all.all == nil {
			all.all = make(map[string]*runtime)
		}
		all.all[path] = r
	}
	r.users++
	return r, nil
}

// release closes a user of the engine, which takes the given time at most, and stops the engine after
// its last one. It does that in the background, since Envoy's main thread calls it, for each place of its
// configuration. But the last release of all waits, for endTime at most: Envoy may be about to end.
func (all *runtimes) release(r *runtime, closeUser func(within time.Duration)) {
	end := time.Now().Add(endTime)
	all.mu.Lock()
	r.users--
	last := r.users == 0
	if last {
		delete(all.all, r.path)
	}
	r.closes.Add(1)
	all.ending.Go(func() {
		closeUser(time.Until(end) - stopTime)
		r.closes.Done()
		if last {
			r.closes.Wait()
			r.stop(end.Add(-stopTime))
		}
	})
	wait := len(all.all) == 0
	all.mu.Unlock()
	if !wait {
		return
	}
	ended := make(chan struct{})
	go func() {
		all.ending.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(time.Until(end)):
		r.log.Warn("Redis does not answer, locks of calls that ended last expire by themselves",
			runbook.LocksFail.Do("nothing: these locks end with their leases"))
		all.late()
	}
}

func start(path string, getenv func(string) string, log *slog.Logger, recent *bundle.Log) (*runtime, error) {
	r := &runtime{path: path, log: log}
	load := func() (*config.Effective, error) { return engine.LoadEffective(path, config.Options{Getenv: getenv}) }
	e, err := load()
	if err != nil {
		return nil, err
	}
	c := e.Config
	r.answerDelay = timeouts.LongestLearn(c)
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	// Listen first: the owner of the address also owns the member's name in the change log.
	listener, err := r.listen(c.Listen)
	if err == nil {
		r.adapt(c)
		r.engine, err = engine.New(ctx, c, version, log)
	}
	if err != nil {
		r.cancel()
		if listener != nil {
			_ = listener.Close()
		}
		return nil, err
	}
	r.engine.KeepLog(recent)
	r.engine.TuneGC(getenv)
	r.engine.Start()
	r.engine.ReloadFrom(path, e, func() (*config.Effective, error) {
		e, err := load()
		if err == nil {
			r.adapt(e.Config)
		}
		return e, err
	}, nil, nil)
	r.admin = r.engine.AdminServer(func() bool { return ctx.Err() != nil })
	if c.Listen.Admin != "" {
		r.wg.Go(func() { r.serveAdmin(ctx, c.Listen, listener) })
	}
	log.Info("serving inside Envoy", "version", version, "rules", len(c.Rules), "config", path)
	return r, nil
}

// listen opens the admin address. During a hot restart Envoy has two processes for a while.
// Then the other process has the address and the member's name in the change log. This one
// uses a name of its own, and takes the address as soon as it is free. Without an address
// it also uses a name of its own.
func (r *runtime) listen(c config.Listen) (net.Listener, error) {
	if c.Admin == "" {
		r.member = ownMember(r.path)
		return nil, nil
	}
	l, err := listen.Listen(c.Admin, c.FileMode())
	if errors.Is(err, syscall.EADDRINUSE) {
		r.log.Warn("another process has the admin address, ordergate opens it once it is free", "listen.admin", c.Admin,
			runbook.HotRestart.Do("nothing while Envoy is restarted hot; otherwise give this one another listen.admin"))
		r.member = ownMember(r.path)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listen.admin: %w", err)
	}
	return l, nil
}

// ownMember returns a member name that no other process uses.
func ownMember(path string) string {
	host, _ := os.Hostname() // the rest is unique without it
	return strings.ReplaceAll(fmt.Sprintf("%s %d %s", host, os.Getpid(), path), "#", "_")
}

// adapt adjusts a file's settings for use inside Envoy. It does not open the sidecar's
// addresses. All Envoys of a host may use the same ones, so they do not name the member.
func (r *runtime) adapt(c *config.Config) {
	c.Listen.Authz, c.Listen.Proc, c.Listen.HTTP = "", "", ""
	if r.member != "" && c.Redis != nil && c.Redis.Member == "" {
		c.Redis.Member = r.member
	}
}

func (r *runtime) serveAdmin(ctx context.Context, c config.Listen, l net.Listener) {
	for l == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(adminRetry):
		}
		var err error
		if l, err = listen.Listen(c.Admin, c.FileMode()); err != nil {
			l = nil
		}
	}
	r.log.Info("listening", "name", "admin", "addr", l.Addr().String())
	if err := r.admin.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		r.log.Error("the admin address no longer serves requests", "error", err,
			runbook.AdminAddress.Do("restart Envoy: metrics and commands do not reach this ordergate until then"))
	}
}

// stop stops everything, and blocks until it has stopped. What Redis has not accepted by a time is left.
func (r *runtime) stop(by time.Time) {
	r.cancel()
	_ = r.admin.Close()
	r.wg.Wait()
	ctx, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	r.engine.AwaitLateEnds(ctx)
	r.engine.Close()
	r.log.Info("stopped", "config", r.path)
}
