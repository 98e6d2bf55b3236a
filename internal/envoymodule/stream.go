package envoymodule

import (
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Stream is one HTTP stream whose request is not done with. All of it is the worker's:
// its methods are called by Envoy, one at a time.
type Stream struct {
	face    *Face
	decider *decider
	envoy   Envoy
	mail    mailbox

	stage    stage
	body     []byte // of the request, as far as it was waited for
	state    order.BodyState
	settles  bool // by its rule
	over     bool
	answered bool     // the response's headers have come, or an answer was given
	bracket  *bracket // of a settlement; nil: none
	create   *create  // nil: none, or it is done with
}

// stage is where a request stands.
type stage int8

const (
	reading stage = iota // its headers, or its body, are yet to come
	waiting              // for a verdict, or for a lock: it is not passed on
	passed               // it is on its way
	refused              // it was answered here
)

// On tells the stream what happened, and returns what to do. End is the end of a message,
// where the event is about one.
func (s *Stream) On(e Event, end bool) (step Step) {
	defer func() {
		if v := recover(); v != nil {
			step = s.failed(e, v)
		}
	}()
	switch e {
	case RequestBody:
		return s.requestBody(end)
	case RequestTrailers:
		return s.requestTrailers()
	case ResponseHeaders:
		return s.responseHeaders(end)
	case ResponseBody:
		return s.responseBody(end)
	case ResponseTrailers:
		return s.responseTrailers()
	case Woken:
		if task := s.mail.take(); task != nil {
			return task()
		}
	case Complete:
		s.complete()
	}
	return Step{}
}

// Done tells that nothing that may yet happen to the stream is of interest.
func (s *Stream) Done() bool {
	return s.over || (s.stage == passed || s.stage == refused) && s.bracket == nil && s.create == nil
}

// requestStep is what becomes of a request at its present stage.
func (s *Stream) requestStep() Step {
	switch s.stage {
	case passed:
		return Step{Do: PassRequest}
	case reading:
		return Step{Do: Read}
	}
	return Step{Do: Wait}
}

func (s *Stream) requestBody(end bool) Step {
	if s.stage != reading {
		return s.requestStep()
	}
	s.body = appendTo(s.body, s.envoy.Chunks(Request))
	switch {
	case end:
		return s.bodyIsThere(order.BodyComplete)
	case len(s.body) > gate.MaxSettlement: // no rule reads as much
		return s.bodyIsThere(order.BodyCut)
	}
	return Step{Do: Read}
}

func (s *Stream) requestTrailers() Step {
	if s.stage != reading {
		return s.requestStep()
	}
	return s.bodyIsThere(order.BodyComplete)
}

// bodyIsThere asks for the verdict again.
func (s *Stream) bodyIsThere(state order.BodyState) Step {
	s.state = state
	h := s.envoy.Headers(Request)
	return s.glimpsed(h, s.decider.gate.Glance(h.request(s.body, s.state)))
}

// glimpsed goes on with a verdict, unless that takes time.
func (s *Stream) glimpsed(h Headers, g gate.Glimpse) Step {
	switch {
	case g.NeedsBody:
		return Step{Do: Read}
	case g.Asks != nil:
		s.stage = waiting
		s.settles = s.decider.gate.Policies()[g.Decision.Rule].Settle != nil
		s.await(g.Asks)
		return Step{Do: Wait}
	}
	return s.judged(h, &g.Decision)
}

// await has a filter asked whose orders are not in memory.
func (s *Stream) await(a *gate.Asking) {
	s.mail.open(s.envoy)
	s.face.spawn("a lookup", func() {
		defer func() {
			if v := recover(); v != nil { // nobody else goes on with the request
				s.face.recovered("a lookup", v)
				s.mail.post(s.undecided)
			}
		}()
		d := a.Decide(s.face.ctx)
		s.mail.post(func() Step {
			if s.answered {
				return Step{} // Envoy was faster, or the client
			}
			if d.Refused { // a flood of them must not fetch what nobody looks at
				return s.judged(nil, &d)
			}
			return s.judged(s.envoy.Headers(Request), &d)
		})
	})
}

// judged does what follows a verdict.
func (s *Stream) judged(h Headers, d *gate.Decision) Step {
	step, opens := s.decider.verdict(s.envoy, h, d)
	if opens {
		s.settles = s.decider.gate.Policies()[d.Rule].Settle != nil
		return s.open(h)
	}
	s.stage = passed
	if step.Do == Refuse {
		s.stage, s.answered = refused, true
		s.face.logRefused(s.decider.gate, s.envoy, h, d)
	}
	return step
}

// open begins the call of a rule that creates or settles.
func (s *Stream) open(h Headers) Step {
	call := s.decider.gate.OpenJudged(h.request(s.body, s.state))
	s.body = nil
	if call.Decision.Refused {
		s.face.logRefused(s.decider.gate, s.envoy, h, &call.Decision)
		return s.refuse(s.decider.refusals[call.Decision.Rule][call.Decision.Refusal()])
	}
	if call.NeedsLock {
		s.stage = waiting
		s.mail.open(s.envoy)
		s.bracket = newBracket(s, call)
		return Step{Do: Wait}
	}
	h.strip(s.envoy, ours, call.Decision.Action == gate.ActionCreate)
	if call.NeedsAnswer {
		s.create = &create{call: call, stream: s}
	}
	s.stage = passed
	return Step{Do: PassRequest}
}

func (s *Stream) refuse(r *Reply) Step {
	s.stage, s.answered = refused, true
	return Step{Do: Refuse, Reply: r}
}

func (s *Stream) responseHeaders(end bool) Step {
	s.answered = true
	switch {
	case s.bracket != nil:
		s.bracket.answered(response(s.envoy, s.envoy.Headers(Response)))
		if end {
			s.bracket.finished()
		}
	case s.create != nil:
		h := s.envoy.Headers(Response)
		return s.create.answered(response(s.envoy, h), h, end)
	}
	return Step{Do: PassResponse}
}

func (s *Stream) responseBody(end bool) Step {
	switch {
	case s.create != nil:
		return s.create.more(end)
	case s.bracket != nil && end:
		s.bracket.finished()
	}
	return Step{Do: PassResponse}
}

func (s *Stream) responseTrailers() Step {
	switch {
	case s.create != nil && s.create.end():
		return Step{Do: Wait}
	case s.bracket != nil:
		s.bracket.finished()
	}
	return Step{Do: PassResponse}
}

// complete is the end of the stream, well or badly: nothing that is posted comes any
// more.
func (s *Stream) complete() {
	if s.over {
		return
	}
	s.over = true
	s.mail.close()
	var last *gate.Response
	if !s.answered {
		last = response(s.envoy, nil)
	}
	if s.create != nil {
		s.create.left(last)
	}
	if s.bracket != nil {
		s.bracket.ended(last, s.stage == passed)
	}
}

// failed is a fault of ours.
func (s *Stream) failed(at Event, v any) Step {
	s.face.recovered(at.String(), v)
	switch {
	case at == Complete:
		return Step{}
	case at == ResponseHeaders, at == ResponseBody, at == ResponseTrailers:
		return Step{Do: PassResponse}
	case !s.answered && s.stage == passed && s.bracket != nil:
		return Step{Do: PassRequest}
	}
	return s.undecided()
}

// undecided is what becomes of a request that a fault of ours has hit.
func (s *Stream) undecided() Step {
	if s.answered {
		return Step{}
	}
	step := Step{Do: Refuse, Reply: s.face.fault}
	if !s.settles { // never without its lock
		step = s.face.failed(s.envoy.Headers(Request).Get(":method"))
	}
	if step.Do == Refuse {
		return s.refuse(step.Reply)
	}
	s.stage = passed
	return step
}

var eventNames = [...]string{
	RequestBody: "request body", RequestTrailers: "request trailers", ResponseHeaders: "response headers",
	ResponseBody: "response body", ResponseTrailers: "response trailers", Woken: "a wake-up", Complete: "the end of a stream",
	requestHeaders: "request headers",
}

// String returns the name that the log uses.
func (e Event) String() string { return eventNames[e] }
