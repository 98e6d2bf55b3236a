package lockmw

import (
	"context"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// handleCreate serves a create: it forwards the request, and learns the new ID from the
// answer before Envoy passes the answer on. There is no lock, so it handles one message
// after the other.
func (s *Server) handleCreate(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, pass *forwarding) error {
	if err := stream.Send(describe(pass.expectAnswer(call), call)); err != nil {
		return nil // Envoy did not forward the request
	}
	return s.followCreate(stream, call, nil)
}

// followCreate serves a create after it was forwarded. Msg is the stream's next message;
// nil: receive it.
func (s *Server) followCreate(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, msg *extproc.ProcessingRequest) error {
	ctx := stream.Context()
	defer s.learn(ctx, call, func(ctx context.Context) error { return call.StreamEnded(ctx, nil) })
	awaitsBody := false
	for ; ; msg = nil {
		if msg == nil {
			var err error
			if msg, err = stream.Recv(); err != nil {
				if awaitsBody {
					s.endUnanswered(call)
				}
				return nil
			}
		}
		reply := continueReply(msg)
		done := false
		switch {
		case msg.GetResponseHeaders() != nil:
			reply = onResponse()
			done = s.onCreateHeaders(stream, call, msg, reply)
			awaitsBody = !done
		case msg.GetResponseBody() != nil:
			body := msg.GetResponseBody()
			s.ends.show()
			s.learnDelayed(stream, call, func(ctx context.Context) error {
				return call.LearnBody(ctx, body.GetBody(), !body.GetEndOfStream())
			})
			done = true
		}
		if err := stream.Send(describeNews(reply, call)); err != nil || done {
			return nil
		}
	}
}

// onCreateHeaders handles the headers of the answer to a create. It reports whether no
// later message matters.
func (s *Server) onCreateHeaders(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, msg *extproc.ProcessingRequest, reply *extproc.ProcessingResponse) (done bool) {
	headers := msg.GetResponseHeaders()
	r := response(headers, msg)
	s.checkAttributes(call, r)
	switch call.Created(r) {
	case gate.NoPart:
		reply.ModeOverride = skipRest
	case gate.BodyPart:
		if !headers.GetEndOfStream() {
			reply.ModeOverride = headersAndBody // the request's reply may have asked for less
			if !s.ends.shown.Load() {
				s.learn(stream.Context(), call, call.LearnUnseen)
			}
			return false
		}
		s.learnDelayed(stream, call, func(ctx context.Context) error { return call.LearnBody(ctx, nil, false) })
	case gate.HeaderPart:
		reply.ModeOverride = skipRest // Envoy's own answer has a body, too
		text := call.HeaderText(r.Header)
		s.learnDelayed(stream, call, func(ctx context.Context) error { return call.LearnHeader(ctx, text) })
	}
	return true
}

// learnDelayed is learn while Envoy waits for the reply to the answer. Nothing else may
// receive from the stream after it.
func (s *Server) learnDelayed(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, do func(context.Context) error) {
	passedOn := s.delayed.watch(stream, call)
	s.learn(stream.Context(), call, do)
	passedOn()
}

// learn runs do, even if the client has left: the order exists. The filter bounds its time. learn logs
// an error, and the answer is passed on in any case.
func (s *Server) learn(ctx context.Context, call *gate.Call, do func(context.Context) error) {
	if err := do(context.WithoutCancel(ctx)); err != nil {
		s.problems.Unlearned(call, err)
	}
}
