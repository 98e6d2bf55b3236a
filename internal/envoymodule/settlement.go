package envoymodule

import (
	"context"
	"sync"

	"github.com/ordergate/ordergate/internal/gate"
)

// settlement is a call with a lock. It has no goroutine: the worker reports the stream's
// events, and the goroutine that received Redis's answer reports the lock.
//
// The races, and their results:
//   - The lock arrives while the client leaves. The task that forwards the request is
//     posted, and the mailbox drops it. Only the worker forwards requests, so at the end it
//     reports whether it did. If not, the lock is released, because nothing was sent.
//   - The lock arrives while Envoy answers by itself, after a timeout. This is the same
//     case: the posted task finds that the stream is answered.
//   - The client leaves during the wait for the lock. The worker cancels the wait, and a
//     lock that is still granted is released.
//   - The client leaves after the request was forwarded. The lock is held, unless Envoy
//     reports that it did not try to reach the backend.
//   - The lease is lost while the answer arrives. If the worker handles the answer first,
//     the answer passes, until max_hold. If it handles the loss first, the call is ended.
type settlement struct {
	adapter      *Adapter
	stream       *Stream // the worker's, except its mailbox
	cancel       context.CancelFunc
	responseSeen bool // the worker's: a response was reported to the call
	storing      bool // the worker's: the rest of the response waits until the answer is stored

	mu    sync.Mutex // held during each event of the call, never for long
	call  *gate.Call
	lease gate.Lease // once granted
}

// newSettlement begins a call. The stream waits for its result, with an open mailbox.
func newSettlement(s *Stream, call *gate.Call) *settlement {
	ctx, cancel := context.WithCancel(s.adapter.ctx)
	b := &settlement{adapter: s.adapter, stream: s, call: call, cancel: cancel}
	b.call.SetClient(s.envoy.Client())
	b.call.Acquire(ctx, b.onGrant)
	return b
}

// onGrant handles the result of the lock request.
func (b *settlement) onGrant(grant gate.Grant) {
	defer b.recoverFault()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lease = grant.Lease
	switch step := b.call.Granted(grant); {
	case step.Answer != nil:
		b.postDecided(func(s *Stream) Step { return s.refuse(storedReply(step.Answer)) })
	case step.Refuse:
		d := b.call.Decision
		b.adapter.problems.Refused(b.call, step, grant)
		b.postDecided(func(s *Stream) Step { return s.refuse(s.replies.refuse(&d)) })
	case step.Forward:
		b.forward(step.Lease)
		b.call.NotifyLost(b.onLost)
	}
}

// onLost ends a call that lost its lease before its answer arrived, or that lasts too long. The
// stream's end follows.
func (b *settlement) onLost() {
	s := b.stream
	s.mail.post(func() Step {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.call.LeaseLost().Refuse {
			return Step{}
		}
		b.adapter.problems.Ended(b.call)
		s.answered = true // its stage stays: the backend may have the request
		describe(s.envoy, b.call)
		d := b.call.Decision
		return Step{Do: Refuse, Reply: s.replies.refuse(&d)}
	})
}

// answered handles the response's headers, and reports whether they are all of it for a client.
// The worker calls it.
func (b *settlement) answered(r *gate.Response) (last bool) {
	if b.stream.stage == waiting { // the response is Envoy's own
		b.cancel()
	}
	if !b.responseSeen { // a stream's second response adds nothing
		b.responseSeen = true
		b.mu.Lock()
		defer b.mu.Unlock()
		b.call.Answered(r)
		describeNews(b.stream.envoy, b.call)
		return b.call.IsAnswerEmpty()
	}
	return false
}

// trailers handles the response's trailers. The worker calls it.
func (b *settlement) trailers(h Headers) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.call.GRPCTrailers(gate.GRPCStatusIn(h))
	b.call.AnswerTrailers()
}

// answerBody handles a piece of the response's body, and reports whether it is the last one. The
// worker calls it.
func (b *settlement) answerBody() (last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.call.KeepsAnswer() {
		for _, chunk := range b.stream.envoy.Chunks(Response) {
			last = b.call.AnswerBody([]byte(chunk.string()))
		}
	}
	return last
}

// finished handles the end of the response. The worker calls it. If the answer is stored, that
// is done before the client sees its end.
func (b *settlement) finished() Step {
	if b.storing {
		return Step{Do: Wait}
	}
	b.mu.Lock()
	step := b.call.Finished()
	describeNews(b.stream.envoy, b.call)
	b.mu.Unlock()
	if step.NotStored != "" {
		b.adapter.problems.NotStored(b.call, step.NotStored)
	}
	if !step.Store {
		return Step{Do: PassResponse}
	}
	b.storing = true
	b.call.Store(func(err error) {
		if err != nil {
			b.adapter.problems.StoreFailed(b.call, err)
		}
		b.stream.mail.post(func() Step {
			b.storing = false
			return Step{Do: PassResponse}
		})
	})
	return Step{Do: Wait}
}

// storedReply is a stored answer for a client.
func storedReply(a *gate.Answer) *Reply {
	r := &Reply{Status: uint32(a.Status), Body: a.Body, Details: "ordergate_" + gate.VerdictReplayed.String(), Temporary: true}
	for _, h := range a.Headers {
		r.Headers = append(r.Headers, [2]string{h.Name, h.Value})
	}
	return r
}

// ended handles the end of the stream. The worker calls it.
func (b *settlement) ended(last *gate.Response, passed bool) {
	defer b.recoverFault()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel() // the lock is no longer needed
	if !passed {
		// This is certain: only the worker could forward it.
		b.call.Unsent()
	}
	if last != nil {
		b.call.Answered(last)
	}
	b.call.Ended()
	describeNews(b.stream.envoy, b.call)
}

// forward forwards the request. The lease is nil in observe mode.
func (b *settlement) forward(lease gate.Lease) {
	var set []gate.Header
	if lease != nil {
		headers := b.call.LeaseHeaders(lease)
		set = headers[:]
	}
	b.postDecided(func(s *Stream) Step {
		// Remove the client's headers although Set overwrites them: of a repeated header,
		// Set overwrites only the first.
		s.envoy.Headers(Request).strip(s.envoy, stripOwned, len(b.call.AnswerOptions()))
		s.accept(b.call)
		for _, h := range set {
			s.envoy.Set(Request, h.Name, h.Value)
		}
		s.stage = passed
		if b.call.MayCreate() {
			s.create = &create{call: b.call, stream: s}
		}
		return Step{Do: PassRequest}
	})
}

// postDecided is post for a call that is decided: the worker describes it first.
func (b *settlement) postDecided(do func(s *Stream) Step) {
	m, described := b.call.Metadata()
	b.post(func(s *Stream) Step {
		if described {
			s.envoy.Describe(&m)
		}
		return do(s)
	})
}

// post has the worker run do, if the stream still waits.
func (b *settlement) post(do func(s *Stream) Step) {
	s := b.stream
	s.mail.post(func() Step {
		if s.answered || s.stage != waiting {
			return Step{}
		}
		return do(s)
	})
}

// recoverFault is deferred. After a fault in the middle of a call it refuses the request if
// it still waits. It holds the lease without renewal, because the state of the call is
// unknown.
func (b *settlement) recoverFault() {
	v := recover()
	if v == nil {
		return
	}
	b.adapter.logFault("a settlement", v)
	b.post(func(s *Stream) Step { return s.refuse(s.adapter.faultReplyTo(s.envoy.Headers(Request))) })
	b.mu.Lock()
	lease := b.lease
	b.mu.Unlock()
	if lease != nil {
		lease.Hold("a fault in ordergate")
	}
}
