package engine

import (
	"context"
	"net/http"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/audit"
)

// watchAudit logs what operators do by hand in Redis, and counts the locks among that.
func (m *Engine) watchAudit(ctx context.Context) {
	if m.redis == nil || m.config.Redis.Mode == config.RedisEmbedded {
		return // no command reaches it
	}
	audit.Watch(ctx, m.redis, func(e audit.Entry) {
		if e.Action != audit.Released {
			m.log.Info("order IDs were added by hand", "filter", e.Filter, "ids", e.IDs, "who", e.Who, "reason", e.Reason)
			return
		}
		m.log.Warn("a lock was released by hand", "who", e.Who, "lock", e.Lock, "key", e.Key,
			"holder", e.Holder, "request", e.Request, "reason", e.Reason)
		if m.hasLock(e.Lock) { // another text would be a new label
			m.metrics.Forced(e.Lock)
		}
	})
}

// hasLock reports whether the configuration in force has a lock.
func (m *Engine) hasLock(name string) bool {
	m.inForce.mu.Lock()
	defer m.inForce.mu.Unlock()
	_, ok := m.inForce.config.Locks[name]
	return ok
}

// logAdded leaves a trace of IDs that were added at the admin address.
func (m *Engine) logAdded(r *http.Request, filter string, asked *IDsRequest, added []string) {
	if len(added) == 0 {
		return
	}
	short := func(text string) string { return strings.ToValidUTF8(text[:min(len(text), audit.MaxReason)], "") }
	m.log.Info("order IDs were added by hand", "filter", filter, "ids", len(added), "first", added[0],
		"who", short(asked.Who), "from", r.RemoteAddr, "reason", short(asked.Reason))
}

// Audit tells all ordergates of what an operator did by hand. It needs a Redis.
func (m *Engine) Audit(ctx context.Context, e audit.Entry) error {
	return audit.Append(ctx, m.redis, e)
}
