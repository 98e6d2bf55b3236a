package lockmw

import (
	"context"
	"sync/atomic"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/recurring"
)

// bodies is whether Envoy shows the bodies that it is asked for. With allow_mode_override:
// false it does not, and passes the request on instead.
type bodies struct {
	shown atomic.Bool  // it has shown one
	ended atomic.Int32 // streams that have ended without one, while none was shown

	unseen   *recurring.Trouble
	unproven *recurring.Trouble
}

// mostEnded is how many streams in a row may end without a body and without an answer before
// that may be Envoy's doing: clients leave, too.
const mostEnded = 3

// body asks, with the given message, for the request's body and returns it whole: one that
// Envoy cannot buffer it refuses itself, with 413. If the headers of an answer come
// instead, or the request's trailers, that message is returned, which nobody has replied to. An
// error means that the stream is over.
func (s *Server) body(stream extproc.ExternalProcessor_ProcessServer, ask *extproc.ProcessingResponse) (
	body []byte, other *extproc.ProcessingRequest, err error,
) {
	if err := stream.Send(ask); err != nil {
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
		if err := stream.Send(passOn(msg)); err != nil {
			return nil, nil, err
		}
	}
}

// unseen serves a request that was answered before its body came. Unless that is Envoy's own
// answer, the backend has had the request without anybody looking at it.
func (s *Server) unseen(stream extproc.ExternalProcessor_ProcessServer, a *answers, call *gate.Call, msg *extproc.ProcessingRequest) error {
	step := call.Unseen(response(msg.GetResponseHeaders(), msg))
	if step.Unseen {
		s.alarm(call)
	}
	switch {
	case step.Refuse:
		call.LogRefused(s.log)
		return stream.Send(a.refuse(&call.Decision))
	case step.Unseen && call.Decision.Action == gate.ActionCreate && call.NeedsAnswer:
		return s.follow(stream, call, msg)
	}
	return stream.Send(passOn(msg))
}

// endedUnseen is the end of a stream that showed neither a body nor an answer. Mostly the
// client has left. An Envoy that passes requests on without their bodies and does not show
// their answers has never shown a body. The two look the same here, so this takes no
// readiness away: clients could do so at will. Where the order is known without its body,
// clients who leave are all that can be seen, since a backend does not serve the hidden path.
func (s *Server) endedUnseen(ctx context.Context, call *gate.Call) {
	if !call.OnlyEnd && !s.bodies.shown.Load() && s.bodies.ended.Add(1) >= mostEnded {
		s.bodies.unproven.Note("rule", call.Rule())
	}
	// Another listener may have shown its bodies.
	if call.Decision.Action == gate.ActionCreate && call.NeedsAnswer {
		s.learn(ctx, call, func(ctx context.Context) error { return call.Left(ctx, nil) })
	}
}

func (s *Server) alarm(call *gate.Call) {
	s.opts.BodyUnseen()
	s.bodies.unseen.Note(call.About()...)
}
