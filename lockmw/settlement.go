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
// The lock arrives in another goroutine, which usually serves many calls.
type settlement struct {
	server    *Server
	stream    extproc.ExternalProcessor_ProcessServer
	answers   *gateReplies
	pass      forwarding
	cancel    context.CancelFunc // cancels the wait for the lock
	started   time.Time          // the time at which the wait began
	acquiring sync.WaitGroup     // done when the wait ends

	mu      sync.Mutex // held during each event of the call, and while its reply is sent
	call    *gate.Call
	over    bool // the call has ended
	replied bool // Envoy has a reply, or has sent an answer of its own
}

// handleSettle serves a call with a lock.
func (s *Server) handleSettle(stream extproc.ExternalProcessor_ProcessServer, a *gateReplies, call *gate.Call, pass forwarding) error {
	ctx, cancel := context.WithCancel(stream.Context())
	b := &settlement{server: s, stream: stream, answers: a, pass: pass, cancel: cancel, started: time.Now(), call: call}
	b.acquiring.Add(1)
	if !call.AcquireAsync(ctx, b.onGrant) {
		go func() { b.onGrant(call.Acquire(ctx)) }()
	}
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
	cleanup, done := b.server.cleanupContext(b.stream.Context())
	defer done()
	switch step := b.call.Granted(cleanup, g); {
	case step.Refuse:
		b.replied = true
		if b.call.Decision.Verdict != gate.VerdictBusy {
			b.server.refused.Note(append(b.call.LogArgs(), "key", b.call.Key(), "error", g.Err)...)
		}
		b.call.LogRefused(b.server.log)
		_ = b.stream.Send(b.answers.refuse(&b.call.Decision)) // the stream ends in either case
	case step.Forward:
		b.replied = true
		reply := b.pass.forward(b.call, step.Lease)
		showPath(reply, b.pass.hiddenPath)
		if err := b.stream.Send(reply); err != nil {
			// The message was not sent, so Envoy did not forward the request. (After a
			// message that was sent, the request may still be gone. Such a call ends
			// without an answer, and the lock is held.)
			b.call.Unsent(cleanup)
			return
		}
		b.call.NotifyLost(b.onLost)
	}
}

// onLost ends a call that lost its lease before its answer arrived. The stream's end
// follows.
func (b *settlement) onLost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || !b.call.LeaseLost().Refuse {
		return
	}
	b.server.ended.Note(append(b.call.LogArgs(), "key", b.call.Key())...)
	b.call.LogRefused(b.server.log)
	_ = b.stream.Send(b.answers.refuse(&b.call.Decision)) // the stream ends in either case
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
	if headers := msg.GetResponseHeaders(); headers != nil {
		b.replied = true
		r := response(headers, msg)
		b.server.checkAttributes(b.call, r)
		if b.call.Answered(r).Cancel {
			b.cancel()
		}
	}
	if trailers := msg.GetResponseTrailers(); trailers != nil {
		b.call.GRPCTrailers(gate.GRPCStatusIn(headerMap(trailers.GetTrailers().GetHeaders())))
	}
	if endsResponse(msg) {
		b.call.Finished()
	}
	return b.stream.Send(continueReply(msg))
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
	cleanup, done := b.server.cleanupContext(b.stream.Context())
	defer done()
	b.call.Ended(cleanup)
	b.cancel()
	if !b.replied {
		b.server.waits.note(b.call, time.Now(), b.started)
	}
}
