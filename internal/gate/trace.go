package gate

import (
	"context"
	"strings"
	"time"
)

// Tracer takes what the gate does as spans, when it has ended. Its methods must be quick, must not
// block, and are safe for concurrent use.
type Tracer interface {
	// Context returns ctx with the span of a traceparent, for the metrics of locks.
	Context(ctx context.Context, traceParent string) context.Context
	// Trace takes a span, whose texts are valid during the call.
	Trace(*Trace)
}

// Trace is a span of the gate with its parts.
type Trace struct {
	LoggedDecision
	TraceParent string // of the request; "": it has none
	Repeats     string // that of the call whose answer was given again; "": none, or unknown
	Failed      bool   // the call or ordergate is in trouble
	Span
	Parts []Span
}

// Span is a named time.
type Span struct {
	Name       string
	Start, End time.Time
}

// The names of spans.
const (
	SpanCheck  = "ordergate.check"  // a decision before the request goes on
	SpanSettle = "ordergate.settle" // a call with a lock
	SpanLearn  = "ordergate.learn"  // a new order is made known

	// Parts of SpanSettle.
	SpanWait      = "wait for lock"
	SpanForwarded = "forwarded"
	SpanRelease   = "release"
)

// TraceTo has the gate traced, before it is used.
func (g *Gate) TraceTo(t Tracer) { g.tracer = t }

// exemplar returns the ID of a sampled trace, for a metric; "": there is none.
func (g *Gate) exemplar(from *origin) string {
	if g.tracer == nil {
		return ""
	}
	id := from.trace()
	if id == "" || strings.IndexByte("13579bdf", from.parent[sizeOfTraceParent-1]) < 0 { // the lowest bit means sampled
		return ""
	}
	return id
}

// fails reports whether a verdict shows trouble, with the locks or with the call.
func (v Verdict) fails() bool { return v.IsTrouble() || v == VerdictLost || v == VerdictUnlocked }

// trace returns the span of the call until now, for a gate with a tracer.
func (c *Call) trace(d *Decision, name string) *Trace {
	now := c.gate.now()
	t := &Trace{
		LoggedDecision: c.logged(d), TraceParent: c.origin.parent, Repeats: c.repeats, Failed: d.Verdict.fails(),
		Span: Span{name, c.start, now},
	}
	if name != SpanSettle || !c.NeedsLock {
		return t
	}
	granted := c.grantedAt
	if granted.IsZero() {
		granted = now
	}
	t.Parts = append(make([]Span, 0, 3), Span{SpanWait, c.start, granted})
	if c.lease != nil && c.forwarded {
		end := now
		if c.completed > 0 {
			end = c.start.Add(c.completed)
		}
		t.Parts = append(t.Parts, Span{SpanForwarded, granted, end})
	}
	return t
}

// traceLearned traces that a new order was made known.
func (c *Call) traceLearned(l *learned) {
	if c.gate.tracer == nil {
		return
	}
	c.gate.tracer.Trace(&Trace{
		LoggedDecision: LoggedDecision{Rule: c.Rule(), Action: ActionCreate, Observed: c.Observed(), Offset: -1, Order: plain(l.id)},
		TraceParent:    c.origin.parent, Failed: l.err != nil, Span: Span{SpanLearn, l.start, l.end},
	})
}
