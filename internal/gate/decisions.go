package gate

import (
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// DecisionLog takes each decision of all adapters once: of a call with a lock when it ends, and of a
// create when its order is learned. Every request calls it: its methods must be quick, must not
// block, and are safe for concurrent use.
type DecisionLog interface {
	// Wants reports whether a decision is to be written. The rule is an index, -1 for none.
	Wants(rule int, a Action, v Verdict) bool
	// Write takes a decision, whose texts are valid during the call.
	Write(*LoggedDecision)
}

// LoggedDecision is a decision for a [DecisionLog]. Texts of clients are as [Metadata] has them.
type LoggedDecision struct {
	Rule           string // "": none
	Action         Action
	Verdict        Verdict
	Observed       bool
	Reason         string // "": none
	Offset         int    // see [Decision.Offset]
	Order          string // the first one; "": unknown
	Orders         int    // in all, if there are several
	Request, Trace string // x-request-id, and the trace ID of traceparent; "": none
	Waited, Held   time.Duration
	Key, Fence     string // of the locks; "": none
	Outcome        string // "": not forwarded by a call that the gate follows
	Status         int    // of the answer; 0: unknown
}

// Acted reports whether the backend may have acted on a call that the gate follows.
func (d *LoggedDecision) Acted() bool {
	return d.Outcome != "" && d.Outcome != OutcomeNotForwarded.String()
}

// LogDecisionsTo has decisions logged, before the gate is used.
func (g *Gate) LogDecisionsTo(l DecisionLog) { g.decisions = l }

// LogsDecisions reports whether decisions are logged: then the adapter sets the TraceParent of requests.
func (g *Gate) LogsDecisions() bool { return g.decisions != nil }

// wants reports whether a decision is to be logged. Without a log it costs nothing.
func (g *Gate) wants(d *Decision) bool {
	return g.decisions != nil && g.decisions.Wants(d.Rule, d.Action, d.Verdict)
}

// origin names a request to those who search logs.
type origin struct{ request, trace string }

// headerTraceParent is the header of W3C's Trace Context.
const headerTraceParent = "traceparent"

// originOf returns the IDs of a request, which it shares memory with.
func originOf(req *order.Request) origin {
	parent, times := "", 0
	for cursor := 0; req.Header != nil; {
		name, value, next := req.Header.Next(cursor)
		if next < 0 {
			break
		}
		if name == headerTraceParent {
			parent = value
			times++
		}
		cursor = next
	}
	if times != 1 || req.TraceParent != "" {
		parent = req.TraceParent
	}
	return origin{requestID(req.Header), traceIn(parent)}
}

// traceIn returns the trace ID in a traceparent, "" if there is none.
func traceIn(parent string) string {
	const version, trace, rest = len("00-"), 32, len("-0123456789abcdef-01")
	if len(parent) < version+trace+rest || parent[version-1] != '-' || parent[version+trace] != '-' {
		return ""
	}
	id := parent[version : version+trace]
	if strings.Trim(id, "0123456789abcdef") != "" || strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

func (o origin) clone() origin { return origin{strings.Clone(o.request), strings.Clone(o.trace)} }

// logDecision logs a decision on a request that no call follows.
func (g *Gate) logDecision(d *Decision, from origin) {
	l := g.logged(d, from)
	l.Order = plain(d.ID)
	g.decisions.Write(&l)
}

func (g *Gate) logged(d *Decision, from origin) LoggedDecision {
	return LoggedDecision{
		Rule: g.policies[d.Rule].Rule.Name, Action: d.Action, Verdict: d.Verdict, Observed: d.Observed, Reason: d.reasonName(), Offset: d.Offset,
		Request: plain(from.request), Trace: from.trace, Waited: d.Waited, Status: g.statusOf(d),
	}
}

// statusOf returns the status with which a decision answers a request, 0 if the backend does.
func (g *Gate) statusOf(d *Decision) int {
	reply, _, ok := g.policies[d.Rule].Reply(d.Refusal())
	switch {
	case d.Observed || !ok:
		return 0
	case d.GRPC:
		return 200 // by Envoy
	}
	return reply.Status
}

// Reasons of [Gate.LogUnruled].
const (
	ReasonForged   = "forged_header" // a server may take a header for one of ordergate's
	ReasonUnsealed = "not_sealed"    // ext_authz has not seen the request
	ReasonFault    = "fault"         // of ordergate
)

// LogUnruled logs that an adapter refuses a request by itself, before any rule decides.
func (g *Gate) LogUnruled(v Verdict, reason string, status int, req *order.Request) {
	if d := (Decision{Rule: -1, Verdict: v}); g.wants(&d) {
		from := originOf(req)
		g.decisions.Write(&LoggedDecision{Verdict: v, Reason: reason, Offset: -1, Status: status, Request: plain(from.request), Trace: from.trace})
	}
}

// log logs the call's decision, or that of its end.
func (c *Call) log(d *Decision) {
	if !c.gate.wants(d) {
		return
	}
	l := c.gate.logged(d, c.origin)
	ids := c.lockRequest.IDs
	switch id := c.learnedID.Load(); {
	case id != nil:
		l.Order = plain(*id)
	case len(ids) > 0:
		l.Order = plain(ids[0])
	case d.ID != "":
		l.Order = plain(d.ID)
	default:
		l.Order = plain(c.namedID)
	}
	if len(ids) > 1 {
		l.Orders = len(ids)
	}
	if c.status != 0 {
		l.Status = c.status
	}
	if c.NeedsLock {
		l.Key = c.Key()
	}
	if c.lease != nil {
		l.Fence, l.Held = FenceText(c.lease), c.gate.now().Sub(c.grantedAt)
	}
	switch {
	case c.NeedsLock && (c.lease != nil || !c.policy.Observe):
		l.Outcome = c.bracket.outcome.String()
	case c.policy.Create != nil && !c.mayCreate && !d.Refused:
		l.Outcome = c.answer.Outcome().String()
	}
	c.gate.decisions.Write(&l)
}
