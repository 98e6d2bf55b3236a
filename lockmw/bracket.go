package lockmw

import (
	"context"
	"sync"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// bracket is the stream of a call with a lock around it. Its handler waits for the lock,
// and then for the end of the stream. Messages are received by a goroutine of its own,
// so that an abort ends the wait at once.
type bracket struct {
	server *Server
	stream extproc.ExternalProcessor_ProcessServer
	cancel context.CancelFunc // ends the wait for the lock

	mu        sync.Mutex // held for each event of the call, with what is sent for it
	call      *gate.Call
	leaseLost bool
	over      bool // the call has ended
}

// bracket serves a call with a lock around it.
func (s *Server) bracket(stream extproc.ExternalProcessor_ProcessServer, a *answers, call *gate.Call, at stage) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	b := &bracket{server: s, stream: stream, cancel: cancel, call: call}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.receive()
	}()
	g := call.Acquire(ctx)
	lost, end, err := b.granted(a, at, g)
	if !end {
		b.await(ended, lost)
	}
	b.end()
	return err
}

// await returns at the end of the stream.
func (b *bracket) await(ended, lost <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-lost:
	}
	b.mu.Lock()
	b.leaseLost = true
	b.server.log.Warn("the call outlives its lease: its fence is stale", "key", b.call.Key())
	b.mu.Unlock()
	<-ended
}

// granted acts on the end of the wait for a lock. It reports whether the stream is done
// with; if not, lost is closed when the lease ends before the call.
func (b *bracket) granted(a *answers, at stage, g gate.Grant) (lost <-chan struct{}, end bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cleanup, done := b.server.cleanupContext(b.stream.Context())
	defer done()
	step := b.call.Granted(cleanup, g)
	switch {
	case step.Refuse:
		if b.call.Decision.Verdict == gate.VerdictUnavailable {
			b.server.refused.Note("key", b.call.Key(), "error", g.Err)
		}
		return nil, true, b.stream.Send(a.refuse(&b.call.Decision))
	case step.Forward:
		if err := b.stream.Send(forward(b.call, step.Lease, at)); err != nil {
			// The message did not leave, so Envoy did not forward the request. (One
			// that left may still find the request gone: that ends without an
			// answer, and the lock is held.)
			b.call.Unsent(cleanup)
			return nil, true, nil
		}
	}
	return b.call.Lost(), false, nil
}

// receive acts on the messages of Envoy until the stream ends. Which error ended it says
// nothing: a good end comes as EOF or as Canceled, whichever is first. It does not go by
// the stream's context, which ends at the same moment as the stream: it would miss the
// end every other time. When the handler returns gRPC ends the stream, and Recv with it;
// the handler cannot wait for that.
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
		if b.call.Answered(response(headers, msg)).Cancel {
			b.cancel()
		}
	}
	reply := passOn(msg)
	if b.leaseLost {
		tellLost(reply)
	}
	return b.stream.Send(reply)
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
}
