package engine

import (
	"context"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
)

// Announce appends IDs to the change log of a filter. Every instance has them after
// [Engine.AwaitPeers]. It needs a Redis, and works without Start. After an error some of the IDs
// may have been added.
func (m *Engine) Announce(ctx context.Context, filter string, ids []string) error {
	return m.filters[filter].Announce(ctx, ids)
}

// AwaitPeers blocks until no instance answers Absent for an ID that was announced before the
// call.
func (m *Engine) AwaitPeers(ctx context.Context, filter string) error {
	return m.filters[filter].AwaitPeers(ctx)
}

// LoadSnapshot loads a filter in this process, and writes its snapshot. It blocks for as
// long as the sources take.
func LoadSnapshot(ctx context.Context, c *config.Config, name string, log *slog.Logger) (*admin.LoadReport, error) {
	if c.Redis != nil {
		// The instance that starts from the snapshot has another identity.
		c.Redis.Member = "load " + strconv.Itoa(os.Getpid())
	}
	m, err := New(ctx, c, "", log)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	began := time.Now()
	info, waited, err := m.filters[name].WriteSnapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &admin.LoadReport{Filter: name, IDs: int64(info.IDs), Took: admin.SecondsOf(time.Since(began)), Waited: admin.SecondsOf(waited), Snapshot: &info.Path}, nil
}
