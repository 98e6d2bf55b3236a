package gate

import (
	"context"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// Screen judges a request before it goes to the backend. It blocks only if a filter does
// not hold its orders in memory, or if a create has to be confirmed. Only then it allocates, for a request
// without a body.
func (g *Gate) Screen(ctx context.Context, req order.Request) Decision {
	var r TryResult
	if g.judge(&req, order.Found{}, false, &r); r.Pending != nil {
		return r.Pending.Resolve(ctx)
	}
	return r.Decision
}

// TryResult is a judgement that did not wait. It may be incomplete.
type TryResult struct {
	Decision  Decision
	NeedsBody bool           // call TryScreenBody
	Pending   *PendingLookup // memory does not hold the answer; nil: the judgement is complete
	Found     order.Found    // for TryScreenBody

	gate  *Gate
	match order.Match // with Pending it keeps nothing of the request's memory
}

// PendingLookup is a judgement that takes time. It keeps nothing of the request's memory.
type PendingLookup struct {
	gate     *Gate
	policy   *Policy
	decision Decision
	ids      []string
	watched  bool // see Lookup.watchedID
	start    time.Time
	origin   origin // for the decision log
}

// TryScreen is Screen for an adapter that must not block.
func (g *Gate) TryScreen(req order.Request) (r TryResult) {
	g.judge(&req, order.Found{}, true, &r)
	return r
}

// MayLock reports whether the rule of a request, as far as it can be known without its body, has it wait for a
// lock.
func (g *Gate) MayLock(req order.Request) bool {
	m := g.table.Match(req)
	return m.Rule >= 0 && (g.policies[m.Rule].Locks() || isUnreadable(&m) && g.mayLock(&m, &req))
}

// TryScreenBody is TryScreen with the body of a request that needs it.
func (g *Gate) TryScreenBody(req order.Request, found order.Found) (r TryResult) {
	g.judge(&req, found, true, &r)
	return r
}

// Open is [Gate.Open] for the judged request. It does not count the decision again.
func (r *TryResult) Open(req order.Request) *Call {
	return r.gate.open(&req, &r.match, order.Found{}, true)
}

// judge judges a request, as far as it can without waiting. Whole: the adapter shows all of a body that
// the gate needs, and asks for it.
func (g *Gate) judge(req *order.Request, found order.Found, whole bool, r *TryResult) {
	start := g.now()
	m := &r.match
	r.gate, r.Found = g, g.match(req, found, m)
	p := g.begin(m, req, &r.Decision)
	d := &r.Decision
	switch {
	case d.Verdict != VerdictNone:
	case whole && m.Rule >= 0 && m.Result == order.NeedsBody, whole && p == nil && d.Rule >= 0 && g.policy(m, req).isIncomplete(m, req):
		r.NeedsBody = true
		return
	case p == nil:
		return
	case whole && (p.Lookup == nil || p.looksUpNothing(m)) && p.isIncomplete(m, req): // its lock, and its second decision, come after that
		r.NeedsBody = true
		return
	case p.looksUpNothing(m):
	case p.Lookup == nil && m.ID != "" && p.Create.Dedup.Filter.MayContain(m.ID) != presence.Absent:
		r.pend(p, req, start)
		return
	case p.Lookup == nil: // the order is certainly new, the backend chooses it, or asksByBody asks about it
		p.setVerdict(d, VerdictNone)
	case m.ID == "" && m.Result == order.NeedsBody:
		d.Verdict = VerdictUnknown // Call.onScreened counts the verdict, if an adapter opens a call
		return
	default:
		a := p.Lookup.mayContain(m)
		if (a != presence.Absent || p.Observe) && whole && p.isIncomplete(m, req) {
			r.NeedsBody = true
			return
		}
		if a == presence.NotInMemory {
			r.pend(p, req, start)
			return
		}
		p.setLookedUp(d, verdictOf(a), p.Lookup.watchedID(m, req.Method) != "")
	}
	d.GRPC = d.Refused && IsGRPC(req)
	g.decided(d, g.originFor(d, req), start, g.now())
}

// pend leaves a judgement to what takes time.
func (r *TryResult) pend(p *Policy, req *order.Request, start time.Time) {
	m := &r.match
	r.Decision.GRPC = IsGRPC(req) // it may be refused, without the request
	watched := p.Lookup.watchedID(m, req.Method) != ""
	ids := cloneIDs(m)
	m.ID, m.Limit, m.Text, m.Prefix = ids[0], strings.Clone(m.Limit), strings.Clone(m.Text), strings.Clone(m.Prefix)
	if len(m.Batch) > 0 {
		m.Batch = ids
	}
	r.Decision.ID = m.ID
	r.Pending = &PendingLookup{gate: r.gate, policy: p, decision: r.Decision, ids: ids, watched: watched, start: start}
	if r.gate.NeedsTraceParent() {
		r.Pending.origin = originOf(req).clone()
	}
}

// Resolve asks the filter, or confirms a create, and returns the decision. It blocks until
// ctx ends at most.
func (a *PendingLookup) Resolve(ctx context.Context) Decision {
	if l := a.policy.Lookup; l != nil {
		a.policy.setLookedUp(&a.decision, l.lookUp(ctx, a.ids), a.watched)
	} else {
		a.policy.setVerdict(&a.decision, a.policy.Create.Dedup.Decide(ctx, a.ids[0]))
	}
	d := &a.decision
	end := a.gate.now()
	d.Waited, a.origin.logged = end.Sub(a.start), a.gate.wants(d)
	a.gate.decided(d, a.origin, a.start, end)
	return *d
}

// cloneIDs returns copies of the IDs that a request names.
func cloneIDs(m *order.Match) []string {
	if len(m.Batch) == 0 {
		return []string{strings.Clone(m.ID)}
	}
	ids := make([]string, len(m.Batch))
	for i, id := range m.Batch {
		ids[i] = strings.Clone(id)
	}
	return ids
}

// begin starts a judgement. The policy is nil if nothing is decided yet. With a verdict,
// the judgement is complete.
func (g *Gate) begin(m *order.Match, req *order.Request, d *Decision) *Policy {
	if m.Rule < 0 || m.Screening && m.Result == order.NeedsBody {
		d.Rule = -1 // or the rule depends on a body that was not read yet
		return nil
	}
	p := g.policy(m, req)
	action := p.action()
	if p.Lookup != nil { // a rule looks an order up before it settles it
		action = ActionLookup
	}
	*d = Decision{Rule: m.Rule, Action: action, Observed: p.Observe, ID: m.ID, Offset: m.Offset}
	if isUnreadable(m) {
		g.refuse(p, m.Reason, d)
	} else if p.Lookup == nil && p.dedup() == nil {
		return nil
	}
	return p
}

// looksUpNothing reports whether a request of a lookup names no order, and needs to name none.
func (p *Policy) looksUpNothing(m *order.Match) bool {
	return p.Lookup != nil && m.Result == order.Anonymous
}

// setLookedUp sets the verdict on a lookup. It lets a sample of the refusals go on to the backend, as
// unknown, if its answer would show whether the order exists.
func (p *Policy) setLookedUp(d *Decision, v Verdict, watched bool) {
	if v == VerdictAbsent && watched && p.Lookup.Verify != nil && !p.HasCalls() {
		d.Verified = p.Observe || p.Lookup.Verify.Sample()
		if d.Verified && !p.Observe {
			v = VerdictUnknown
		}
	}
	p.setVerdict(d, v)
}

func (p *Policy) setVerdict(d *Decision, v Verdict) {
	refuses := v == VerdictAbsent || v == VerdictDuplicate || v == VerdictUnavailable
	d.Verdict, d.Refused = v, refuses && !p.Observe
}

// asksByBody reports whether a filter or a table is asked about the orders that the request's body names:
// ext_authz may not have seen it. With a lock, a create is decided under the lock.
func (c *Call) asksByBody() bool {
	return len(c.bodyIDs) > 0 && !c.Decision.Refused && (c.policy.Lookup != nil || c.policy.dedup() != nil && !c.NeedsLock)
}

// screen asks them. It blocks as Screen does, and changes nothing of the call.
func (c *Call) screen(ctx context.Context) Verdict {
	if l := c.policy.Lookup; l != nil {
		return l.lookUp(ctx, c.bodyIDs)
	}
	return c.policy.dedup().Decide(ctx, c.bodyIDs[0])
}

// onScreened does what Screen does with the verdict, and goes on.
func (c *Call) onScreened(v Verdict) Step {
	if c.stage != atScreen {
		return Step{}
	}
	p, d := c.policy, c.Decision
	d.ID = c.bodyIDs[0]
	var counts bool // ext_authz has not counted that it goes on
	if p.Lookup != nil {
		d.Action = ActionLookup
		p.setLookedUp(&d, v, c.lookup != nil)
		if d.Verified {
			c.lookup.sampled = true
		}
		counts = !c.counted || d.Verdict != VerdictMaybe
	} else {
		p.setVerdict(&d, v)
		counts = d.Verdict != VerdictNone && d.Verdict != VerdictUnknown
	}
	if !counts {
		return c.begin()
	}
	d.Waited = c.gate.now().Sub(c.start)
	c.gate.record.Decided(d.Rule, d.Action, d.Verdict, d.Observed, d.Waited, c.gate.exemplar(&c.origin))
	c.report(&d, SpanCheck)
	if c.screened = &d; d.Refused {
		c.Decision = d
	}
	return c.begin()
}

// mayContain asks the filter's memory. A list is absent if all of its orders are. Without
// an ID the answer is Unknown.
func (l *Lookup) mayContain(m *order.Match) presence.Answer {
	if m.ID == "" {
		return presence.Unknown
	}
	answer := l.Filter.MayContain(m.ID)
	for i := 1; i < len(m.Batch) && (answer == presence.Absent || answer == presence.NotInMemory); i++ {
		if a := l.Filter.MayContain(m.Batch[i]); a != presence.Absent {
			answer = a
		}
	}
	return answer
}

// lookUp asks the filter, and blocks if memory does not hold the orders.
func (l *Lookup) lookUp(ctx context.Context, ids []string) Verdict {
	answer := presence.Absent
	for i := 0; i < len(ids) && answer == presence.Absent; i++ {
		answer = l.Filter.Query(ctx, ids[i])
	}
	return verdictOf(answer)
}

// isUnreadable reports whether the order of a request cannot be determined.
func isUnreadable(m *order.Match) bool {
	return m.Result == order.Invalid || m.Result == order.Ambiguous || m.Result == order.TooLarge
}

// refuse sets and counts the verdict on a request that is refused for a reason.
func (g *Gate) refuse(p *Policy, why order.Reason, d *Decision) {
	markRefused(p, why, d)
	g.record.Refused(d.Rule, why)
}

func markRefused(p *Policy, why order.Reason, d *Decision) {
	d.Verdict, d.Refused, d.Reason = verdictFor(why), !p.Observe, why
}

func verdictOf(a presence.Answer) Verdict {
	switch a {
	case presence.Absent:
		return VerdictAbsent
	case presence.Maybe:
		return VerdictMaybe
	default:
		return VerdictUnknown
	}
}
