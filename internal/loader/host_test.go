package loader

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/metrics"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/redisconn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// host runs the loaders of a configuration, as an engine does.
type host struct {
	filters  map[string]*Loader
	redis    redis.UniversalClient
	closers  []func()
	warnings recurring.Warnings
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// newHost opens the loaders.
func newHost(ctx context.Context, c *config.Config, log *slog.Logger) (*host, error) {
	h := &host{filters: make(map[string]*Loader), cancel: func() {}}
	o := &Options{Config: c, Process: "test", Metrics: metrics.New("", time.Now()), Warnings: &h.warnings, Logger: log}
	if c.Redis != nil {
		client, closeClient, err := redisconn.Connect(ctx, c.Redis, 2*len(c.Filters))
		if err != nil {
			return nil, err
		}
		h.redis, h.closers, o.Redis, o.InstanceID = client, []func(){closeClient}, client, cmp.Or(c.Redis.Member, "test")
	}
	for name := range c.Filters {
		l, err := New(ctx, o, name)
		if err != nil {
			h.Close()
			return nil, err
		}
		h.filters[name] = l
	}
	return h, nil
}

// build opens the loaders and runs them.
func build(ctx context.Context, c *config.Config, log *slog.Logger) (*host, error) {
	h, err := newHost(ctx, c, log)
	if err == nil {
		h.Start(ctx)
	}
	return h, err
}

func (h *host) Start(ctx context.Context) {
	ctx, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, l := range h.filters {
		h.wg.Go(func() { l.Run(ctx) })
	}
}

func (h *host) Close() {
	h.cancel()
	h.wg.Wait()
	h.warnings.Close()
	for _, l := range h.filters {
		l.Close()
	}
	for _, closeClient := range h.closers {
		closeClient()
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
