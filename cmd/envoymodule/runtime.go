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
	"github.com/ordergate/ordergate/internal/engine"
	"github.com/ordergate/ordergate/internal/listen"
)

const (
	// cleanupTime limits how long ended streams may take to release their locks when Envoy
	// ends or replaces its configuration. Redis has the same time again for holds that it
	// did not accept at first.
	cleanupTime = 5 * time.Second
	// adminRetry is the interval between attempts to listen at an address that is in use.
	adminRetry = time.Second
)

// runtimes are the engines of a process, one for each file. Envoy opens a filter for each
// listener, and again with each new configuration. The zero value is empty. It is safe for
// concurrent use.
type runtimes struct {
	mu  sync.Mutex
	all map[string]*runtime // by path
}

// runtime is an engine with its admin server.
type runtime struct {
	path   string
	member string // its name in the change log, unless the file sets one; "": the address listen.admin
	users  int    // guarded by runtimes.mu
	engine *engine.Engine
	log    *slog.Logger
	admin  *http.Server
	cancel context.CancelFunc
	wg     sync.WaitGroup
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
		if r, err = start(path, getenv, log); err != nil {
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

// release stops the engine after its last user has gone, and blocks until it has stopped.
func (all *runtimes) release(r *runtime) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if r.users--; r.users > 0 {
		return
	}
	delete(all.all, r.path)
	r.stop()
}

func start(path string, getenv func(string) string, log *slog.Logger) (*runtime, error) {
	r := &runtime{path: path, log: log}
	c, err := engine.LoadConfig(path, getenv)
	if err != nil {
		return nil, err
	}
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
	r.engine.TuneGC(getenv)
	r.engine.Start()
	r.engine.ReloadFrom(path, func() (*config.Config, error) {
		c, err := engine.LoadConfig(path, getenv)
		if err == nil {
			r.adapt(c)
		}
		return c, err
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
		r.log.Warn("another process has the admin address, ordergate opens it once it is free", "listen.admin", c.Admin)
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
		r.log.Error("the admin address no longer serves requests", "error", err)
	}
}

// stop stops everything, and blocks until it has stopped.
func (r *runtime) stop() {
	r.cancel()
	_ = r.admin.Close()
	r.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTime)
	defer cancel()
	r.engine.AwaitLateEnds(ctx)
	r.engine.Close()
	r.log.Info("stopped", "config", r.path)
}
