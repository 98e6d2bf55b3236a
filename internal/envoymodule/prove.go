package envoymodule

import (
	"strings"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// proof is a marked request. It takes no lock and changes nothing. The worker owns it.
type proof struct {
	stream *Stream
	mark   gate.Mark
	report *gate.Report
	trails bool // the request ends in trailers
}

// mark returns the mark of a request, and what becomes of it; "": the request has none.
func (a *Adapter) mark(h Headers) (mark gate.Mark, result string) {
	if a.opts.Marks == nil || h.Get(gate.HeaderDoctor) == "" {
		return mark, ""
	}
	return a.opts.Marks.Take(gate.MarkIn(h))
}

// begin handles the request's headers.
func (p *proof) begin(h Headers) Step {
	if p.mark.Stage != gate.StageAuthz && p.stream.bodyState == order.BodyUnseen {
		return Step{Do: Read}
	}
	return p.forward(h)
}

// on handles a later event.
func (p *proof) on(e Event, end bool) Step {
	s := p.stream
	if (e == ResponseHeaders || e == ResponseBody || e == ResponseTrailers) && p.report == nil { // Envoy's own
		s.proof, s.answered = nil, true
		return Step{Do: PassResponse}
	}
	switch e {
	case RequestBody:
		s.body = appendTo(s.body, s.envoy.Chunks(Request))
		if !end && len(s.body) <= gate.MaxSettlement {
			return Step{Do: Read}
		}
		return p.forward(s.envoy.Headers(Request))
	case RequestTrailers:
		p.trails = true
		return p.forward(s.envoy.Headers(Request))
	case ResponseHeaders:
		r := response(s.envoy, s.envoy.Headers(Response), end)
		p.report.Answer = &gate.AnswerSeen{Status: r.Status, Details: strings.Clone(r.Details), Attempts: r.Attempts, Ended: end}
		if !end {
			return Step{Do: Read}
		}
		return p.reply()
	case ResponseBody, ResponseTrailers: // the first piece shows that Envoy sends the others
		p.report.Answer.Ended = true
		return p.reply()
	case Complete:
		s.complete()
	}
	return Step{}
}

// forward answers a request that has been read, or sends it to the backend.
func (p *proof) forward(h Headers) Step {
	s := p.stream
	state := s.bodyState
	if s.body != nil {
		state = order.BodyComplete
	}
	p.report = s.replies.gate.Report(gate.AdapterModule, &p.mark, h.request(s.body, state))
	p.report.RawLines, p.report.Trailers = true, p.trails
	if s.body != nil {
		size := len(s.body)
		p.report.Body = &size
	}
	if p.mark.Stage != gate.StageBackend {
		return p.reply()
	}
	h.strip(s.envoy, stripOwned, 0)
	s.envoy.Set(Request, ":path", gate.MarkedPath)
	if s.body != nil {
		s.envoy.Set(Request, "content-type", gate.UnreadType)
	}
	s.stage = passed
	return Step{Do: PassRequest}
}

// reply answers in place of the backend.
func (p *proof) reply() Step {
	p.stream.proof = nil
	return p.stream.refuse(temporary(p.report.Reply().Answer(gate.VerdictNone), "ordergate_doctor"))
}
