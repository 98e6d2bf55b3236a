package gate

import (
	"cmp"
	"strings"

	"github.com/ordergate/ordergate/internal/order"
)

// Open matches a request that is about to be forwarded. Its call begins with the event [Opened]. It
// keeps nothing of the request's memory.
func (g *Gate) Open(req order.Request) *Call {
	var m order.Match
	found := g.match(&req, order.Found{}, &m)
	return g.open(&req, &m, found, false)
}

// withBody returns the call of the request with the body that this one needs.
func (c *Call) withBody(req *order.Request) *Call {
	var m order.Match
	c.gate.match(req, c.rule, &m)
	whole := c.gate.open(req, &m, order.Found{}, false)
	whole.lockRequest.Client = c.lockRequest.Client
	if c.BodyEndOnly {
		whole.bodyIDs = nil // ext_authz has seen them too
	}
	return whole
}

func (g *Gate) open(req *order.Request, m *order.Match, found order.Found, judged bool) *Call {
	c := &Call{gate: g, rule: found, Decision: Decision{Rule: m.Rule}}
	if m.Rule < 0 {
		return c
	}
	c.start, c.policy = g.now(), g.policy(m, req)
	c.Decision = Decision{Rule: m.Rule, Action: c.policy.action(), Observed: c.policy.Observe, GRPC: IsGRPC(req), Offset: m.Offset}
	if c.policy.Create != nil {
		c.create = new(createCall)
	}
	if g.NeedsTraceParent() {
		c.origin = originOf(req).clone()
	}
	if looksUp := c.policy.Lookup != nil || c.policy.dedup() != nil; looksUp && !judged && m.Result == order.Named &&
		req.BodyState == order.BodyComplete {
		c.bodyIDs, c.counted = cloneIDs(m), hasVerdict(req.Header, VerdictMaybe)
	}
	switch {
	case c.policy.HasCalls():
		c.line = lineOf(req)
	case c.bodyIDs != nil, m.Result == order.NeedsBody:
		c.line, c.requestID = lineOf(req), strings.Clone(requestID(req.Header))
	}
	// Screen gives the verdict on a lookup. A reload may have replaced its rules since. So Open refuses
	// unreadable requests by its own rules.
	switch refused := c.rejectUnreadable(m, req, judged); {
	case refused:
	case m.Screening:
		// The adapter reads bodies for the bracket without any setup, so screen lookups here too.
		c.NeedsBody = m.Result == order.NeedsBody
	case c.policy.HasCalls():
		c.prepare(m, req)
	case m.Result == order.NeedsBody:
		c.NeedsBody = !judged
	default:
		if id := c.policy.Lookup.watchedID(m, req.Method); id != "" {
			c.NeedsAnswer = true
			c.lookup = &lookupCall{id: strings.Clone(id), sampled: !c.policy.Observe && (judged || hasVerdict(req.Header, VerdictUnknown))}
		}
	}
	return c
}

// prepare finds out what a call needs that creates or has a lock.
func (c *Call) prepare(m *order.Match, req *order.Request) {
	c.NeedsAnswer, c.reads = true, isRead(req.Method)
	if !c.policy.Observe {
		c.accept = acceptAll(req.Header)
	}
	if c.create != nil {
		c.mayCreate, c.create.answer = true, Response{Attempts: -1, AttemptHeader: -1}
		if m.Result == order.Named {
			c.Decision.ID, c.create.namedText = strings.Clone(m.ID), strings.Clone(cmp.Or(m.Text, m.ID))
		}
		c.create.idPrefix = strings.Clone(m.Prefix)
	}
	presented, requestID, size := leaseAndRequestID(req.Header)
	name := c.policy.Rule.Name
	purpose := name + " " + requestID // a copy, for both
	c.requestID, c.lockRequest.Purpose = purpose[len(name)+1:], strings.TrimSuffix(purpose, " ")
	switch {
	case m.Result == order.NeedsBody:
		c.NeedsBody = true
	case c.policy.isIncomplete(m, req):
		c.NeedsBody, c.BodyEndOnly = true, true
	case c.policy.HasLock():
		c.prepareLocks(m, req, presented, size)
	}
}

// prepareLocks finds out which locks the call needs. It refuses a request whose locks cannot be
// named, or not be shown to the backend. Presented is the lease that it presents, and has the size of the
// headers that it keeps.
func (c *Call) prepareLocks(m *order.Match, req *order.Request, presented string, has headerSize) {
	if !c.policy.Observe { // in observe mode no client receives a lease that it could present
		c.lockRequest.PresentedLease = strings.Clone(presented)
	}
	if m.Result == order.Named {
		c.lockRequest.IDs = cloneIDs(m)
		c.Decision.ID = c.lockRequest.IDs[0]
	}
	c.limitID = strings.Clone(m.Limit)
	why := c.prepareOnce(m, req)
	if c.once != nil && c.once.order != nil && len(c.once.order.Forget) == 0 {
		once := c.once.order
		c.lockRequest.Stored, c.lockRequest.Meanwhile, c.lockRequest.For = c.storedName(once), once.Meanwhile, once.For
	}
	if why == order.NoReason {
		why = c.prepareConditions(req.Header)
	}
	if why == order.NoReason && c.hasOrder() && !c.policy.Observe && !c.fitsEnvoy(has) {
		why = order.HeadersTooLarge
	}
	if why != order.NoReason {
		c.once = nil
		c.gate.refuse(c.policy, why, &c.Decision)
		c.decide(c.Decision.Verdict)
		if c.Decision.Refused {
			c.NeedsAnswer = false
			return
		}
	}
	c.NeedsLock = c.hasOrder() || c.hasKey()
	if !c.NeedsLock && c.policy.Create == nil {
		c.NeedsAnswer = false // there is nothing to lock
	}
}

// rejectUnreadable refuses and counts a request whose order cannot be determined. In
// observe mode it passes the request, and counts it unless ext_authz has done so.
func (c *Call) rejectUnreadable(m *order.Match, req *order.Request, judged bool) bool {
	if !isUnreadable(m) {
		return false
	}
	markRefused(c.policy, m.Reason, &c.Decision)
	if c.Decision.Refused {
		c.line, c.requestID = lineOf(req), strings.Clone(requestID(req.Header))
	}
	if c.Decision.Refused || !judged && !hasVerdict(req.Header, c.Decision.Verdict) {
		c.gate.record.Refused(m.Rule, m.Reason)
		c.decide(c.Decision.Verdict)
	}
	return c.Decision.Refused
}

// hasVerdict reports whether ext_authz has already set this verdict on the request.
func hasVerdict(header order.Header, v Verdict) bool {
	for name, value := range order.All(header) {
		if name == HeaderVerdict {
			return value == v.String()
		}
	}
	return false
}

// MaxSettlement bounds the body of a settlement, in bytes. It is Envoy's default buffer
// size.
const MaxSettlement = 1 << 20

// Match finds the rule of a request. What a rule in observe mode cannot read may be a request of an
// enforced rule that takes locks, and is its then: /orders/42%2Fsettle of a lookup.
func (g *Gate) Match(req order.Request) (m order.Match) {
	g.find(&req, order.Found{}, &m)
	return m
}

// find is Match. It goes on with a rule that was found without the body, and returns the one that it
// finds.
func (g *Gate) find(req *order.Request, known order.Found, m *order.Match) (found order.Found) {
	if known != (order.Found{}) {
		g.table.MatchBody(req, known, m)
	} else {
		found = g.table.Find(req, m)
	}
	if m.Rule >= 0 && g.policies[m.Rule].Observe && isUnreadable(m) && g.matchLocking(req, m) {
		return order.Found{}
	}
	return found
}

// match is find. It refuses a settlement whose body is too large to buffer.
func (g *Gate) match(req *order.Request, known order.Found, m *order.Match) order.Found {
	found := g.find(req, known, m)
	if m.Rule >= 0 && (m.Result == order.Named || g.policies[m.Rule].Once != nil) && !isUnreadable(m) &&
		g.policy(m, req).Locks() && req.Size() > MaxSettlement {
		m.Result, m.Reason, m.Offset = order.TooLarge, order.BodyTooLarge, -1
	}
	return found
}

// matchLocking is Match by the enforced rules that take locks. It returns false if none has the request.
func (g *Gate) matchLocking(req *order.Request, m *order.Match) bool {
	if g.locking == nil {
		return false
	}
	var l order.Match
	if g.locking.Find(req, &l); l.Rule < 0 {
		return false
	}
	*m = l
	m.Rule = g.lockingRules[l.Rule]
	return true
}

// isIncomplete reports whether the lock has to wait for the rest of the request. Otherwise
// a client could send the rest after its lease has ended, while another call holds the
// lock.
func (p *Policy) isIncomplete(m *order.Match, req *order.Request) bool {
	return (p.Locks() || p.readsBody()) && (m.Result == order.Named || p.Once != nil) && req.BodyState == order.BodyUnseen
}

// action is that of the rule's calls.
func (p *Policy) action() Action {
	switch {
	case p.Create != nil:
		return ActionCreate
	case p.Settle != nil:
		return ActionSettle
	case p.Once != nil:
		return ActionOnce
	default:
		return ActionLookup
	}
}
