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

// NeedsTraceParent reports whether decisions are logged or traced: then the adapter sets the TraceParent of
// requests.
func (g *Gate) NeedsTraceParent() bool { return g.decisions != nil || g.tracer != nil }

// wants reports whether a decision is to be logged. Without a log it costs nothing.
func (g *Gate) wants(d *Decision) bool {
	return g.decisions != nil && g.decisions.Wants(d.Rule, d.Action, d.Verdict)
}

// origin names a request to those who search logs and traces.
type origin struct {
	request, parent string // x-request-id, and traceparent
	logged          bool   // the log wants the decision on a request that no call follows
}

// headerTraceParent is the header of W3C's Trace Context.
const headerTraceParent = "traceparent"

const sizeOfTraceParent = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")

// originOf returns the IDs of a request, which it shares memory with.
func originOf(req *order.Request) origin {
	parent, lines := headerLines(req.Header, headerTraceParent)
	if lines != 1 || req.TraceParent != "" {
		parent = req.TraceParent
	}
	parent = parent[:min(len(parent), sizeOfTraceParent)] // what a later version has behind it means nothing here
	return origin{request: requestID(req.Header), parent: parent}
}

// trace returns the trace ID, "" if there is none.
func (o *origin) trace() string {
	const version, trace = len("00-"), 32
	if len(o.parent) < sizeOfTraceParent || o.parent[version-1] != '-' || o.parent[version+trace] != '-' {
		return ""
	}
	id := o.parent[version : version+trace]
	if strings.Trim(id, "0123456789abcdef") != "" || strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

func (o origin) clone() origin {
	return origin{strings.Clone(o.request), strings.Clone(o.parent), o.logged}
}

// originFor returns the origin of a request on which a decision is made, if it is logged or traced.
func (g *Gate) originFor(d *Decision, req *order.Request) (from origin) {
	logged := g.wants(d)
	if logged || g.tracer != nil {
		from = originOf(req)
	}
	from.logged = logged
	return from
}

// decided counts, logs and traces a decision on a request that no call follows.
func (g *Gate) decided(d *Decision, from origin, start, end time.Time) {
	g.record.Decided(d.Rule, d.Action, d.Verdict, d.Observed, end.Sub(start), g.exemplar(&from))
	if !from.logged && g.tracer == nil {
		return
	}
	l := g.logged(d, &from)
	l.Order = plain(d.ID)
	g.write(&l, from, start, end)
}

func (g *Gate) write(l *LoggedDecision, from origin, start, end time.Time) {
	if from.logged {
		g.decisions.Write(l)
	}
	if g.tracer != nil {
		g.tracer.Trace(&Trace{LoggedDecision: *l, TraceParent: from.parent, Failed: l.Verdict.fails(), Span: Span{SpanCheck, start, end}})
	}
}

func (g *Gate) logged(d *Decision, from *origin) LoggedDecision {
	return LoggedDecision{
		Rule: g.policies[d.Rule].Rule.Name, Action: d.Action, Verdict: d.Verdict, Observed: d.Observed, Reason: d.reasonName(), Offset: d.Offset,
		Request: plain(from.request), Trace: from.trace(), Waited: d.Waited, Status: g.statusOf(d),
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
	d := Decision{Rule: -1, Verdict: v}
	from := g.originFor(&d, req)
	if !from.logged && g.tracer == nil {
		return
	}
	l := LoggedDecision{Verdict: v, Reason: reason, Offset: -1, Status: status, Request: plain(from.request), Trace: from.trace()}
	now := g.now()
	g.write(&l, from, now, now)
}

// log logs the call's decision, or that of its end.
func (c *Call) log(d *Decision) {
	if c.gate.wants(d) {
		l := c.logged(d)
		c.gate.decisions.Write(&l)
	}
}

// report is log, and traces the call until now.
func (c *Call) report(d *Decision, span string) {
	c.log(d)
	if c.gate.tracer != nil {
		c.gate.tracer.Trace(c.trace(d, span))
	}
}

func (c *Call) logged(d *Decision) LoggedDecision {
	l := c.gate.logged(d, &c.origin)
	ids := c.lockRequest.IDs
	switch {
	case c.learnedID != "":
		l.Order = plain(c.learnedID)
	case len(ids) > 0:
		l.Order = plain(ids[0])
	default:
		l.Order = plain(d.ID)
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
	case c.policy.Create != nil && !c.mayCreate && !d.Refused && c.stage != atOpen:
		l.Outcome = c.create.answer.Outcome().String()
	}
	return l
}
