package gate

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

const (
	// keptRefusals are kept of each kind: a flood pushes out nothing else.
	keptRefusals = 100
	// maxLine bounds the kept part of a request line, and maxRefusedID that of an ID, in bytes.
	maxLine, maxRefusedID = 512, 256
)

// RecentRefusals keeps the last refusals of all adapters, for operators. It keeps no header but the
// request's ID, and no body. It is safe for concurrent use.
type RecentRefusals struct {
	mu    sync.Mutex
	rings [refusalKinds]struct {
		entries [keptRefusals]refusal
		count   int // in all
	}
}

// RefusalKind says why a request was refused.
type RefusalKind int

// The kinds of refusals.
const (
	RefusedFaulty RefusalKind = iota // the request cannot be read, or is ambiguous
	RefusedOther                     // a lock, a condition, an earlier call or Redis has decided
	RefusedAbsent                    // there is no such order
	refusalKinds
)

// refusal is an entry, whose memory is used again.
type refusal struct {
	at                     time.Time
	rule                   string
	verdict                Verdict
	reason                 order.Reason
	offset                 int
	line, orderID, request []byte
}

// RecentRefusal is one of [RecentRefusals].
type RecentRefusal struct {
	At      time.Time
	Rule    string
	Verdict Verdict
	Reason  order.Reason // order.NoReason: the filter or a lock has decided
	Offset  int          // see [Decision.Offset]
	Line    string       // method and target, of which the end may be missing; "": unknown
	Cut     bool         // the end of Line is missing
	Order   string       // "": unknown
	Request string       // the ID that Envoy gave it; "": none
}

// note keeps a refusal, unless another one is noted at the same moment: it never waits.
func (r *RecentRefusals) note(rule string, d *Decision, method, target, orderID, request string) {
	if r == nil || !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	kind := RefusedOther
	switch {
	case d.Verdict == VerdictAbsent:
		kind = RefusedAbsent
	case d.Reason != order.NoReason:
		kind = RefusedFaulty
	}
	ring := &r.rings[kind]
	e := &ring.entries[ring.count%keptRefusals]
	ring.count++
	e.at, e.rule, e.verdict, e.reason, e.offset = time.Now(), rule, d.Verdict, d.Reason, d.Offset
	e.line = e.line[:0]
	if target != "" {
		e.line = append(append(append(e.line, method[:min(len(method), maxLine)]...), ' '), target[:min(len(target), maxLine+1)]...)
	}
	e.orderID = append(e.orderID[:0], orderID[:min(len(orderID), maxRefusedID)]...)
	e.request = append(e.request[:0], request...)
}

// List returns the refusals of a kind, the newest first.
func (r *RecentRefusals) List(kind RefusalKind) []RecentRefusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	ring := &r.rings[kind]
	list := make([]RecentRefusal, min(ring.count, keptRefusals))
	for i := range list {
		e := &ring.entries[(ring.count-1-i)%keptRefusals]
		line := e.line[:min(len(e.line), maxLine)]
		list[i] = RecentRefusal{e.at, e.rule, e.verdict, e.reason, e.offset, string(line), len(line) < len(e.line), string(e.orderID), string(e.request)}
	}
	return list
}

// ReportTo has refused requests kept, before the gate is used.
func (g *Gate) ReportTo(r *RecentRefusals) { g.refusals = r }

// ReportRefused keeps a refused request for operators, and logs it at debug level. Otherwise it costs
// next to nothing: ordergate exists to refuse floods, and must not log each refusal. Every adapter
// calls it for each request that it refuses without a [Call].
func (g *Gate) ReportRefused(log *slog.Logger, d *Decision, req *order.Request) {
	debug, rule, request := log.Enabled(context.Background(), slog.LevelDebug), g.policies[d.Rule].Rule.Name, ""
	if debug || d.Verdict != VerdictAbsent { // reading the headers costs more than the rest
		request = requestID(req.Header)
	}
	g.refusals.note(rule, d, req.Method, req.Target, d.ID, request)
	if debug {
		logRefused(log, d, logArgs(rule, d.ID, request))
	}
}

// reportRefused is [Gate.ReportRefused] for a call.
func (c *Call) reportRefused() {
	method, target, _ := strings.Cut(c.line, " ")
	c.gate.refusals.note(c.policy.Rule.Name, &c.Decision, method, target, c.Decision.ID, c.requestID)
	if log := c.gate.problems.log; log.Enabled(context.Background(), slog.LevelDebug) {
		logRefused(log, &c.Decision, c.LogArgs())
	}
}

// lineOf returns a copy of the part of a request line that is kept.
func lineOf(req *order.Request) string {
	return req.Method[:min(len(req.Method), maxLine)] + " " + req.Target[:min(len(req.Target), maxLine+1)]
}
