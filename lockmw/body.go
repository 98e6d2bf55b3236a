package lockmw

import (
	"context"
	"sync/atomic"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/recurring"
)

// bodyCheck detects whether Envoy sends the bodies that ordergate requests. With
// allow_mode_override: false it sends none, and forwards the request.
type bodyCheck struct {
	shown atomic.Bool  // Envoy has sent one
	ended atomic.Int32 // streams that have ended without a body, before Envoy has sent any

	unseen     *recurring.Problem
	neverShown *recurring.Problem
}

// maxEnded is the number of consecutive streams that may end without a body and without an
// answer. After more of them, Envoy may be the reason; fewer may be clients that left.
const maxEnded = 3

// fetchBody requests the body with the given message, and returns all of it. Envoy itself
// refuses a body that it cannot buffer, with 413. If the response headers or the request's
// trailers arrive first, fetchBody returns that message, and has not replied to it. An
// error means that the stream is over.
func (s *Server) fetchBody(stream extproc.ExternalProcessor_ProcessServer, request *extproc.ProcessingResponse) (
	body []byte, other *extproc.ProcessingRequest, err error,
) {
	if err := stream.Send(request); err != nil {
		return nil, nil, err
	}
	for {
		msg, err := stream.Recv()
		if err != nil {
			return nil, nil, err
		}
		switch {
		case msg.GetRequestBody() != nil:
			if !s.bodies.shown.Load() {
				s.bodies.shown.Store(true)
			}
			return msg.GetRequestBody().GetBody(), nil, nil
		case msg.GetResponseHeaders() != nil, msg.GetRequestTrailers() != nil:
			return nil, msg, nil
		}
		if err := stream.Send(continueReply(msg)); err != nil {
			return nil, nil, err
		}
	}
}

// handleUnseen serves a request that was answered before its body arrived. Unless the
// answer is Envoy's own, the backend has received the request unchecked.
func (s *Server) handleUnseen(stream extproc.ExternalProcessor_ProcessServer, a *gateReplies, call *gate.Call, msg *extproc.ProcessingRequest) error {
	step := call.BodyUnseen(response(msg.GetResponseHeaders(), msg))
	if step.BodyUnseen {
		s.reportUnseen(call)
	}
	switch {
	case step.Refuse:
		call.ReportRefused(s.log)
		return stream.Send(a.refuse(call))
	case step.BodyUnseen && call.Decision.Action == gate.ActionCreate && call.NeedsAnswer:
		return s.followCreate(stream, call, msg)
	}
	return stream.Send(continueReply(msg))
}

// endUnseen handles the end of a stream without a body and without an answer. Usually the
// client has left. An Envoy that sends neither bodies nor answers looks the same. So this
// does not make ordergate unready: clients could cause it at will. If the order is known
// without the body, only clients that leave look like this, because no backend serves the
// hidden path.
func (s *Server) endUnseen(ctx context.Context, call *gate.Call) {
	if !call.BodyEndOnly && !s.bodies.shown.Load() && s.bodies.ended.Add(1) >= maxEnded {
		s.bodies.neverShown.Note("rule", call.Rule())
	}
	// Envoy may have sent bodies on another listener.
	if call.Decision.Action == gate.ActionCreate && call.NeedsAnswer {
		s.learn(ctx, call, func(ctx context.Context) error { return call.StreamEnded(ctx, nil) })
	}
}

func (s *Server) reportUnseen(call *gate.Call) {
	s.opts.BodyUnseen()
	s.bodies.unseen.Note(call.LogArgs()...)
}
