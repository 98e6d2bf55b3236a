package engine

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/health"
	"github.com/ordergate/ordergate/internal/locking"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/redisconn"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/wait"
)

// conditions returns the conditions of readiness. An unreachable Redis adds a reason, and the
// process stays ready: lookups continue, and settlements are refused. A full Redis makes the
// process not ready, as only an operator can repair it. Each configured source must have been
// readable once since the start, and each table must have been followed once. Later outages
// only add a reason. It blocks for a second at most, and no longer than ctx.
func (m *Engine) conditions(ctx context.Context, draining bool) []health.Condition {
	ctx, cancel := context.WithTimeout(ctx, redisconn.Timeout)
	defer cancel()
	list := []health.Condition{{Name: "serving", Ready: !draining}}
	if draining {
		list[0].Reason = "stopping"
	}
	rules := m.activeConfig().Rules
	if m.redis != nil { // first: it is the cause of others
		c := health.Condition{Name: "redis", Ready: true}
		if err := m.redis.Ping(ctx).Err(); err != nil {
			if c.Cause = redisconn.Explain(err).Error(); locking.Calls(rules, nil) != "" {
				c.Refuse(locking.Calls(rules, nil), c.Cause)
			} else {
				c.Reason = "Redis does not answer: " + c.Cause
			}
		} else if full := m.memory.Reason(); full != "" {
			c.Ready, c.Reason = false, full
		} else if found := m.eviction.Finding(); found.Text != "" {
			c.Ready, c.Reason = !found.Harmful, found.Text
		}
		list = append(list, c)
	}
	for name, unit := range m.filters {
		list = append(list, unit.Conditions(ctx, name)...)
		list = append(list, unit.verify.conditions()...)
	}
	list = append(list, m.lockers.Conditions(rules)...)
	list = append(list, m.requirements.conditions()...)
	if m.bodiesMissing.isRecent() {
		list = append(list, health.Condition{
			Name: "request bodies", Reason: "Envoy passes requests on without showing their bodies, and so without a lock: " +
				"set allow_mode_override: true, or request_body_mode: BUFFERED, in its ext_proc",
		})
	}
	if m.Gate().IsUnattached() {
		list = append(list, health.Condition{Name: "ext_proc", Reason: "requests that need ext_proc pass ext_authz, and none reaches it: " + unattached})
	}
	if m.attributesMissing.isRecent() {
		list = append(list, health.Condition{
			Name: "response attributes", Reason: "Envoy does not report the origin of answers, so that the order of each settlement stays locked for on_unknown_outcome.hold: " +
				"set response_attributes: [response.code_details, upstream.request_attempt_count] in its ext_proc",
		})
	}
	if m.endsMissing.isRecent() {
		list = append(list, health.Condition{
			Name: "response ends", Reason: "Envoy does not show how answers to settlements end, so that the order of each stays locked for on_unknown_outcome.hold: " +
				"set allow_mode_override: true, or response_body_mode: STREAMED, in its ext_proc, and have no decompressor between it and the router",
		})
	}
	list = append(list, m.confirmers.conditions()...)
	return append(list, m.active.condition())
}

// awaitRedis logs a Redis that does not answer at the start, which no settlement has met yet.
func (m *Engine) awaitRedis(ctx context.Context) {
	for logged := false; ; logged = true {
		err := m.redis.Ping(ctx).Err()
		switch {
		case err == nil && logged:
			m.log.Info("Redis answers now")
			return
		case err == nil:
			return
		case !logged && ctx.Err() == nil:
			m.log.Warn("Redis does not answer at the start", "error", redisconn.Explain(err),
				runbook.LocksFail.Do("look at Redis and the way to it, and at redis in the file; ordergate tries again"))
		}
		if wait.For(ctx, time.Second) != nil {
			return
		}
	}
}

// recentEvent records when an event last occurred. In the zero value it never did. It is safe
// for concurrent use.
type recentEvent struct{ last atomic.Int64 } // in ns since 1970

// recentTime is how long an event makes the process not ready. No message reports that Envoy's
// configuration was corrected.
const recentTime = 5 * time.Minute

func (l *recentEvent) isRecent() bool {
	last := l.last.Load()
	return last != 0 && time.Since(time.Unix(0, last)) < recentTime
}

func (l *recentEvent) note() { l.last.Store(time.Now().UnixNano()) }

func (l *recentEvent) forget() { l.last.Store(0) }

// unattached says what has to be done so that requests reach ext_proc.
const unattached = "have Envoy's filter ext_proc stand behind ext_authz, on the routes of all rules that settle, create or store answers, those by GET included"

// watchAttachment logs that requests of a rule do not reach ext_proc, until ctx ends.
func (m *Engine) watchAttachment(ctx context.Context) {
	const path, over = "the backend gets them with the path /.ordergate/not-bracketed", "no more requests fail to reach ext_proc"
	none, few, unlocked := make(map[string]*recurring.Problem), make(map[string]*recurring.Problem), make(map[string]*recurring.Problem) // by rule
	note := func(problems map[string]*recurring.Problem, rule string, level slog.Level, comes, todo string) {
		if problems[rule] == nil {
			problems[rule] = recurring.New(m.log.With("rule", rule), level, comes, over, runbook.Attachment.Do(todo))
		}
		problems[rule].Note()
	}
	for range wait.Every(ctx, time.Second) {
		m.Gate().Unattached(func(rule string, isFew bool) {
			if isFew {
				note(few, rule, slog.LevelWarn, "requests have passed ext_authz, and have not reached ext_proc. Unless their clients have left, "+path, unattached)
			} else {
				note(none, rule, slog.LevelError, "requests of a rule pass ext_authz, and none reaches ext_proc: "+path, unattached)
			}
		})
		m.Gate().Unlocked(func(rule string) {
			note(unlocked, rule, slog.LevelWarn, "requests of a rule pass listen.http, and none reaches ext_proc: the backend gets them without a lock",
				"send the requests of all rules that settle, lock or store answers through an Envoy with ext_proc")
		})
	}
	for _, problems := range []map[string]*recurring.Problem{none, few, unlocked} {
		for _, p := range problems {
			p.Drop()
		}
	}
}

// Seal returns what hides requests between ext_authz and ext_proc, and what is to be called for one
// that it cannot reveal. Its key is kept until Close.
func (m *Engine) Seal() (seal *gate.Seal, renew func(context.Context)) {
	m.seal.once.Do(func() { m.background(m.seal.run) })
	return m.seal.Seal, m.seal.Renew
}

// BodyUnseen records that Envoy forwarded a request without sending the body that ordergate had
// requested. It is safe for concurrent use.
func (m *Engine) BodyUnseen() { m.bodiesMissing.note() }

// AttributesMissing records that Envoy sent an answer without the attributes of its outcome. It
// is safe for concurrent use.
func (m *Engine) AttributesMissing() { m.attributesMissing.note() }

// EndsMissing records that a settlement ended before Envoy showed the end of its answer. It is safe
// for concurrent use.
func (m *Engine) EndsMissing() { m.endsMissing.note() }

// EndsShown records that Envoy shows the ends of answers: those that were missing were of clients that
// left. It is safe for concurrent use.
func (m *Engine) EndsShown() { m.endsMissing.forget() }
