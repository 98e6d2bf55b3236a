// Package lockmw is an external processor (ext_proc) of Envoy. It holds locks around calls,
// learns new orders from their answers, and reports orders that the backend does not have.
//
// Start with [NewServer] and register it on a gRPC server of its own: a stream lasts as
// long as its call, and must not delay short ones. internal/gate decides what to do at each
// event. This package translates Envoy's messages into events, and decisions into messages.
package lockmw

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/recurring"
	"github.com/ordergate/ordergate/internal/runbook"
)

// Options bounds the work of a [Server] for one call.
type Options struct {
	AnswerDelay time.Duration // the longest time for which the answer to a create is held, for the log
	// BodyUnseen is called for each request that Envoy forwarded without sending the body
	// that ordergate had requested. It must be quick. Nil: it is not called.
	BodyUnseen func()
	// AttributesMissing is called for each answer, under an enforced rule, that arrived
	// without the attributes of its outcome. It must be quick. Nil: it is not called.
	AttributesMissing func()
	// EndsMissing is called for each settlement of which Envoy has shown the beginning of the answer, but not
	// the end, if it has shown no end yet, from the second call on. It must not block.
	EndsMissing func()
	// EndsShown is called once, when Envoy shows the first end. It must not block. Nil: it is not called.
	EndsShown func()
	// Seal restores the targets of requests that ext_authz has sealed. Nil: it seals none.
	Seal *gate.Seal
	// RenewSeal is called if a target cannot be restored: another instance may have another key.
	RenewSeal func(context.Context)
	Marks     *gate.Marks // of requests that prove the attachment; nil: they have none
	// AuthzMarks are those of ext_authz, by which ext_proc goes where that is off.
	AuthzMarks *gate.Marks
	Logger     *slog.Logger // nil: none
}

// Server implements Envoy's ExternalProcessor service. It is safe for concurrent
// use.
type Server struct {
	extproc.UnimplementedExternalProcessorServer
	current    atomic.Pointer[gateReplies]
	opts       Options
	log        *slog.Logger
	problems   *gate.Problems
	bodies     bodyCheck
	attributes attributeCheck
	authz      authzCheck
	ends       endCheck
	waits      cutOffWaits
	delayed    delayedAnswers
}

// gateReplies is a gate with its prepared replies. A stream uses one of them from its
// beginning to its end, so a settlement ends under the rules that it began with.
type gateReplies struct {
	gate     *gate.Gate
	refusals gate.Replies[extproc.ProcessingResponse]
}

// NewServer returns a server that follows g's decisions.
func NewServer(g *gate.Gate, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	for _, call := range []*func(){&opts.BodyUnseen, &opts.AttributesMissing, &opts.EndsMissing, &opts.EndsShown} {
		if *call == nil {
			*call = func() {}
		}
	}
	s := &Server{opts: opts, log: opts.Logger, problems: gate.NewProblems(opts.Logger)}
	s.bodies.unseen = recurring.New(opts.Logger, slog.LevelError,
		"a request was passed on before ordergate saw its body, and without a lock",
		"ordergate sees the bodies of requests again",
		runbook.Unlocked.Do("set allow_mode_override: true, or request_body_mode: BUFFERED, in Envoy's ext_proc"))
	s.attributes.missing = recurring.New(opts.Logger, slog.LevelWarn,
		"Envoy does not report the origin of an answer, so that the order of each settlement stays locked for on_unknown_outcome.hold, and each create is a doubt",
		"Envoy reports the origin of answers",
		runbook.OutcomesUnknown.Do("set response_attributes: [response.code_details, upstream.request_attempt_count] in Envoy's ext_proc"))
	s.authz.missing = recurring.New(opts.Logger, slog.LevelError,
		"requests reach ext_proc, and none has passed ext_authz, so that no lookup is refused",
		"requests pass ext_authz",
		runbook.Attachment.Do("have Envoy's filter ext_authz stand before ext_proc"))
	s.ends.onShown = opts.EndsShown
	s.ends.missing = recurring.New(opts.Logger, slog.LevelError,
		"calls end before ordergate has seen the end of their answers, and it has seen none yet, so that the order of each settlement stays locked for on_unknown_outcome.hold, "+
			"and each create is a doubt",
		"Envoy shows how answers end",
		runbook.OutcomesUnknown.Do("set allow_mode_override: true, or response_body_mode: STREAMED, in Envoy's ext_proc, and have no decompressor between it and the router"))
	s.waits.cut = recurring.New(opts.Logger, slog.LevelWarn,
		"settlements are given up while they wait for their locks, all after the same time: is message_timeout of Envoy's ext_proc, or the timeout of a client, shorter than the lock's wait?",
		"settlements are no longer given up after the same time",
		runbook.WaitTimes.Do("compare message_timeout of Envoy's ext_proc, and the timeouts of clients, with the lock's wait"))
	s.delayed.maxDelay = opts.AnswerDelay
	s.delayed.cut = recurring.New(opts.Logger, slog.LevelWarn,
		"a create was given up while its answer was held, and its order may exist: is message_timeout of Envoy's ext_proc, "+
			"the timeout of the route, or that of a client, shorter than an answer may be held?",
		"no create is given up while its answer is held",
		runbook.CreateTimes.Do("set message_timeout of Envoy's ext_proc to more than held_up_to, and the route's timeout to more than that and the backend's time together"))
	s.bodies.neverShown = recurring.New(opts.Logger, slog.LevelWarn,
		"requests have ended before ordergate saw their bodies, and it has seen none yet: clients have left, or Envoy shows none",
		"requests no longer end before ordergate saw their bodies",
		runbook.Bodies.Do("nothing if clients have left; otherwise set allow_mode_override: true, or request_body_mode: BUFFERED, in Envoy's ext_proc"))
	s.Use(g)
	return s
}

// Use replaces the gate for all later streams.
func (s *Server) Use(g *gate.Gate) {
	encode := func(r gate.Reply, v gate.Verdict) (*extproc.ProcessingResponse, error) {
		return immediate(r.Answer(v)), nil
	}
	refusals, _ := gate.NewReplies(g, encode) // encode never fails
	g.LogProblems(s.problems)
	s.current.Store(&gateReplies{g, refusals})
}

// Process serves one HTTP request. It replies to every message that waits for a reply, so
// that no input stalls a request.
func (s *Server) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	first, err := stream.Recv()
	if err != nil {
		return nil // Envoy dropped the request before it sent the first message
	}
	headers := first.GetRequestHeaders()
	if headers == nil {
		return s.handleResponseOnly(stream, first)
	}
	a, req := s.current.Load(), request(headers)
	if a.gate.NeedsTraceParent() {
		req.TraceParent = strings.Join(metadata.ValueFromIncomingContext(stream.Context(), "traceparent"), "")
	}
	off := isAuthzOff(stream.Context())
	if off {
		stream = &guardedStream{ExternalProcessor_ProcessServer: stream}
	}
	sealed := s.opts.Seal != nil && gate.IsSealed(req.Target)
	text := ""
	if sealed && (off || !s.reveal(stream.Context(), &req, &text)) {
		return s.sendUnrevealed(stream, a, &req)
	}
	if p := s.proofOf(&req, &text, sealed, off); p != nil {
		p.stream, p.first, p.gate, p.authzOff = stream, first, a.gate, off
		return s.prove(p, text)
	} else if sealed && text != "" {
		return s.sendUnrevealed(stream, a, &req)
	}
	pass := forwarding{forged: gate.Forged(req.Header)}
	if off {
		if refusal := s.screen(stream.Context(), a, &req, &pass); refusal != nil {
			return stream.Send(refusal)
		}
	}
	call := a.gate.Open(req)
	if sealed {
		pass.hiddenPath = req.Target
	}
	a.gate.Arrived(call.Decision.Rule, &req, sealed || off)
	if !sealed && !off && s.opts.Seal != nil && call.NeedsAnswer && !call.Observed() {
		s.checkAuthz(a.gate, call.Rule())
	}
	if call.NeedsLock || call.NeedsBody {
		call.SetClient(first.GetAttributes()[attributesKey].GetFields()["source.address"].GetStringValue()) // if request_attributes selects it
	}
	x := &exchange{server: s, stream: stream, replies: a, forwarding: pass, req: &req, call: call}
	x.run()
	return nil
}

// sendUnrevealed refuses a request whose path ext_authz has not sealed.
func (s *Server) sendUnrevealed(stream extproc.ExternalProcessor_ProcessServer, a *gateReplies, req *order.Request) error {
	answer := gate.Unrevealed()
	a.gate.LogUnruled(answer.Verdict, gate.ReasonUnsealed, answer.Status, req)
	return stream.Send(immediate(answer))
}

// reveal restores the target of a request that ext_authz has sealed, and the text of its mark.
func (s *Server) reveal(ctx context.Context, req *order.Request, mark *string) (ok bool) {
	target, ok := s.opts.Seal.Reveal(req.Method, req.Target)
	if !ok && s.opts.RenewSeal != nil {
		s.opts.RenewSeal(ctx)
		target, ok = s.opts.Seal.Reveal(req.Method, req.Target)
	}
	if !ok || gate.IsSealed(target) {
		s.log.Debug("refused a request whose path ext_authz has not sealed, or with the key of an ordergate that has another Redis")
		return false
	}
	req.Target, *mark = gate.Unmark(target)
	return true
}
