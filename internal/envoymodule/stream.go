package envoymodule

import (
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Stream is one HTTP stream that needs more events. Envoy's worker owns it, and calls its
// methods one at a time.
type Stream struct {
	adapter *Adapter
	replies *gateReplies
	envoy   Envoy
	mail    mailbox

	stage      stage
	body       []byte // of the request, as far as it was read
	bodyState  order.BodyState
	rule       order.Found // of a request whose body it reads
	settles    bool        // its rule does
	completed  bool
	answered   bool        // the response's headers have arrived, or ordergate has answered
	ended      bool        // all of the response has arrived
	settlement *settlement // nil: none
	create     *create     // nil: none, or it is finished
	lookup     *lookup     // nil: none, or it is finished
	proof      *proof      // nil: none, or it is finished
}

// stage is the progress of a request.
type stage int8

const (
	reading stage = iota // its headers, or its body, are still to come
	waiting              // for a verdict or a lock, before it is forwarded
	passed               // it was forwarded
	refused              // ordergate has answered it
)

// On handles an event and returns the next step. End means the end of the message, if the
// event concerns one.
func (s *Stream) On(e Event, end bool) (step Step) {
	defer func() {
		if v := recover(); v != nil {
			step = s.onFault(e, v)
		}
	}()
	if s.proof != nil {
		return s.proof.on(e, end)
	}
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
		if task := s.mail.next(); task != nil {
			return task()
		}
	case Complete:
		s.complete()
	}
	return Step{}
}

// Done reports whether no later event matters.
func (s *Stream) Done() bool {
	return s.completed || (s.stage == passed || s.stage == refused) && s.settlement == nil && s.create == nil && s.lookup == nil && s.proof == nil
}

// requestStep is the step for more of a request at its present stage.
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
		return s.screenBody(order.BodyComplete)
	case len(s.body) > gate.MaxSettlement: // no rule reads as much
		return s.screenBody(order.BodyCut)
	}
	return Step{Do: Read}
}

func (s *Stream) requestTrailers() Step {
	if s.stage != reading {
		return s.requestStep()
	}
	return s.screenBody(order.BodyComplete)
}

// screenBody judges the request again, with its body.
func (s *Stream) screenBody(state order.BodyState) Step {
	s.bodyState = state
	h := s.envoy.Headers(Request)
	result := s.replies.gate.TryScreenBody(h.request(s.body, s.bodyState), s.rule)
	return s.onResult(h, &result)
}

// onResult continues with a verdict, or starts the work that leads to one.
func (s *Stream) onResult(h Headers, result *gate.TryResult) Step {
	switch {
	case result.NeedsBody:
		s.rule = result.Found
		return Step{Do: Read}
	case result.Pending != nil:
		s.stage = waiting
		s.settles = s.replies.gate.Policies()[result.Decision.Rule].HasLock()
		s.resolve(*result)
		return Step{Do: Wait}
	}
	return s.onDecision(h, result)
}

// resolve asks a filter whose orders are not in memory.
func (s *Stream) resolve(result gate.TryResult) {
	s.mail.open(s.envoy)
	s.adapter.spawn("a lookup", func() {
		defer func() {
			if v := recover(); v != nil { // nothing else would continue the request
				s.adapter.logFault("a lookup", v)
				s.mail.post(s.replyToFault)
			}
		}()
		result.Decision = result.Pending.Resolve(s.adapter.ctx)
		s.mail.post(func() Step {
			if s.answered {
				return Step{} // Envoy has answered, or the client has left
			}
			if result.Decision.Refused { // do not read headers for a flood of refusals
				return s.onDecision(nil, &result)
			}
			return s.onDecision(s.envoy.Headers(Request), &result)
		})
	})
}

// onDecision carries out a verdict.
func (s *Stream) onDecision(h Headers, result *gate.TryResult) Step {
	d := &result.Decision
	var read *gate.Call // nil: the answer is not read
	options := 0
	if s.replies.readsAnswer(d) {
		// Before headers are removed: that frees their memory.
		if call := result.Open(h.request(s.body, s.bodyState)); call.NeedsAnswer {
			read, options = call, len(call.AnswerOptions())
		}
	}
	step, opens := s.replies.verdict(s.envoy, h, d, options)
	if opens {
		s.settles = s.replies.gate.Policies()[d.Rule].HasLock()
		return s.openCall(h, result)
	}
	s.stage = passed
	if step.Do == Refuse {
		s.stage, s.answered = refused, true
		s.adapter.reportRefused(s.replies.gate, s.envoy, h, d)
	}
	if read != nil {
		s.lookup, step.WatchNotFound = &lookup{call: read, stream: s}, 0
	}
	return step
}

// openCall begins the call of a rule that creates or settles.
func (s *Stream) openCall(h Headers, result *gate.TryResult) Step {
	call := result.Open(h.request(s.body, s.bodyState))
	s.body = nil
	if call.Decision.Refused {
		s.adapter.reportRefused(s.replies.gate, s.envoy, h, &call.Decision)
		describe(s.envoy, call)
		return s.refuse(s.replies.refuse(&call.Decision))
	}
	if call.NeedsLock {
		s.stage = waiting
		s.mail.open(s.envoy)
		s.settlement = newSettlement(s, call)
		return Step{Do: Wait}
	}
	h.strip(s.envoy, stripOwned, len(call.AnswerOptions()))
	s.accept(call)
	if call.NeedsAnswer {
		s.create = &create{call: call, stream: s}
	}
	s.stage = passed
	return Step{Do: PassRequest}
}

// describe sets the metadata of a call, if there are any.
func describe(e Envoy, call *gate.Call) {
	if m, ok := call.Metadata(); ok {
		e.Describe(&m)
	}
}

// describeNews is describe if there is anything new.
func describeNews(e Envoy, call *gate.Call) {
	if m, ok := call.News(); ok {
		e.Describe(&m)
	}
}

// accept sets the request's Accept to that of its call. It first removes that of the client,
// which may have several lines.
func (s *Stream) accept(call *gate.Call) {
	if accept := call.Accept(); accept != "" {
		s.envoy.Remove(Request, gate.HeaderAccept)
		s.envoy.Set(Request, gate.HeaderAccept, accept)
	}
}

func (s *Stream) refuse(r *Reply) Step {
	s.stage, s.answered = refused, true
	return Step{Do: Refuse, Reply: r}
}

func (s *Stream) responseHeaders(end bool) Step {
	s.answered, s.ended = true, end
	if s.settlement == nil && s.create == nil && s.lookup == nil {
		return Step{Do: PassResponse}
	}
	h := s.envoy.Headers(Response)
	r := answer(s.envoy, h, end)
	if s.lookup != nil {
		return s.lookup.responseHeaders(r)
	}
	if s.settlement != nil && s.settlement.answered(r) {
		s.ended = true
	}
	step := Step{Do: PassResponse}
	if s.create != nil {
		step = s.create.responseHeaders(r, end)
	}
	return s.endResponse(step)
}

func (s *Stream) responseBody(end bool) Step {
	s.ended = s.ended || end
	if s.lookup != nil {
		return s.lookup.responseBody(end)
	}
	if s.settlement != nil && s.settlement.answerBody() {
		s.ended = true
	}
	step := Step{Do: PassResponse}
	if s.create != nil {
		step = s.create.responseBody(end)
	}
	return s.endResponse(step)
}

func (s *Stream) responseTrailers() Step {
	s.ended = true
	if s.lookup != nil {
		return s.lookup.finish(true)
	}
	if s.settlement != nil {
		s.settlement.trailers(s.envoy.Headers(ResponseTrailer))
	}
	if s.create != nil && s.create.responseTrailers() {
		return Step{Do: Wait}
	}
	return s.endResponse(Step{Do: PassResponse})
}

// endResponse reports the end of the response to a call with a lock, before the step passes it
// on.
func (s *Stream) endResponse(step Step) Step {
	if step.Do == PassResponse && s.ended && s.settlement != nil {
		return s.settlement.finished()
	}
	return step
}

// complete handles the end of the stream, for whatever reason. The mailbox drops later
// tasks.
func (s *Stream) complete() {
	if s.completed {
		return
	}
	s.completed = true
	s.mail.close()
	var last *gate.Response
	if !s.answered {
		last = response(s.envoy, nil)
	}
	if s.create != nil {
		s.create.streamEnded(last)
	}
	if s.lookup != nil {
		s.lookup.streamEnded()
	}
	if s.settlement != nil {
		s.settlement.ended(last, s.stage == passed)
	}
}

// onFault returns the step after a fault of ordergate.
func (s *Stream) onFault(at Event, v any) Step {
	s.adapter.logFault(at.String(), v)
	switch {
	case at == Complete:
		return Step{}
	case at == ResponseHeaders, at == ResponseBody, at == ResponseTrailers:
		return Step{Do: PassResponse}
	case !s.answered && s.stage == passed && s.settlement != nil:
		return Step{Do: PassRequest}
	}
	return s.replyToFault()
}

// replyToFault refuses or forwards a request during which a fault occurred.
func (s *Stream) replyToFault() Step {
	if s.answered {
		return Step{}
	}
	h := s.envoy.Headers(Request)
	step := Step{Do: Refuse, Reply: s.adapter.faultReplyTo(h)}
	if !s.settles { // a settlement is never forwarded without its lock
		step = s.adapter.onFault(h)
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
