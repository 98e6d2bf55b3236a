// Package envoymodule decides inside Envoy's own process. It is the part of a dynamic
// module's HTTP filter that passes requests to the gate and returns what the gate decides.
//
// Start with [NewAdapter]. [Adapter.Request] handles the request headers of one stream. If
// the stream needs more events, it returns a [Stream], which handles them. internal/gate
// decides what to do at each event, as for the other adapters. Envoy calls a filter from
// the one worker thread that owns its stream. That thread serves other streams too, so
// nothing here may block it. Slow work (a read of the change log, a lock, learning) runs in
// goroutines of its own, which post their results to the stream's mailbox.
//
// Each call from C into Go costs more than a filter's answer. So nearly all requests, which
// need only a verdict, cost one call, and leave no state behind.
//
// The package contains no C, so that tests can run every order of events under the race
// detector. internal/envoymodule/abi connects it to Envoy.
package envoymodule

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/runbook"
)

// Options bounds the work of an [Adapter] for one call.
type Options struct {
	AnswerDelay time.Duration // the longest time for which the answer to a create is read, before its order is learned
	// FailureModeAllow forwards every request that is not judged yet when a fault (a panic)
	// of ordergate occurs. Without it only GET and HEAD are forwarded; the others get 503.
	FailureModeAllow bool
	Marks            *gate.Marks  // of requests that prove the attachment; nil: they have none
	Logger           *slog.Logger // nil: none
	// Native converts a reply for the code that sends it. The result is kept with the reply
	// and must stay valid. Nil: not needed.
	Native func(*Reply) unsafe.Pointer
}

// Adapter connects streams to a gate. It is safe for concurrent use.
type Adapter struct {
	opts     Options
	log      *slog.Logger
	current  atomic.Pointer[gateReplies]
	versions atomic.Uint32 // the version of the latest gate

	problems *gate.Problems
	delayed  delayedAnswers // answers to creates

	ctx    context.Context // for all work on behalf of streams; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// gateReplies is a gate with its prepared replies. A stream keeps the one that it began
// with.
type gateReplies struct {
	gate     *gate.Gate
	version  uint32 // not 0; differs from that of the gates before
	refusals gate.Replies[Reply]
}

// NewAdapter returns an adapter that follows g's decisions.
func NewAdapter(g *gate.Gate, opts Options) *Adapter {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Native == nil {
		opts.Native = func(*Reply) unsafe.Pointer { return nil }
	}
	a := &Adapter{opts: opts, log: opts.Logger, problems: gate.NewProblems(opts.Logger)}
	a.delayed.maxDelay = opts.AnswerDelay
	a.delayed.cut = recurring.New(opts.Logger, slog.LevelWarn,
		"Envoy gave up a create while its answer was held, and its order may exist",
		"Envoy waits for held answers again",
		runbook.CreateTimes.Do("set the timeout that details names (response_timeout: that of the route) to more than the backend takes and held_up_to together"))
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.Use(g)
	return a
}

// Use replaces the gate for all later requests.
func (a *Adapter) Use(g *gate.Gate) {
	d := &gateReplies{gate: g, version: a.versions.Add(1)}
	encode := func(r gate.Reply, v gate.Verdict) (*Reply, error) {
		reply := &Reply{Answer: r.Answer(v), Details: "ordergate_" + v.String()}
		reply.Native = a.opts.Native(reply)
		return reply, nil
	}
	d.refusals, _ = gate.NewReplies(g, encode) // encode never fails
	g.LogProblems(a.problems)
	a.current.Store(d)
}

// Request judges a request by its headers. End means that the request has no body. If it
// returns a stream, report all later events to it; nil: no later event matters.
func (a *Adapter) Request(e Envoy, h Headers, end bool) (step Step, s *Stream) {
	defer func() {
		if v := recover(); v != nil {
			if s != nil {
				step = s.onFault(requestHeaders, v)
				return
			}
			a.logFault(requestHeaders.String(), v)
			step = a.onFault(e, h)
		}
	}()
	d := a.current.Load()
	state := order.BodyUnseen
	if end { // no body will come
		state = order.BodyComplete
	}
	if mark, result := a.mark(h); result != "" {
		if result != gate.MarkTaken {
			return Step{Do: Refuse, Reply: temporary(gate.RefusedMark(result).Answer(gate.VerdictNone), "ordergate_doctor")}, nil
		}
		s = &Stream{adapter: a, replies: d, envoy: e, bodyState: state}
		s.proof = &proof{stream: s, mark: mark}
		return s.proof.begin(h), s
	}
	result := d.gate.TryScreen(h.request(nil, state))
	if !result.NeedsBody && result.Pending == nil && !d.readsAnswer(&result.Decision) {
		if step, opens := d.carryOut(e, h, &result.Decision, 0); !opens {
			if step.Do == Refuse {
				a.reportRefused(d.gate, e, h, &result.Decision)
			}
			return step, nil
		}
	}
	s = &Stream{adapter: a, replies: d, envoy: e, bodyState: state}
	return s.onResult(h, &result), s
}

// readsAnswer reports whether a lookup that goes on needs a call.
func (d *gateReplies) readsAnswer(decision *gate.Decision) bool {
	return decision.Rule >= 0 && d.gate.Policies()[decision.Rule].ReadsAnswer(decision)
}

// carryOut carries out a verdict. It leaves the request as it is and returns opens if the rule creates or
// settles, and a call must be opened. It removes the first options of [gate.AnswerOptions].
func (d *gateReplies) carryOut(e Envoy, h Headers, decision *gate.Decision, options int) (step Step, opens bool) {
	if m, ok := d.gate.Metadata(decision); ok { // first: headers that are removed free their memory
		e.Describe(&m)
	}
	if decision.Refused {
		return Step{Do: Refuse, Reply: d.refusals.To(decision)}, false
	}
	if decision.Rule < 0 {
		h.strip(e, stripUnruled, 0)
		return Step{Do: PassRequest}, false
	}
	p := &d.gate.Policies()[decision.Rule]
	if p.HasCalls() {
		return Step{}, true
	}
	h.strip(e, stripOwned, options)
	step = Step{Do: PassRequest, Verdict: decision.Verdict}
	if p.Lookup != nil && p.Lookup.OnNotFound != nil {
		step.WatchNotFound = d.version
	}
	return step, false
}

// reportRefused reports a refused request. The headers are nil if they were not read yet, as in a flood.
func (a *Adapter) reportRefused(g *gate.Gate, e Envoy, h Headers, d *gate.Decision) {
	if h == nil && a.log.Enabled(a.ctx, slog.LevelDebug) {
		h = e.Headers(Request)
	}
	req := h.request(nil, order.BodyUnseen)
	g.ReportRefused(a.log, d, &req)
}

// NotFound reports that a request forwarded with WatchNotFound was answered with status 404
// or 410. Other answers do not matter. It ignores an answer that arrives after its gate was
// replaced: the filter of the new rule did not let the lookup through.
func (a *Adapter) NotFound(e Envoy, watched uint32) {
	defer func() {
		if v := recover(); v != nil {
			a.logFault("a missing order", v)
		}
	}()
	if d := a.current.Load(); d.version == watched {
		d.gate.Answered(e.Headers(Request).request(nil, order.BodyUnseen), response(e, e.Headers(Response), false))
	}
}

// onFault decides about a request that has not been forwarded when a fault occurs. None passes without its
// lock, unless the fault is in the search for its rule.
func (a *Adapter) onFault(e Envoy, h Headers) Step {
	method := h.Get(":method")
	if (a.opts.FailureModeAllow || method == http.MethodGet || method == http.MethodHead) && !a.mayLock(h) {
		h.strip(e, stripUnruled, 0)
		return Step{Do: PassRequest}
	}
	return Step{Do: Refuse, Reply: a.faultReplyTo(h)}
}

func (a *Adapter) mayLock(h Headers) bool {
	defer func() { _ = recover() }()
	return a.current.Load().gate.MayLock(h.request(nil, order.BodyUnseen))
}

// faultReplyTo returns the answer to a request during which a fault occurred.
func (a *Adapter) faultReplyTo(h Headers) *Reply {
	req, reply := h.request(nil, order.BodyUnseen), gate.Reply{Status: http.StatusServiceUnavailable}
	func() {
		defer func() { _ = recover() }() // the fault may be one of this log
		a.current.Load().gate.LogUnruled(gate.VerdictUnavailable, gate.ReasonFault, reply.Status, &req)
	}()
	if gate.IsGRPC(&req) {
		reply = reply.ForGRPC(gate.VerdictUnavailable)
	}
	return temporary(reply.Answer(gate.VerdictUnavailable), "ordergate_fault")
}

// Close waits for the work that remains after streams have ended: lookups, and learning orders. It blocks
// for the given time at most, and then cancels what is left; those leases expire. No stream may begin
// meanwhile.
func (a *Adapter) Close(within time.Duration) {
	timer := time.AfterFunc(within, a.cancel)
	a.work.Wait()
	timer.Stop()
	a.cancel()
	a.problems.Drop()
	a.delayed.cut.Drop()
}

// logFault logs a fault of ordergate. A panic would otherwise end Envoy and every stream in
// it.
func (a *Adapter) logFault(at string, fault any) {
	a.log.Error("a fault in ordergate", "at", at, "fault", fault, "stack", string(debug.Stack()),
		runbook.Faults.Do("report it as a fault of ordergate, with ordergate bundle"))
}

// spawn runs do in a goroutine, on behalf of a stream.
func (a *Adapter) spawn(at string, do func()) {
	a.work.Add(1)
	go func() {
		defer a.work.Done()
		defer func() {
			if v := recover(); v != nil {
				a.logFault(at, v)
			}
		}()
		do()
	}()
}
