package lockmw

import (
	"context"
	"sync"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// settlement is the stream of a call with a lock. Its handler receives messages until the
// stream ends, also during the wait for the lock, so that an abort ends the wait at once.
// The lock arrives in another goroutine.
type settlement struct {
	server    *Server
	stream    extproc.ExternalProcessor_ProcessServer
	answers   *gateReplies
	pass      forwarding
	cancel    context.CancelFunc // cancels the wait for the lock
	started   time.Time          // the time at which the wait began
	acquiring sync.WaitGroup     // done when the wait ends

	mu         sync.Mutex // held during each event of the call, and while its reply is sent
	call       *gate.Call
	over       bool // the call has ended
	learnsBody bool // the next piece of the answer's body has the new order's ID
	replied    bool // Envoy has a reply, or has sent an answer of its own
}

// handleSettle serves a call with a lock.
func (s *Server) handleSettle(stream extproc.ExternalProcessor_ProcessServer, a *gateReplies, call *gate.Call, pass forwarding) error {
	ctx, cancel := context.WithCancel(stream.Context())
	b := &settlement{server: s, stream: stream, answers: a, pass: pass, cancel: cancel, started: time.Now(), call: call}
	b.acquiring.Add(1)
	call.Acquire(ctx, b.onGrant)
	b.receive()
	b.acquiring.Wait()
	return nil
}

// onGrant handles the result of the lock request. It does not block: its reply fits into
// the window of a stream.
func (b *settlement) onGrant(g gate.Grant) {
	defer b.acquiring.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch step := b.call.Granted(g); {
	case step.Answer != nil:
		b.replied = true
		answer := answerWith(step.Answer.Status, 0, step.Answer.Headers, step.Answer.Body, gate.VerdictReplayed)
		_ = b.stream.Send(describe(answer, b.call))
	case step.Refuse:
		b.replied = true
		b.server.problems.Refused(b.call, step, g)
		_ = b.stream.Send(b.answers.refuse(b.call)) // the stream ends in either case
	case step.Forward:
		b.replied = true
		if err := b.stream.Send(describe(b.pass.forward(b.call, step.Lease), b.call)); err != nil {
			// The message was not sent, so Envoy did not forward the request. (After a
			// message that was sent, the request may still be gone. Such a call ends
			// without an answer, and the lock is held.)
			b.call.Unsent()
			return
		}
		b.call.NotifyLost(b.onLost)
	}
}

// onLost ends a call that lost its lease before its answer arrived, or that lasts too long. The
// stream's end follows.
func (b *settlement) onLost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || !b.call.LeaseLost().Refuse {
		return
	}
	b.server.problems.Ended(b.call)
	_ = b.stream.Send(b.answers.refuse(b.call)) // the stream ends in either case
}

// receive handles Envoy's messages until the stream ends. The error does not tell why it
// ended: a normal end arrives as EOF or as Canceled. receive does not watch the stream's
// context, which ends at the same moment as the stream: it would miss the end every other
// time.
func (b *settlement) receive() {
	for {
		msg, err := b.stream.Recv()
		if err == nil {
			err = b.onMessage(msg)
		}
		if err != nil {
			b.onEnd()
			return
		}
	}
}

// onMessage handles a message and replies to it. It returns an error once the stream is
// over.
func (b *settlement) onMessage(msg *extproc.ProcessingRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return context.Canceled
	}
	reply, last := continueReply(msg), false
	if headers := msg.GetResponseHeaders(); headers != nil {
		b.replied = true
		r := response(headers, msg)
		b.server.checkAttributes(b.call, r)
		if b.call.Answered(r).Cancel {
			b.cancel()
		}
		last = b.call.IsAnswerEmpty()
		if b.call.MayCreate() {
			b.created(r, headers)
		}
		if b.learnsBody {
			reply = onResponse()
			reply.ModeOverride = wholeCreate
		}
	}
	if body := msg.GetResponseBody(); body != nil {
		last = b.call.AnswerBody(body.GetBody())
		if b.learnsBody {
			b.learnsBody = false
			b.learn(func(ctx context.Context) error { return b.call.LearnBody(ctx, body.GetBody(), !body.GetEndOfStream()) })
		}
	}
	if trailers := msg.GetResponseTrailers(); trailers != nil {
		b.call.GRPCTrailers(gate.GRPCStatusIn(headerMap(trailers.GetTrailers().GetHeaders())))
		b.call.AnswerTrailers()
	}
	if last || endsResponse(msg) {
		b.finish()
	}
	return b.stream.Send(describeNews(reply, b.call))
}

// created handles the headers of the answer to a create with a lock.
func (b *settlement) created(r *gate.Response, headers *extproc.HttpHeaders) {
	switch b.call.Created(r) {
	case gate.NoPart:
	case gate.BodyPart:
		if b.learnsBody = !headers.GetEndOfStream(); !b.learnsBody {
			b.learn(func(ctx context.Context) error { return b.call.LearnBody(ctx, nil, false) })
		} else if !b.server.ends.shown.Load() {
			b.learn(b.call.LearnUnseen)
		}
	case gate.HeaderPart:
		text := b.call.HeaderText(r.Header)
		b.learn(func(ctx context.Context) error { return b.call.LearnHeader(ctx, text) })
	}
}

// learn makes a new order known before its answer is passed on.
func (b *settlement) learn(do func(context.Context) error) {
	b.server.learn(b.stream.Context(), b.call, do)
}

// finish handles the end of the response. If the answer is stored, that is done before the
// client sees its end.
func (b *settlement) finish() {
	step := b.call.Finished()
	b.server.ends.show()
	if step.NotStored != "" {
		b.server.problems.NotStored(b.call, step.NotStored)
	}
	if !step.Store {
		return
	}
	stored := make(chan error)
	b.call.Store(func(err error) { stored <- err })
	if err := <-stored; err != nil {
		b.server.problems.StoreFailed(b.call, err)
	}
}

// endsResponse reports whether a message is the last one of a response.
func endsResponse(msg *extproc.ProcessingRequest) bool {
	return msg.GetResponseHeaders().GetEndOfStream() || msg.GetResponseBody().GetEndOfStream() || msg.GetResponseTrailers() != nil
}

// onEnd ends the call, once, and cancels the wait for its lock.
func (b *settlement) onEnd() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over = true
	if b.call.AwaitsAnswer() {
		b.server.endUnanswered(b.call)
	}
	b.call.Ended()
	b.cancel()
	if b.call.MayCreate() && b.replied {
		b.learn(func(ctx context.Context) error { return b.call.StreamEnded(ctx, nil) })
	}
	if !b.replied {
		b.server.waits.note(b.call, time.Now(), b.started)
	}
}
