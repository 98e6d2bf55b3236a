package lockmw

import (
	"context"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// received is a message of Envoy, or the end of its stream. Which error ended it
// says nothing: a good end comes as EOF or as Canceled, whichever is first.
type received struct {
	msg *extproc.ProcessingRequest
	err error
}

// bracket serves a call with a lock around it. There is one loop and one exit;
// messages are received while the lock is awaited, so that an abort ends the
// wait at once.
func (s *Server) bracket(stream extproc.ExternalProcessor_ProcessServer, a *answers, call *gate.Call, at stage) error {
	ctx, cancel := context.WithCancel(stream.Context())
	left := make(chan struct{})
	messages := receive(stream, left)
	grants := make(chan gate.Grant, 1)
	go func() { grants <- call.Acquire(ctx) }()
	pending := true // a grant is still to come

	defer func() {
		close(left)
		cleanup, done := s.cleanupContext(ctx)
		defer done()
		call.Ended(cleanup)
		cancel()
		if pending { // it may have been granted while we left: Granted gives it back
			call.Granted(cleanup, <-grants)
		}
	}()

	lost, leaseLost := (<-chan struct{})(nil), false
	for {
		select {
		case g := <-grants:
			pending = false
			if end, err := s.granted(stream, a, call, at, g); end {
				return err
			}
			lost = call.Lost()
		case <-lost:
			lost, leaseLost = nil, true
			s.log.Warn("the call outlives its lease: its fence is stale", "key", call.Key())
		case m := <-messages:
			if m.err != nil {
				return nil
			}
			if headers := m.msg.GetResponseHeaders(); headers != nil {
				if call.Answered(response(headers, m.msg)).Cancel {
					cancel()
				}
			}
			reply := passOn(m.msg)
			if leaseLost {
				tellLost(reply)
			}
			if err := stream.Send(reply); err != nil {
				return nil
			}
		}
	}
}

// granted acts on the end of the wait for a lock. It reports whether the stream
// is done with.
func (s *Server) granted(stream extproc.ExternalProcessor_ProcessServer, a *answers, call *gate.Call, at stage, g gate.Grant) (end bool, err error) {
	cleanup, done := s.cleanupContext(stream.Context())
	defer done()
	step := call.Granted(cleanup, g)
	switch {
	case step.Refuse:
		if call.Decision.Verdict == gate.VerdictUnavailable {
			s.refused.Note("key", call.Key(), "error", g.Err)
		}
		return true, stream.Send(a.refuse(&call.Decision))
	case step.Forward:
		if err := stream.Send(forward(call, step.Lease, at)); err != nil {
			// The message did not leave, so Envoy did not forward the request. (One
			// that left may still find the request gone: that ends without an
			// answer, and the lock is held.)
			call.Unsent(cleanup)
			return true, nil
		}
	}
	return false, nil
}

// receive reads the stream from a goroutine of its own until it ends, or the
// loop has left. It does not go by the stream's context, which ends at the same
// moment as the stream: the loop would miss the end every other time. When the
// handler returns gRPC ends the stream, and Recv with it; the handler cannot wait
// for that.
func receive(stream extproc.ExternalProcessor_ProcessServer, left <-chan struct{}) <-chan received {
	messages := make(chan received)
	go func() {
		for {
			msg, err := stream.Recv()
			select {
			case messages <- received{msg, err}:
			case <-left:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return messages
}
