package lockmw

import (
	"context"
	"sync"
	"time"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// bracket is the stream of a call with a lock around it. Its handler receives messages
// until the stream ends, also while the lock is waited for, so that an abort ends the wait
// at once. The lock comes from another goroutine, which mostly serves many calls.
type bracket struct {
	server  *Server
	stream  extproc.ExternalProcessor_ProcessServer
	answers *answers
	pass    passage
	cancel  context.CancelFunc // ends the wait for the lock
	begun   time.Time          // that wait
	waits   sync.WaitGroup     // for the end of that wait

	mu   sync.Mutex // held for each event of the call, with what is sent for it
	call *gate.Call
	over bool // the call has ended
	told bool // Envoy has an answer: the lock is taken, or refused, or it has given one itself
}

// bracket serves a call with a lock around it.
func (s *Server) bracket(stream extproc.ExternalProcessor_ProcessServer, a *answers, call *gate.Call, pass passage) error {
	ctx, cancel := context.WithCancel(stream.Context())
	b := &bracket{server: s, stream: stream, answers: a, pass: pass, cancel: cancel, begun: time.Now(), call: call}
	b.waits.Add(1)
	if !call.AcquireAsync(ctx, b.granted) {
		go func() { b.granted(call.Acquire(ctx)) }()
	}
	b.receive()
	b.waits.Wait()
	return nil
}

// granted acts on the end of the wait for a lock. It does not block: what is sent fits into
// the window of a stream.
func (b *bracket) granted(g gate.Grant) {
	defer b.waits.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	cleanup, done := b.server.cleanupContext(b.stream.Context())
	defer done()
	switch step := b.call.Granted(cleanup, g); {
	case step.Refuse:
		b.told = true
		if b.call.Decision.Verdict != gate.VerdictBusy {
			b.server.refused.Note(append(b.call.About(), "key", b.call.Key(), "error", g.Err)...)
		}
		b.call.LogRefused(b.server.log)
		_ = b.stream.Send(b.answers.refuse(&b.call.Decision)) // the stream ends in either case
	case step.Forward:
		b.told = true
		reply := b.pass.forward(b.call, step.Lease)
		showPath(reply, b.pass.hidden)
		if err := b.stream.Send(reply); err != nil {
			// The message did not leave, so Envoy did not forward the request. (One
			// that left may still find the request gone: that ends without an
			// answer, and the lock is held.)
			b.call.Unsent(cleanup)
			return
		}
		b.call.NotifyLost(b.lost)
	}
}

// lost ends a call whose lease went before its answer came. The end of the stream follows.
func (b *bracket) lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || !b.call.LeaseLost().Refuse {
		return
	}
	b.server.ended.Note(append(b.call.About(), "key", b.call.Key())...)
	b.call.LogRefused(b.server.log)
	_ = b.stream.Send(b.answers.refuse(&b.call.Decision)) // the stream ends in either case
}

// receive acts on the messages of Envoy until the stream ends. Which error ended it says
// nothing: a good end comes as EOF or as Canceled, whichever is first. It does not go by
// the stream's context, which ends at the same moment as the stream: it would miss the
// end every other time.
func (b *bracket) receive() {
	for {
		msg, err := b.stream.Recv()
		if err == nil {
			err = b.message(msg)
		}
		if err != nil {
			b.end()
			return
		}
	}
}

// message passes a message on. It fails once the stream is over.
func (b *bracket) message(msg *extproc.ProcessingRequest) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return context.Canceled
	}
	if headers := msg.GetResponseHeaders(); headers != nil {
		b.told = true
		r := response(headers, msg)
		b.server.answered(b.call, r)
		if b.call.Answered(r).Cancel {
			b.cancel()
		}
	}
	if isAnswersEnd(msg) {
		b.call.Finished()
	}
	return b.stream.Send(passOn(msg))
}

// isAnswersEnd reports whether a message is the last one of an answer.
func isAnswersEnd(msg *extproc.ProcessingRequest) bool {
	return msg.GetResponseHeaders().GetEndOfStream() || msg.GetResponseBody().GetEndOfStream() || msg.GetResponseTrailers() != nil
}

// end ends the call, once, and the wait for its lock.
func (b *bracket) end() {
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
	if !b.told {
		b.server.waits.note(b.call, time.Now(), b.begun)
	}
}
