package envoymodule

import (
	"time"
	"unsafe"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// Stream is one HTTP stream that needs more events. Envoy's worker owns it, and calls its
// methods one at a time. It first judges the request, and then reports what it sees to the call.
//
// Work for the call goes on in other goroutines, and its events come back by the mailbox: only the worker
// reports to the call, and only the worker forwards. Of two events that race, the worker handles one first;
// internal/gate/bracket.go says what becomes of the lock then.
type Stream struct {
	adapter *Adapter
	replies *gateReplies
	envoy   Envoy
	mail    mailbox

	stage     stage
	body      []byte // of the request, as far as it was read
	bodyState order.BodyState
	rule      order.Found // of a request whose body it reads
	answered  bool        // the response's headers have arrived, or ordergate has answered
	completed bool
	call      *gate.Call // nil: none
	done      bool       // no later event matters to the call
	held      bool       // Envoy holds the answer back, until a step passes it
	timer     *time.Timer
	learning  *delayedAnswer // nil: no answer waits until an order is known
	proof     *proof         // nil: none, or it is finished
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
	switch isRequest := e == RequestBody || e == RequestTrailers; {
	case isRequest && s.stage == passed:
		return Step{Do: PassRequest}
	case isRequest && s.stage != reading:
		return Step{Do: Wait}
	case s.proof != nil:
		return s.proof.on(e, end)
	}
	switch e {
	case RequestBody:
		return s.requestBody(end)
	case RequestTrailers:
		return s.screenBody(order.BodyComplete)
	case ResponseHeaders, ResponseBody, ResponseTrailers:
		s.answered = s.answered || e == ResponseHeaders
		if s.call == nil {
			return Step{Do: PassResponse}
		}
		return s.report(s.answerEvent(e, end))
	case Woken:
		if task := s.mail.next(); task != nil {
			return task()
		}
	case Complete:
		s.complete()
	}
	return Step{}
}

// answerEvent returns the call's event for one of the answer.
func (s *Stream) answerEvent(e Event, end bool) gate.Event {
	switch e {
	case ResponseHeaders:
		return gate.Event{Kind: gate.ResponseHeaders, Response: response(s.envoy, s.envoy.Headers(Response), end)}
	case ResponseBody:
		return gate.Event{Kind: gate.ResponseBody, Body: s.answerBody(), End: end}
	default:
		return gate.Event{Kind: gate.ResponseTrailers, GRPCStatus: gate.GRPCStatusIn(s.envoy.Headers(ResponseTrailer))}
	}
}

// answerBody returns the newest piece of the answer's body, in Envoy's memory if it is in one piece, and
// nil if the call does not need it.
func (s *Stream) answerBody() []byte {
	if !s.call.ReadsBody() {
		return nil
	}
	chunks := s.envoy.Chunks(Response)
	if len(chunks) == 1 {
		return unsafe.Slice(chunks[0].data, chunks[0].length)
	}
	return appendTo(nil, chunks)
}

// Done reports whether no later event matters.
func (s *Stream) Done() bool {
	return s.completed || s.proof == nil && (s.stage == passed || s.stage == refused) && (s.call == nil || s.done)
}

// report reports an event to the call, and carries out its step. The step is Envoy's.
func (s *Stream) report(e gate.Event) Step {
	step := s.call.On(e)
	s.done = s.done || step.Done
	s.start(step.Work)
	if s.completed && e.Kind != gate.StreamEnded {
		return Step{} // Envoy's side may be gone
	}
	if step.Metadata != nil {
		s.envoy.Describe(step.Metadata)
	}
	switch step.Do {
	case gate.PassRequest:
		return s.forward(&step)
	case gate.PassResponse:
		s.held = false
		return Step{Do: PassResponse}
	case gate.ReadResponse:
		s.held = true
		s.startTimer()
		return Step{Do: Read}
	case gate.Wait:
		if s.stage == reading {
			s.stage = waiting
		}
		s.held = s.answered
		return Step{Do: Wait}
	case gate.Refuse:
		if step.Answer != nil {
			return s.refuse(temporary(step.Answer, "ordergate_"+gate.VerdictReplayed.String()))
		}
		return s.refuse(s.replies.refusals.To(&s.call.Decision))
	}
	return Step{}
}

// start begins work. What blocks has a goroutine of its own.
func (s *Stream) start(w gate.Work) {
	if w == gate.NoWork {
		return
	}
	s.mail.open(s.envoy)
	ctx, deliver := s.adapter.ctx, s.deliver
	if w == gate.LearnOrder && !s.completed {
		s.learning = &delayedAnswer{since: time.Now(), details: s.envoy.Details()}
	}
	if w.Blocks() {
		s.adapter.spawn("a new order", func() { s.call.Start(ctx, w, deliver) })
	} else {
		s.call.Start(ctx, w, deliver)
	}
}

// deliver has an event reported: by the worker, or after the stream's end at once.
func (s *Stream) deliver(e gate.Event) {
	s.mail.post(func() Step {
		if s.completed {
			defer s.recoverFault()
		}
		if e.Kind == gate.Learned {
			s.learning = nil
		}
		return s.report(e)
	})
}

// recoverFault is deferred, where nothing waits for a step.
func (s *Stream) recoverFault() {
	if v := recover(); v != nil {
		s.adapter.logFault("a call whose stream has ended", v)
	}
}

// startTimer limits the time for the rest of an answer's body. If an answer is larger than Envoy's
// buffer, Envoy sends no more of it until it is passed on, and the size of that buffer is
// unknown here.
func (s *Stream) startTimer() {
	s.mail.open(s.envoy)
	s.timer = time.AfterFunc(s.adapter.opts.AnswerDelay, func() { s.deliver(gate.Event{Kind: gate.Delayed}) })
}

// forward forwards the request. It removes the client's headers although Set overwrites them: of a
// repeated header, Set overwrites only the first.
func (s *Stream) forward(step *gate.Step) Step {
	s.envoy.Headers(Request).strip(s.envoy, stripOwned, step.Options)
	for _, h := range step.Set {
		if h.Name == gate.HeaderAccept { // it may have several lines, too
			s.envoy.Remove(Request, h.Name)
		}
		s.envoy.Set(Request, h.Name, h.Value)
	}
	s.stage = passed
	return Step{Do: PassRequest}
}

func (s *Stream) requestBody(end bool) Step {
	s.body = appendTo(s.body, s.envoy.Chunks(Request))
	switch {
	case end:
		return s.screenBody(order.BodyComplete)
	case len(s.body) > gate.MaxSettlement: // no rule reads as much
		return s.screenBody(order.BodyCut)
	}
	return Step{Do: Read}
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
			if s.answered || s.completed {
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
	options := 0
	if s.replies.readsAnswer(d) {
		// Before headers are removed: that frees their memory.
		if call := result.Open(h.request(s.body, s.bodyState)); call.NeedsAnswer {
			s.call, options = call, call.On(gate.Event{Kind: gate.Opened}).Options
		}
	}
	step, opens := s.replies.carryOut(s.envoy, h, d, options)
	if opens {
		if s.call = result.Open(h.request(s.body, s.bodyState)); s.call.NeedsLock {
			s.call.SetClient(s.envoy.Client())
		}
		s.body = nil
		return s.report(gate.Event{Kind: gate.Opened})
	}
	if step.Do == Refuse {
		s.adapter.reportRefused(s.replies.gate, s.envoy, h, d)
		return s.refuse(step.Reply)
	}
	s.stage = passed
	if s.call != nil {
		step.WatchNotFound = 0
	}
	return step
}

// temporary is the reply to one request.
func temporary(a *gate.Answer, details string) *Reply {
	return &Reply{Answer: a, Details: details, Temporary: true}
}

func (s *Stream) refuse(r *Reply) Step {
	s.stage, s.answered, s.held = refused, true, false
	return Step{Do: Refuse, Reply: r}
}

// complete handles the end of the stream, which may have any reason.
func (s *Stream) complete() {
	if s.completed {
		return
	}
	s.completed = true
	defer s.mail.close() // after a fault, too
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.learning != nil {
		s.adapter.delayed.streamEnded(s.call, s.learning, s.envoy.Details())
	}
	if s.call != nil {
		end := gate.Event{Kind: gate.StreamEnded}
		if !s.answered {
			end.Response = response(s.envoy, nil, false)
		}
		s.report(end)
	}
}

// onFault returns the step after a fault of ordergate.
func (s *Stream) onFault(at Event, v any) Step {
	s.adapter.logFault(at.String(), v)
	switch {
	case at == Complete:
		if s.call != nil { // for the doubt about what it may have created; another goroutine may run a task by now
			s.mail.post(func() Step {
				defer s.recoverFault()
				s.start(s.call.On(gate.Event{Kind: gate.StreamEnded}).Work)
				return Step{}
			})
		}
		return Step{}
	case s.held, at == ResponseHeaders, at == ResponseBody, at == ResponseTrailers:
		s.held = false
		return Step{Do: PassResponse}
	}
	return s.replyToFault()
}

// replyToFault refuses or forwards a request during which a fault occurred, unless it has gone on.
func (s *Stream) replyToFault() Step {
	if s.answered || s.completed || s.stage == passed {
		return Step{}
	}
	step := s.adapter.onFault(s.envoy, s.envoy.Headers(Request))
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
