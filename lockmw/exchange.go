package lockmw

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// exchange is the stream of one request: it reports Envoy's messages to the call, and carries out its
// steps. Its handler receives messages until the stream ends, also while the call waits for its lock, so
// that an abort ends the wait at once. The lock, and its loss, arrive in other goroutines.
type exchange struct {
	server     *Server
	stream     extproc.ExternalProcessor_ProcessServer
	replies    *gateReplies
	forwarding forwarding
	req        *order.Request // its headers; nil: they are no longer needed
	acquiring  sync.WaitGroup // done when the wait for the lock has ended
	since      time.Time      // the time at which it began
	crowded    atomic.Bool    // a message has arrived since, whose reply the client may not take up

	mu sync.Mutex // held during each event of the call, and while the reply to it is sent
	// The handler's goroutine alone changes asked, and reads it and what it has set of the call without mu.
	call    *gate.Call
	asked   bool // for the request's body, which has not come yet
	replied bool // Envoy has a reply, or has sent an answer of its own
}

// run serves the request. The error of Recv does not tell why the stream ended: a normal end
// arrives as EOF or as Canceled. run does not watch the stream's context, which ends at the same moment
// as the stream: it would miss the end every other time.
func (x *exchange) run() {
	for done := x.on(gate.Event{Kind: gate.Opened}, nil); !done; {
		msg, err := x.stream.Recv()
		if err != nil {
			break
		}
		done = x.onMessage(msg)
	}
	x.on(gate.Event{Kind: gate.StreamEnded}, nil)
	x.acquiring.Wait()
}

// onMessage reports a message of Envoy's. It reports whether no later one matters.
func (x *exchange) onMessage(msg *extproc.ProcessingRequest) (done bool) {
	x.crowded.Store(true)
	switch m := msg.GetRequest().(type) {
	case *extproc.ProcessingRequest_RequestBody:
		if x.asked {
			x.server.bodies.shown.Store(true)
			x.asked = false
			x.req.Body, x.req.BodyState = m.RequestBody.GetBody(), order.BodyComplete
			return x.on(gate.Event{Kind: gate.RequestBody, Request: x.req}, msg)
		}
	case *extproc.ProcessingRequest_RequestTrailers:
		if x.asked {
			x.asked = false
			return x.on(gate.Event{Kind: gate.RequestTrailers}, msg)
		}
	case *extproc.ProcessingRequest_ResponseHeaders:
		r := response(m.ResponseHeaders, msg)
		if !x.asked && x.call.Decision.Action != gate.ActionLookup {
			x.server.checkAttributes(x.call, r)
		}
		x.asked = false
		x.noteEnd(r.Ended && x.call.NeedsLock)
		return x.on(gate.Event{Kind: gate.ResponseHeaders, Response: r, Unseen: !x.server.ends.shown.Load()}, msg)
	case *extproc.ProcessingRequest_ResponseBody:
		end := m.ResponseBody.GetEndOfStream()
		x.noteEnd(end || !x.call.NeedsLock)
		return x.on(gate.Event{Kind: gate.ResponseBody, Body: m.ResponseBody.GetBody(), End: end, Cut: true}, msg)
	case *extproc.ProcessingRequest_ResponseTrailers:
		x.noteEnd(x.call.NeedsLock)
		return x.on(gate.Event{Kind: gate.ResponseTrailers, GRPCStatus: gate.GRPCStatusIn(headerMap(m.ResponseTrailers.GetTrailers().GetHeaders()))}, msg)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stream.Send(continueReply(msg)) != nil
}

// noteEnd notes that Envoy has shown the end of an answer: to a call with a lock, or the body of that to a
// create.
func (x *exchange) noteEnd(shown bool) {
	if shown && x.call.Decision.Action != gate.ActionLookup {
		x.server.ends.show()
	}
}

// on reports an event, and then the end of work that Envoy has to wait for. The message is the one that
// waits for a reply; nil: none, or the request's headers do.
func (x *exchange) on(e gate.Event, msg *extproc.ProcessingRequest) (done bool) {
	for {
		step, sent := x.step(e, msg)
		if e.Kind == gate.StreamEnded {
			x.noteUnfinished(&step)
		}
		if !sent {
			return true
		}
		if !step.Work.Waits() {
			x.begin(step.Work)
			return step.Done
		}
		e = x.await(step.Work, e.Kind == gate.StreamEnded)
	}
}

// step reports an event, and sends the reply.
func (x *exchange) step(e gate.Event, msg *extproc.ProcessingRequest) (step gate.Step, sent bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	step = x.call.On(e)
	return step, x.reply(&step, msg)
}

// begin begins work that Envoy does not wait for. Its event arrives in another goroutine, or before Start
// returns, and is handled there: the first reply to a request fits into the window of its stream.
func (x *exchange) begin(w gate.Work) {
	switch w {
	case gate.Acquire:
		x.since = time.Now()
		x.acquiring.Add(1)
		x.req = nil // not to be kept for as long as it waits
		x.crowded.Store(false)
		x.call.Start(x.stream.Context(), gate.Acquire, func(e gate.Event) {
			end := func() { defer x.acquiring.Done(); x.on(e, nil) }
			if x.crowded.Load() {
				go end()
				return
			}
			end()
		})
	case gate.Watch:
		x.call.Start(x.stream.Context(), gate.Watch, func(e gate.Event) { x.on(e, nil) })
	}
}

// await does work, and returns the event that it ends with. A new order is learned, and an answer stored, even
// if the client has left. The filter, and the locker, bound the time.
func (x *exchange) await(w gate.Work, ended bool) gate.Event {
	ctx := x.stream.Context()
	if w != gate.Screen {
		ctx = context.WithoutCancel(ctx)
	}
	if w == gate.LearnOrder && !ended && !x.call.NeedsLock { // with a lock, the handler receives from the stream afterwards
		defer x.server.delayed.watch(x.stream, x.call)()
	}
	result := make(chan gate.Event, 1)
	x.call.Start(ctx, w, func(e gate.Event) { result <- e })
	return <-result
}

// reply sends what a step has Envoy do. It returns false if that cannot be sent.
func (x *exchange) reply(step *gate.Step, msg *extproc.ProcessingRequest) (sent bool) {
	if step.Unlocked {
		x.server.reportUnseen(x.call)
	}
	var reply *extproc.ProcessingResponse
	switch step.Do {
	case gate.ReadRequest:
		x.asked = true
		reply = x.forwarding.askForBody(step, x.req)
	case gate.PassRequest:
		x.replied = true
		if msg.GetRequestTrailers() != nil { // of an Envoy that is set to show them
			reply = continueReply(msg)
		} else {
			reply = x.forwarding.forward(x.call, step)
		}
		if x.send(reply, step) {
			return true
		}
		// Envoy did not forward the request. (After a message that was sent, the request may still be gone.
		// Such a call ends without an answer, and the lock is held.)
		x.call.On(gate.Event{Kind: gate.Unsent})
		return false
	case gate.Refuse:
		x.replied = true
		if step.Answer != nil {
			reply = immediate(step.Answer)
		} else {
			reply = x.replies.refusals.To(&x.call.Decision)
		}
	case gate.ReadResponse, gate.PassResponse:
		x.replied = true
		reply = passResponse(msg, step)
	case gate.Wait:
		return true
	case gate.Nothing:
		if msg == nil {
			return true
		}
		reply = continueReply(msg)
	}
	return x.send(reply, step)
}

func (x *exchange) send(reply *extproc.ProcessingResponse, step *gate.Step) bool {
	if step.Metadata != nil {
		reply = withMetadata(reply, step.Metadata)
	}
	return x.stream.Send(reply) == nil
}

// noteUnfinished handles the end of a stream.
func (x *exchange) noteUnfinished(step *gate.Step) {
	switch {
	case x.asked:
		x.server.endUnseen(x.call)
	case step.Unfinished:
		x.server.endUnanswered(x.call, step.CutOff)
	}
	if x.replied || x.since.IsZero() {
		return
	}
	now := time.Now()
	if after := now.Sub(x.since); x.server.waits.isSame(now, after) {
		x.server.waits.cut.Note(append(x.call.LogArgs(), "after", after.Round(time.Millisecond))...)
	}
}
