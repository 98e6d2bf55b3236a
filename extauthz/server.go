// Package extauthz answers Envoy's external authorization checks (ext_authz over
// gRPC): lookups of orders that certainly do not exist get their answer here,
// everything else goes on.
//
// Start with [NewServer] and [Server.NewGRPC]. What to answer is decided by
// internal/gate; this package reads the few fields of a check that a decision
// needs straight from the message, and answers with replies that were encoded
// once.
package extauthz

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/ordergate/ordergate/internal/gate"
)

// maxMessageSize bounds a check, in bytes: Envoy's largest header block is
// 8 MiB, its default 60 KiB. Bodies are not asked for.
const maxMessageSize = 9 << 20

// Server answers checks. It is safe for concurrent use.
type Server struct {
	current        atomic.Pointer[gateReplies]
	pass           *reply                // for a request under no rule
	plain, settled [gate.Verdicts]*reply // for one that goes on, and is not settled or is
	http           *staticReplies        // the same over HTTP
	checks         sync.Pool             // of *check
	log            *slog.Logger
}

// gateReplies are a gate with what is answered as it decides. A check goes by one of them
// from its beginning to its end.
type gateReplies struct {
	gate     *gate.Gate
	allowed  []*[gate.Verdicts]*reply // by rule
	refusals [][gate.Refusals]*reply  // by rule
	http     ruleReplies
}

// NewServer returns a server that answers what g decides. It fails for a
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

// LogTo has refused requests leave a line at debug. It must be called before the first check.
func (s *Server) LogTo(log *slog.Logger) { s.log = log }

// Use has the server answer what another gate decides, from the next check on. The errors
// are those of [NewServer]; the gate before stays then. Calls must not overlap.
func (s *Server) Use(g *gate.Gate) (err error) {
	next := &gateReplies{gate: g}
	for rule := range g.Policies() {
		if g.Policies()[rule].Locks() {
			next.allowed = append(next.allowed, &s.settled)
		} else {
			next.allowed = append(next.allowed, &s.plain)
		}
	}
	if next.refusals, err = gate.Prepare(g, deny); err != nil {
		return err
	}
	next.http = newRuleReplies(g, s.current.Load())
	s.current.Store(next)
	return nil
}

// NewGRPC returns a gRPC server with the Authorization service on it. The
// server's messages go through a codec of our own; other services may be
// registered on it as usual.
func (s *Server) NewGRPC(opts ...grpc.ServerOption) *grpc.Server {
	opts = append([]grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxMessageSize),
	}, opts...)
	server := grpc.NewServer(opts...)
	server.RegisterService(&service, s)
	return server
}

// service describes envoy.service.auth.v3.Authorization. The generated one
// would decode the whole message.
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

// respond fails for a forged header whose name is not UTF-8, which Envoy lets no client send.
func (s *Server) respond(ctx context.Context, c *check) (*reply, error) {
	replies := s.current.Load()
	d := replies.gate.Screen(ctx, c.request())
	if d.Refused {
		replies.gate.LogRefused(s.log, &d, c)
		return replies.refusals[d.Rule][d.Refusal()], nil
	}
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
