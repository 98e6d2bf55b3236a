// Package lockmw brackets calls with a lock, and learns new orders from their
// answers, as an external processor (ext_proc) of Envoy.
//
// Start with [NewServer] and register it on a gRPC server of its own: a stream
// lasts as long as its call, so it must not compete with short ones for
// anything. What to do at each event is decided by internal/gate; this package
// turns messages of Envoy into events, and decisions into messages.
package lockmw

import (
	"context"
	"log/slog"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// headerLost goes to the client when the lease ended before the call did.
const headerLost = "x-ordergate-lease-lost"

// Options bounds what a [Server] does on behalf of a call.
type Options struct {
	LearnTimeout   time.Duration // to make a new order known before its answer is passed on; 0: 1s
	CleanupTimeout time.Duration // to give a lock up after its call; 0: 2s
	Logger         *slog.Logger  // nil: none
}

// Server implements Envoy's ExternalProcessor service. It is safe for concurrent
// use.
type Server struct {
	extproc.UnimplementedExternalProcessorServer
	gate    *gate.Gate
	opts    Options
	log     *slog.Logger
	refusal [][gate.Verdicts]*extproc.ProcessingResponse // by rule and verdict; read-only
}

// NewServer returns a server that does what g decides.
func NewServer(g *gate.Gate, opts Options) *Server {
	if opts.LearnTimeout == 0 {
		opts.LearnTimeout = time.Second
	}
	if opts.CleanupTimeout == 0 {
		opts.CleanupTimeout = 2 * time.Second
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{gate: g, opts: opts, log: opts.Logger}
	for _, p := range g.Policies() {
		var byVerdict [gate.Verdicts]*extproc.ProcessingResponse
		for _, v := range p.Refusals() {
			byVerdict[v] = immediate(p.Reply(v), v)
		}
		s.refusal = append(s.refusal, byVerdict)
	}
	return s
}

// Process serves one HTTP request. It always answers a message that waits for
// an answer, so that no input holds a request up.
func (s *Server) Process(stream extproc.ExternalProcessor_ProcessServer) error {
	first, err := stream.Recv()
	if err != nil {
		return nil // Envoy gave the request up before asking
	}
	headers := first.GetRequestHeaders()
	if headers == nil {
		// A failed upgrade begins with response headers. Nothing was bracketed, so
		// there is nothing to do but to let it pass.
		return stream.Send(passOn(first))
	}
	call := s.gate.Open(request(headers))
	switch {
	case call.Decision.Refused:
		return stream.Send(s.refusal[call.Decision.Rule][call.Decision.Verdict])
	case !call.NeedsAnswer:
		if call.Decision.Rule < 0 {
			return stream.Send(skipUnruled)
		}
		return stream.Send(skipRuled)
	case !call.NeedsLock:
		return s.observe(stream, &call)
	}
	return s.bracket(stream, &call)
}

// cleanupContext outlives the stream: a lock is given up after its call ended.
func (s *Server) cleanupContext(stream context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(stream), s.opts.CleanupTimeout)
}
