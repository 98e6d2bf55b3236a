// Package extauthz answers Envoy's external authorization checks (ext_authz over gRPC). It
// refuses lookups of orders that certainly do not exist, and lets everything else pass.
//
// Start with [NewServer] and [Server.NewGRPC]. internal/gate decides what to answer. This
// package reads only the few fields that a decision needs, directly from the encoded check,
// and sends replies that were encoded in advance.
package extauthz

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/ordergate/ordergate/internal/gate"
)

// maxMessageSize bounds a check, in bytes: Envoy's largest header block has 8 MiB, its
// default 60 KiB. Checks contain no bodies.
const maxMessageSize = 9 << 20

// Server answers checks. It is safe for concurrent use.
type Server struct {
	current        atomic.Pointer[gateReplies]
	pass           *reply                // for a request without a rule
	plain, settled [gate.Verdicts]*reply // for a request that passes, under a rule that does not settle, or does
	http           *staticReplies        // the same over HTTP
	checks         sync.Pool             // of *check
	log            *slog.Logger
	seal           *gate.Seal  // nil: there is no ext_proc
	marks          *gate.Marks // nil: requests have none
	proofs         sync.Map    // the answers to marked requests that nginx has yet to fetch, by nonce
}

// gateReplies is a gate with its prepared replies. A check uses one of them from its
// beginning to its end.
type gateReplies struct {
	gate     *gate.Gate
	allowed  []*[gate.Verdicts]*reply // by rule
	refusals gate.Replies[reply]
	http     ruleReplies
}

// NewServer returns a server that follows g's decisions. It returns an error for a
// configured body that is not UTF-8.
func NewServer(g *gate.Gate) (*Server, error) {
	s := &Server{http: newStaticReplies(), log: slog.New(slog.DiscardHandler)}
	s.checks.New = func() any { return new(check) }
	var err error
	if s.pass, err = allow(gate.VerdictNone, false, nil); err != nil {
		return nil, err
	}
	for v := range gate.Verdict(gate.Verdicts) {
		if s.plain[v], err = allow(v, false, nil); err != nil {
			return nil, err
		}
		if s.settled[v], err = allow(v, true, nil); err != nil {
			return nil, err
		}
	}
	return s, s.Use(g)
}

// LogTo logs refused requests at debug level. Call it before the first check.
func (s *Server) LogTo(log *slog.Logger) { s.log = log }

// Attach seals each request that needs ext_proc. Call it before the first check.
func (s *Server) Attach(seal *gate.Seal) { s.seal = seal }

// Prove answers marked requests. Call it before the first check.
func (s *Server) Prove(marks *gate.Marks) { s.marks = marks }

// Use replaces the gate for all later checks. Its errors are those of [NewServer]; then the
// previous gate stays. Calls must not overlap.
func (s *Server) Use(g *gate.Gate) (err error) {
	next := &gateReplies{gate: g}
	for rule := range g.Policies() {
		if g.Policies()[rule].Locks() {
			next.allowed = append(next.allowed, &s.settled)
		} else {
			next.allowed = append(next.allowed, &s.plain)
		}
	}
	if next.refusals, err = gate.NewReplies(g, deny); err != nil {
		return err
	}
	next.http = newRuleReplies(g, s.current.Load())
	s.current.Store(next)
	return nil
}

// NewGRPC returns a gRPC server with the Authorization service. The server uses a codec of
// this package. Other services can be registered on it as usual.
func (s *Server) NewGRPC(opts ...grpc.ServerOption) *grpc.Server {
	opts = append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessageSize),
	}, opts...)
	server := grpc.NewServer(opts...)
	server.RegisterService(&service, s)
	return server
}

// service describes envoy.service.auth.v3.Authorization. The generated description would
// decode the whole message.
var service = grpc.ServiceDesc{
	ServiceName: "envoy.service.auth.v3.Authorization",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Check", Handler: handleCheck}},
	Metadata:    "envoy/service/auth/v3/external_auth.proto",
}

//nolint:revive // gRPC dictates the order of parameters
func handleCheck(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	s := srv.(*Server)
	c := s.checks.Get().(*check)
	defer s.checks.Put(c)
	if err := decode(c); err != nil {
		return nil, err
	}
	return s.respond(ctx, c)
}

// respond returns an error for a forged header whose name is not UTF-8. Envoy lets no
// client send one.
func (s *Server) respond(ctx context.Context, c *check) (*reply, error) {
	replies := s.current.Load()
	req := c.request()
	if replies.gate.NeedsTraceParent() {
		req.TraceParent = strings.Join(metadata.ValueFromIncomingContext(ctx, "traceparent"), "")
	}
	if c.mayForge() {
		if reply, err := s.prove(ctx, replies.gate, c, req); reply != nil || err != nil {
			return reply, err
		}
	}
	d := replies.gate.Screen(ctx, req)
	path := ""
	if s.seal != nil && (replies.gate.Seals(&d) || gate.IsSealed(req.Target)) { // ext_proc refuses what a client has sealed
		path = s.seal.Hide(req.Method, req.Target)
		replies.gate.RefuseTooLarge(&d, &req, path)
	}
	if d.Refused {
		replies.gate.ReportRefused(s.log, &d, &req)
		return replies.refusals.To(&d).describe(replies.gate, &d), nil
	}
	reply, err := s.allow(replies, &d, c)
	if err != nil {
		return nil, err
	}
	if s.seal != nil {
		replies.gate.Passed(&d, &req, ctx.Err() != nil)
		if path != "" {
			if reply, err = reply.withPath(path); err != nil {
				return nil, err
			}
		}
	}
	return reply.describe(replies.gate, &d), nil
}

// allow returns the reply to a request that passes.
func (s *Server) allow(replies *gateReplies, d *gate.Decision, c *check) (*reply, error) {
	if c.mayForge() {
		if forged := c.forged(); len(forged) > 0 {
			return allow(d.Verdict, d.Rule >= 0 && replies.gate.Policies()[d.Rule].Locks(), forged)
		}
	}
	if d.Rule < 0 {
		return s.pass, nil
	}
	return replies.allowed[d.Rule][d.Verdict], nil
}
