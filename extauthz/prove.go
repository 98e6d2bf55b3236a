package extauthz

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/wait"
)

// prove answers a marked request, or sends it on to ext_proc. Nothing else happens to it. It returns
// nil for a request without a mark.
func (s *Server) prove(ctx context.Context, g *gate.Gate, c *check, req order.Request) (*reply, error) {
	text, fromProc := gate.MarkIn(c), false
	if s.seal != nil && text == "" && gate.IsSealed(req.Target) { // by ext_proc, if that stands before ext_authz
		if target, ok := s.seal.Reveal(req.Method, req.Target); ok {
			req.Target, text = gate.Unmark(target)
			fromProc = text != ""
		}
	}
	mark, result := s.marks.Take(text)
	switch {
	case result == "":
		return nil, nil
	case result != gate.MarkTaken:
		return deny(gate.RefusedMark(result), gate.VerdictNone)
	case mark.Stage != gate.StageAuthz && s.seal != nil && !fromProc:
		reply, err := allow(gate.VerdictNone, false, c.forged())
		if err != nil {
			return nil, err
		}
		return reply.withPath(s.seal.HideMarked(req.Method, req.Target, text))
	}
	report := g.Report(gate.AdapterAuthz, &mark, req)
	report.Sealed, report.RawLines = fromProc, c.headerMap != nil
	if mark.Delay > 0 {
		_ = wait.For(ctx, min(mark.Delay, gate.MaxMarkDelay))
	}
	report.Time = time.Now().UTC()
	return deny(report.Reply(), gate.VerdictNone)
}
