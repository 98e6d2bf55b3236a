// Package envoymodule decides inside Envoy's own process: it shows requests to the
// gate, and does what that says, as an HTTP filter of a dynamic module.
//
// Start with [NewFace]. [Face.Request] begins with one stream's request; a [Stream] goes
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

// Options bounds what a [Face] does on behalf of a call.
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

// Face shows streams to a gate. It is safe for concurrent use.
type Face struct {
	opts  Options
	log   *slog.Logger
	now   atomic.Pointer[decider]
	fault *Reply // to a request that a fault of ours has hit

	refused   *recurring.Trouble
	ended     *recurring.Trouble // calls, by us
	unlearned *recurring.Trouble // new orders
	held      heldAnswers        // to creates

	ctx    context.Context // of what works for streams; ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// decider is a gate with its answers. A stream keeps the one that it began with.
type decider struct {
	gate     *gate.Gate
	refusals [][gate.Refusals]*Reply // by rule; read-only
}

// NewFace returns a face that does what g decides.
func NewFace(g *gate.Gate, opts Options) *Face {
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
	f := &Face{opts: opts, log: opts.Logger}
	f.refused = recurring.New(opts.Logger, slog.LevelWarn, "settlement refused", "no settlement is refused any more for want of its lock")
	f.ended = recurring.New(opts.Logger, slog.LevelWarn, "a call is ended: its lease was lost, or held for max_hold", "no call is ended any more for its lease")
	f.unlearned = recurring.New(opts.Logger, slog.LevelError, "a new order was not learned, or not by every ordergate", "new orders are learned again")
	f.held.longest = opts.LearnTimeout
	f.held.cut = recurring.New(opts.Logger, slog.LevelWarn,
		"Envoy gave a create up while its answer was held, and its order may exist: set the timeout that details names "+
			"(response_timeout: that of the route) to more than the backend takes and held_up_to together",
		"Envoy gives no create up any more while its answer is held")
	f.fault = f.prepare(gate.Reply{Status: http.StatusServiceUnavailable}, gate.VerdictUnavailable, "ordergate_fault")
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.Use(g)
	return f
}

// Use has another gate decide on the requests that come from now on.
func (f *Face) Use(g *gate.Gate) {
	d := &decider{gate: g}
	d.refusals, _ = gate.Prepare(g, func(r gate.Reply, v gate.Verdict) (*Reply, error) {
		return f.prepare(r, v, "ordergate_"+v.String()), nil // it never fails
	})
	f.now.Store(d)
}

func (f *Face) prepare(r gate.Reply, v gate.Verdict, details string) *Reply {
	headers := [][2]string{{gate.HeaderVerdict, v.String()}}
	for _, h := range r.Headers() {
		headers = append(headers, [2]string{h.Name, h.Value})
	}
	reply := &Reply{Status: uint32(r.Status), Headers: headers, Body: r.Body, Details: details}
	reply.Native = f.opts.Native(reply)
	return reply
}

// Request judges a request by its headers. End tells that it has no body. The stream has
// to be told what happens next; nil: nothing more is of interest.
func (f *Face) Request(e Envoy, h Headers, end bool) (step Step, s *Stream) {
	defer func() {
		if v := recover(); v != nil {
			if s != nil {
				step = s.failed(requestHeaders, v)
				return
			}
			f.recovered(requestHeaders.String(), v)
			step = f.failed(h.Get(":method"))
		}
	}()
	d := f.now.Load()
	state := order.BodyUnseen
	if end { // no body will come
		state = order.BodyComplete
	}
	glimpse := d.gate.Glance(h.request(nil, state))
	if !glimpse.NeedsBody && glimpse.Asks == nil {
		if step, opens := d.verdict(e, h, &glimpse.Decision); !opens {
			if step.Do == Refuse {
				f.logRefused(d.gate, e, h, &glimpse.Decision)
			}
			return step, nil
		}
	}
	s = &Stream{face: f, decider: d, envoy: e, state: state}
	return s.glimpsed(h, glimpse), s
}

// verdict does what a verdict asks for, unless a call that creates or settles is to be
// opened.
func (d *decider) verdict(e Envoy, h Headers, judged *gate.Decision) (step Step, opens bool) {
	if judged.Refused {
		return Step{Do: Refuse, Reply: d.refusals[judged.Rule][judged.Refusal()]}, false
	}
	if judged.Rule < 0 {
		h.strip(e, foreign, false)
		return Step{Do: PassRequest}, false
	}
	p := &d.gate.Policies()[judged.Rule]
	if p.Settle != nil || p.Create != nil {
		return Step{}, true
	}
	h.strip(e, ours, false)
	return Step{Do: PassRequest, Verdict: judged.Verdict, Witness: p.Lookup != nil && p.Lookup.Missing != nil}, false
}

// logRefused leaves a line for a request that is refused. The headers are nil if they
// were not fetched yet.
func (f *Face) logRefused(g *gate.Gate, e Envoy, h Headers, d *gate.Decision) {
	if !f.log.Enabled(f.ctx, slog.LevelDebug) {
		return
	}
	if h == nil {
		h = e.Headers(Request)
	}
	g.LogRefused(f.log, d, h)
}

// Missing tells that the answer has come to a request that was passed on with Witness, and
// that its status is 404 or 410. Other answers are of no interest.
func (f *Face) Missing(e Envoy) {
	defer func() {
		if v := recover(); v != nil {
			f.recovered("a missing order", v)
		}
	}()
	f.now.Load().gate.Answered(e.Headers(Request).request(nil, order.BodyUnseen), response(e, e.Headers(Response)))
}

// failed is what becomes of a request, without a lock, that a fault of ours has hit.
func (f *Face) failed(method string) Step {
	if f.opts.FailureModeAllow || method == http.MethodGet || method == http.MethodHead {
		return Step{Do: PassRequest}
	}
	return Step{Do: Refuse, Reply: f.fault}
}

// Close waits until everything is done that works for streams which are over: locks
// are given up, orders learned. It blocks for at most the time given; what is not done
// then is cut off, and its leases end by themselves. No stream may begin meanwhile.
func (f *Face) Close(within time.Duration) {
	timer := time.AfterFunc(within, f.cancel)
	f.work.Wait()
	timer.Stop()
	f.cancel()
	f.refused.Close()
	f.ended.Close()
	f.unlearned.Close()
	f.held.cut.Close()
}

// cleanupContext outlives the stream: a lock is given up after its call ended.
func (f *Face) cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(f.ctx, f.opts.CleanupTimeout)
}

// background does something within the limit of a cleanup, and does not wait for it.
func (f *Face) background(do func(context.Context)) {
	f.spawn("the end of a settlement", func() {
		ctx, done := f.cleanupContext()
		defer done()
		do(ctx)
	})
}

// recovered logs a fault of ours. Envoy would otherwise die of it, and every stream
// with it.
func (f *Face) recovered(at string, fault any) {
	f.log.Error("a fault in ordergate", "at", at, "fault", fault, "stack", string(debug.Stack()))
}

// spawn runs something on behalf of a stream.
func (f *Face) spawn(at string, do func()) {
	f.work.Add(1)
	go func() {
		defer f.work.Done()
		defer func() {
			if v := recover(); v != nil {
				f.recovered(at, v)
			}
		}()
		do()
	}()
}
