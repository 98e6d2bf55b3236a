package lockmw

import (
	"context"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// observe serves a create: it forwards the request and learns the new ID from
// the answer before Envoy passes that on. Nothing is held, so messages are
// served one after the other.
func (s *Server) observe(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, pass *passage) error {
	if err := stream.Send(pass.expectAnswer(call)); err != nil {
		return nil // Envoy did not forward the request
	}
	return s.follow(stream, call, nil)
}

// follow serves a create that was passed on. The message is the next one of its stream; nil:
// it is yet to come.
func (s *Server) follow(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, msg *extproc.ProcessingRequest) error {
	ctx := stream.Context()
	defer s.learn(ctx, call, func(ctx context.Context) error { return call.Left(ctx, nil) })
	for ; ; msg = nil {
		if msg == nil {
			var err error
			if msg, err = stream.Recv(); err != nil {
				return nil
			}
		}
		reply := passOn(msg)
		done := false
		switch {
		case msg.GetResponseHeaders() != nil:
			reply = onResponse(nil) // not the shared one: it may say more
			done = s.createAnswered(stream, call, msg, reply)
		case msg.GetResponseBody() != nil:
			body := msg.GetResponseBody()
			s.learnHeld(stream, call, func(ctx context.Context) error {
				return call.LearnBody(ctx, body.GetBody(), !body.GetEndOfStream())
			})
			done = true
		}
		if err := stream.Send(reply); err != nil || done {
			return nil
		}
	}
}

// createAnswered looks at the headers of the answer to a create. It reports whether
// that was all there is to see.
func (s *Server) createAnswered(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, msg *extproc.ProcessingRequest, reply *extproc.ProcessingResponse) (done bool) {
	headers := msg.GetResponseHeaders()
	r := response(headers, msg)
	s.answered(call, r)
	switch call.Created(r) {
	case gate.NoPart:
		reply.ModeOverride = skipRest
	case gate.TheirBody:
		if !headers.GetEndOfStream() {
			return false
		}
		s.learnHeld(stream, call, func(ctx context.Context) error { return call.LearnBody(ctx, nil, false) })
	case gate.TheirHeaders:
		reply.ModeOverride = skipRest // an answer of Envoy's own has a body, too
		text := call.HeaderText(headerMap(headers.GetHeaders().GetHeaders()))
		s.learnHeld(stream, call, func(ctx context.Context) error { return call.LearnText(ctx, text) })
	}
	return true
}

// learnHeld is learn while Envoy holds the answer for our reply. Nothing else may receive from
// the stream after it.
func (s *Server) learnHeld(stream extproc.ExternalProcessor_ProcessServer, call *gate.Call, do func(context.Context) error) {
	passedOn := s.held.watch(stream, call)
	s.learn(stream.Context(), call, do)
	passedOn()
}

// learn runs within its limit and whether or not the client still waits: the
// order exists. What fails is logged; the answer is passed on in any case.
func (s *Server) learn(ctx context.Context, call *gate.Call, do func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.LearnTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		s.unlearned.Note(append(call.About(), "error", err)...)
	}
}
