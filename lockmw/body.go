package lockmw

import (
	"context"
	"sync/atomic"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/recurring"
)

// bodyCheck is whether Envoy shows the bodies that it is asked for. With allow_mode_override:
// false it does not, and passes the request on instead.
type bodyCheck struct {
	shown atomic.Bool  // it has shown one
	ended atomic.Int32 // streams that have ended without one, while none was shown

	unseen     *recurring.Problem
	neverShown *recurring.Problem
}

// maxEnded is how many streams in a row may end without a body and without an answer before
// that may be Envoy's doing: clients leave, too.
const maxEnded = 3

// fetchBody asks, with the given message, for the request's body and returns it whole: one that
// Envoy cannot buffer it refuses itself, with 413. If the headers of an answer come
// instead, or the request's trailers, that message is returned, which nobody has replied to. An
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

// handleUnseen serves a request that was answered before its body came. Unless that is Envoy's own
// answer, the backend has had the request without anybody looking at it.
func (s *Server) handleUnseen(stream extproc.ExternalProcessor_ProcessServer, a *gateReplies, call *gate.Call, msg *extproc.ProcessingRequest) error {
	step := call.BodyUnseen(response(msg.GetResponseHeaders(), msg))
	if step.BodyUnseen {
		s.reportUnseen(call)
	}
	switch {
	case step.Refuse:
		call.LogRefused(s.log)
		return stream.Send(a.refuse(&call.Decision))
	case step.BodyUnseen && call.Decision.Action == gate.ActionCreate && call.NeedsAnswer:
		return s.followCreate(stream, call, msg)
	}
	return stream.Send(continueReply(msg))
}

// endUnseen is the end of a stream that showed neither a body nor an answer. Mostly the
// client has left. An Envoy that passes requests on without their bodies and does not show
// their answers has never shown a body. The two look the same here, so this takes no
// readiness away: clients could do so at will. Where the order is known without its body,
// clients who leave are all that can be seen, since a backend does not serve the hidden path.
func (s *Server) endUnseen(ctx context.Context, call *gate.Call) {
	if !call.BodyEndOnly && !s.bodies.shown.Load() && s.bodies.ended.Add(1) >= maxEnded {
		s.bodies.neverShown.Note("rule", call.Rule())
	}
	// Another listener may have shown its bodies.
	if call.Decision.Action == gate.ActionCreate && call.NeedsAnswer {
		s.learn(ctx, call, func(ctx context.Context) error { return call.StreamEnded(ctx, nil) })
	}
}

func (s *Server) reportUnseen(call *gate.Call) {
	s.opts.BodyUnseen()
	s.bodies.unseen.Note(call.LogArgs()...)
}
