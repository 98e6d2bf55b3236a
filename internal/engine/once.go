package engine

import (
	"context"
	"slices"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/audit"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/lockmw/redislock"
)

// forgetStored implements admin.Server.Forget for the active rules. All instances receive the
// record of it.
func (m *Engine) forgetStored(ctx context.Context, rule, id, who, reason string) (*admin.ForgottenReport, error) {
	c := m.activeConfig()
	at := slices.IndexFunc(c.Rules, func(r config.Rule) bool { return r.Name == rule })
	if at < 0 {
		return nil, admin.ErrNoAnswers
	}
	r := &c.Rules[at]
	o, _ := r.ByOrder()
	if o == nil || o.Name == "" || !r.Mode.Enforces() {
		return nil, admin.ErrNoAnswers
	}
	id, ok, err := rules.Canonical(r, id)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, admin.ErrNoOrder
	}
	key := locking.KeyLocker(c, r.OrderLock(), r, false).Key(id)
	report := &admin.ForgottenReport{Rule: rule, ID: id, Lock: r.OrderLock(), Name: o.Name, Key: redislock.StoredKey(key, o.Name)}
	n, err := redislock.ForgetStored(ctx, m.redis, key, o.Name)
	if err != nil || n == 0 {
		return report, err
	}
	report.Forgotten = true
	entry := audit.Entry{Who: who, Action: audit.Forgot, Lock: report.Lock, Key: report.Key, Reason: reason}
	if err := m.Audit(ctx, entry); err != nil {
		m.log.Warn("a stored answer was forgotten by hand, and ordergate locks audit will not show it",
			"who", who, "lock", report.Lock, "key", report.Key, "reason", reason, "error", err,
			runbook.Forgotten.Do("note elsewhere who did, when and why"))
	}
	return report, nil
}
