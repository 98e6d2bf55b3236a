// Package envoymodule decides inside Envoy's own process: it shows requests to the
// gate, and does what that says, as an HTTP filter of a dynamic module.
//
// Start with [NewAdapter]. [Adapter.Request] begins with one stream's request; a [Stream] goes
// on with those that it is not done with. What to do at each event is decided by
// internal/gate, as for the other faces. Envoy calls a filter from the one worker thread
// that its stream belongs to, and that thread has other streams: nothing here may block
// it. Whatever takes time (a read of the change log, a lock, learning) has a goroutine
// of its own, which leaves what it wants done in the stream's mailbox.
//
// Every entry into Go costs more than a filter's answer. So a request that needs nothing
// but a verdict, which are nearly all, is one call, and nothing of it is kept.
//
// The package knows nothing of C, so that every order of events can be tested under the
// race detector; internal/envoymodule/abi ties it to Envoy.
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
)

// Options bounds what a [Adapter] does on behalf of a call.
type Options struct {
	LearnTimeout   time.Duration // to make a new order known, or the others unsure, before its answer is passed on, see engine.LearnTimeout; 0: 3s
	CleanupTimeout time.Duration // to give a lock up after its call; 0: 2s
	// FailureModeAllow passes every request on that a fault of ours hits before it is
	// judged. Without it that is so for GET and HEAD; the others are answered with 503.
	FailureModeAllow bool
	Logger           *slog.Logger // nil: none
	// Native makes what a reply is to whoever sends it. It is kept beside the reply,
	// and has to stay valid. Nil: nobody needs that.
	Native func(*Reply) unsafe.Pointer
}

// Adapter shows streams to a gate. It is safe for concurrent use.
type Adapter struct {
	opts       Options
	log        *slog.Logger
	current    atomic.Pointer[gateReplies]
	faultReply *Reply // to a request that a fault of ours has hit

	refused   *recurring.Trouble
	ended     *recurring.Trouble // calls, by us
	unlearned *recurring.Trouble // new orders
	delayed   delayedAnswers     // to creates

	ctx    context.Context // of what works for streams; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// gateReplies is a gate with its answers. A stream keeps the one that it began with.
type gateReplies struct {
	gate     *gate.Gate
	refusals [][gate.Refusals]*Reply // by rule; read-only
}

// NewAdapter returns a face that does what g decides.
func NewAdapter(g *gate.Gate, opts Options) *Adapter {
	if opts.LearnTimeout == 0 {
		opts.LearnTimeout = 3 * time.Second
	}
	if opts.CleanupTimeout == 0 {
		opts.CleanupTimeout = 2 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Native == nil {
		opts.Native = func(*Reply) unsafe.Pointer { return nil }
	}
	a := &Adapter{opts: opts, log: opts.Logger}
	a.refused = recurring.New(opts.Logger, slog.LevelWarn, "settlement refused", "no settlement is refused any more for want of its lock")
	a.ended = recurring.New(opts.Logger, slog.LevelWarn, "a call is ended: its lease was lost, or held for max_hold", "no call is ended any more for its lease")
	a.unlearned = recurring.New(opts.Logger, slog.LevelError, "a new order was not learned, or not by every ordergate", "new orders are learned again")
	a.delayed.maxDelay = opts.LearnTimeout
	a.delayed.cut = recurring.New(opts.Logger, slog.LevelWarn,
		"Envoy gave a create up while its answer was held, and its order may exist: set the timeout that details names "+
			"(response_timeout: that of the route) to more than the backend takes and held_up_to together",
		"Envoy gives no create up any more while its answer is held")
	a.faultReply = a.prepare(gate.Reply{Status: http.StatusServiceUnavailable}, gate.VerdictUnavailable, "ordergate_fault")
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.Use(g)
	return a
}

// Use has another gate decide on the requests that come from now on.
func (a *Adapter) Use(g *gate.Gate) {
	d := &gateReplies{gate: g}
	d.refusals, _ = gate.Prepare(g, func(r gate.Reply, v gate.Verdict) (*Reply, error) {
		return a.prepare(r, v, "ordergate_"+v.String()), nil // it never fails
	})
	a.current.Store(d)
}

func (a *Adapter) prepare(r gate.Reply, v gate.Verdict, details string) *Reply {
	headers := [][2]string{{gate.HeaderVerdict, v.String()}}
	for _, h := range r.Headers() {
		headers = append(headers, [2]string{h.Name, h.Value})
	}
	reply := &Reply{Status: uint32(r.Status), Headers: headers, Body: r.Body, Details: details}
	reply.Native = a.opts.Native(reply)
	return reply
}

// Request judges a request by its headers. End tells that it has no body. The stream has
// to be told what happens next; nil: nothing more is of interest.
func (a *Adapter) Request(e Envoy, h Headers, end bool) (step Step, s *Stream) {
	defer func() {
		if v := recover(); v != nil {
			if s != nil {
				step = s.onFault(requestHeaders, v)
				return
			}
			a.logFault(requestHeaders.String(), v)
			step = a.onFault(h.Get(":method"))
		}
	}()
	d := a.current.Load()
	state := order.BodyUnseen
	if end { // no body will come
		state = order.BodyComplete
	}
	result := d.gate.TryScreen(h.request(nil, state))
	if !result.NeedsBody && result.Pending == nil {
		if step, opens := d.verdict(e, h, &result.Decision); !opens {
			if step.Do == Refuse {
				a.logRefused(d.gate, e, h, &result.Decision)
			}
			return step, nil
		}
	}
	s = &Stream{adapter: a, replies: d, envoy: e, bodyState: state}
	return s.onResult(h, result), s
}

// verdict does what a verdict asks for, unless a call that creates or settles is to be
// opened.
func (d *gateReplies) verdict(e Envoy, h Headers, decision *gate.Decision) (step Step, opens bool) {
	if decision.Refused {
		return Step{Do: Refuse, Reply: d.refusals[decision.Rule][decision.Refusal()]}, false
	}
	if decision.Rule < 0 {
		h.strip(e, stripUnruled, false)
		return Step{Do: PassRequest}, false
	}
	p := &d.gate.Policies()[decision.Rule]
	if p.Settle != nil || p.Create != nil {
		return Step{}, true
	}
	h.strip(e, stripOwned, false)
	return Step{Do: PassRequest, Verdict: decision.Verdict, WatchNotFound: p.Lookup != nil && p.Lookup.OnNotFound != nil}, false
}

// logRefused leaves a line for a request that is refused. The headers are nil if they
// were not fetched yet.
func (a *Adapter) logRefused(g *gate.Gate, e Envoy, h Headers, d *gate.Decision) {
	if !a.log.Enabled(a.ctx, slog.LevelDebug) {
		return
	}
	if h == nil {
		h = e.Headers(Request)
	}
	g.LogRefused(a.log, d, h)
}

// NotFound tells that the answer has come to a request that was passed on with Witness, and
// that its status is 404 or 410. Other answers are of no interest.
func (a *Adapter) NotFound(e Envoy) {
	defer func() {
		if v := recover(); v != nil {
			a.logFault("a missing order", v)
		}
	}()
	a.current.Load().gate.Answered(e.Headers(Request).request(nil, order.BodyUnseen), response(e, e.Headers(Response)))
}

// onFault is what becomes of a request, without a lock, that a fault of ours has hit.
func (a *Adapter) onFault(method string) Step {
	if a.opts.FailureModeAllow || method == http.MethodGet || method == http.MethodHead {
		return Step{Do: PassRequest}
	}
	return Step{Do: Refuse, Reply: a.faultReply}
}

// Close waits until everything is done that works for streams which are over: locks
// are given up, orders learned. It blocks for at most the time given; what is not done
// then is cut off, and its leases end by themselves. No stream may begin meanwhile.
func (a *Adapter) Close(within time.Duration) {
	timer := time.AfterFunc(within, a.cancel)
	a.work.Wait()
	timer.Stop()
	a.cancel()
	a.refused.Close()
	a.ended.Close()
	a.unlearned.Close()
	a.delayed.cut.Close()
}

// cleanupContext outlives the stream: a lock is given up after its call ended.
func (a *Adapter) cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.ctx, a.opts.CleanupTimeout)
}

// runCleanup does something within the limit of a cleanup, and does not wait for it.
func (a *Adapter) runCleanup(do func(context.Context)) {
	a.spawn("the end of a settlement", func() {
		ctx, done := a.cleanupContext()
		defer done()
		do(ctx)
	})
}

// logFault logs a fault of ours. Envoy would otherwise die of it, and every stream
// with it.
func (a *Adapter) logFault(at string, fault any) {
	a.log.Error("a fault in ordergate", "at", at, "fault", fault, "stack", string(debug.Stack()))
}

// spawn runs something on behalf of a stream.
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
