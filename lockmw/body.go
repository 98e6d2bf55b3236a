package lockmw

import (
	"sync/atomic"

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

// endUnseen handles the end of a stream without a body and without an answer. Usually the
// client has left. An Envoy that sends neither bodies nor answers looks the same. So this
// does not make ordergate unready: clients could cause it at will. If the order is known
// without the body, only clients that leave look like this, because no backend serves the
// hidden path.
func (s *Server) endUnseen(call *gate.Call) {
	if !call.BodyEndOnly && !s.bodies.shown.Load() && s.bodies.ended.Add(1) >= maxEnded {
		s.bodies.neverShown.Note("rule", call.Rule())
	}
}

func (s *Server) reportUnseen(call *gate.Call) {
	s.opts.BodyUnseen()
	s.bodies.unseen.Note(call.LogArgs()...)
}
