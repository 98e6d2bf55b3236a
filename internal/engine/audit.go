package engine

import (
	"context"

	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/runbook"
)

// watchAudit logs the manual actions of operators in Redis, and counts the locks that they released.
func (m *Engine) watchAudit(ctx context.Context) {
	if m.redis != nil {
		audit.Watch(ctx, m.redis, m.logAudited)
	}
}

func (m *Engine) logAudited(e audit.Entry) {
	switch e.Action {
	case audit.Loaded:
		m.log.Info("order IDs were added by hand", "filter", e.Filter, "ids", e.IDs, "who", e.Who, "reason", e.Reason)
	case audit.Forgot:
		m.log.Warn("a stored answer was forgotten by hand", "who", e.Who, "lock", e.Lock, "key", e.Key, "reason", e.Reason,
			runbook.Forgotten.Do("nothing if you know who did"))
	case audit.LatchSet:
		m.log.Warn("a latch was set by hand", "who", e.Who, "key", e.Key, "count", e.Count, "reason", e.Reason,
			runbook.Latches.Do("nothing if you know who did"))
	case audit.Released:
		m.log.Warn("a lock was released by hand", "who", e.Who, "lock", e.Lock, "key", e.Key,
			"holder", e.Holder, "request", e.Request, "reason", e.Reason,
			runbook.ByHand.Do("nothing if you know who did"))
		if m.hasLock(e.Lock) { // a name without a lock would become a new label
			m.metrics.Forced(e.Lock)
		}
	}
}

// hasLock reports whether the active configuration has a lock. That of a rule's keys counts.
func (m *Engine) hasLock(name string) bool {
	c := m.activeConfig()
	_, ok := c.Locks[name]
	_, ofKeys := locking.KeyLocks(c)[name]
	return ok || ofKeys
}

// Audit reports the manual action of an operator to all instances. It needs a Redis.
func (m *Engine) Audit(ctx context.Context, e audit.Entry) error {
	return audit.Append(ctx, m.redis, e)
}
