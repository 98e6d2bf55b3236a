package envoymodule

import (
	"context"
	"sync"

	"github.com/ordergate/ordergate/internal/gate"
)

// settlement is a call with a lock around it. It has no goroutine: the worker reports what
// happens to the stream, and whichever goroutine got the answer of Redis reports the lock.
//
// The races, and who wins:
//   - The lock comes while the client leaves. Passing the request on is posted, and the
//     mailbox drops it. So the worker, which is the only one to pass requests on, tells
//     at the end whether it has: if not, the lock is released, for nothing was sent.
//   - The lock comes while Envoy answers by itself (a timeout). The same, and what was
//     posted finds that the stream is answered.
//   - The client leaves while the lock is waited for: the wait is canceled by the
//     worker, and a lock that is granted nevertheless is given back.
//   - The client leaves after the request was passed on: the lock is held, unless Envoy
//     tells that there was no attempt to reach the backend.
//   - The lease is lost while the answer comes: the worker has the answer first, which
//     passes, or the loss, which ends the call.
type settlement struct {
	adapter      *Adapter
	stream       *Stream // the worker's, but for its mailbox
	cancel       context.CancelFunc
	responseSeen bool // the worker's: of an answer

	mu    sync.Mutex // held for each event of the call, never for long
	call  gate.Call
	lease gate.Lease // that was granted
}

// newSettlement begins a call. The stream waits for it, with an open mailbox.
func newSettlement(s *Stream, call gate.Call) *settlement {
	ctx, cancel := context.WithCancel(s.adapter.ctx)
	b := &settlement{adapter: s.adapter, stream: s, call: call, cancel: cancel}
	b.call.Background = b.adapter.runCleanup
	b.call.SetClient(s.envoy.Client())
	if !b.call.AcquireAsync(ctx, b.onGrant) {
		b.adapter.spawn("a settlement", func() { b.acquire(ctx) })
	}
	return b
}

// acquire waits for the lock.
func (b *settlement) acquire(ctx context.Context) {
	defer b.recoverFault()
	b.onGrant(b.call.Acquire(ctx))
}

// onGrant acts on the end of the wait for a lock.
func (b *settlement) onGrant(grant gate.Grant) {
	defer b.recoverFault()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lease = grant.Lease
	switch step := b.call.Granted(b.adapter.ctx, grant); {
	case step.Refuse:
		d := b.call.Decision
		if d.Verdict != gate.VerdictBusy {
			b.adapter.refused.Note(append(b.call.LogArgs(), "key", b.call.Key(), "error", grant.Err)...)
		}
		b.call.LogRefused(b.adapter.log)
		b.post(func(s *Stream) Step { return s.refuse(s.replies.refusals[d.Rule][d.Refusal()]) })
	case step.Forward:
		b.forward(step.Lease)
		b.call.NotifyLost(b.onLost)
	}
}

// onLost ends a call whose lease went before its answer came. The end of the stream follows.
func (b *settlement) onLost() {
	s := b.stream
	s.mail.post(func() Step {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.answered || !b.call.LeaseLost().Refuse {
			return Step{}
		}
		b.adapter.ended.Note(append(b.call.LogArgs(), "key", b.call.Key())...)
		b.call.LogRefused(b.adapter.log)
		s.answered = true // and its stage stays: the backend may have the request
		d := b.call.Decision
		return Step{Do: Refuse, Reply: s.replies.refusals[d.Rule][d.Refusal()]}
	})
}

// answered is the worker's: the response's headers have come.
func (b *settlement) answered(r *gate.Response) {
	if b.stream.stage == waiting { // it is Envoy's own
		b.cancel()
	}
	if !b.responseSeen { // the second of one stream would tell nothing new
		b.responseSeen = true
		b.mu.Lock()
		defer b.mu.Unlock()
		b.call.Answered(r)
	}
}

// finished is the worker's: the response has come to its end.
func (b *settlement) finished() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.call.Finished()
}

// ended is the worker's: the stream is over.
func (b *settlement) ended(last *gate.Response, passed bool) {
	defer b.recoverFault()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel() // a wait that goes on is for nothing
	if !passed {
		// Certainly: the worker did not, and nobody else could.
		b.call.Unsent(b.adapter.ctx)
	}
	if last != nil {
		b.call.Answered(last)
	}
	b.call.Ended(b.adapter.ctx)
}

// forward passes the request on. The lease is nil in observe mode.
func (b *settlement) forward(lease gate.Lease) {
	var set []gate.Header
	if lease != nil {
		headers := b.call.LeaseHeaders(lease)
		set = headers[:]
	}
	b.post(func(s *Stream) Step {
		// What the client sent is removed although it is overwritten: of a header that
		// came twice only the first would be.
		s.envoy.Headers(Request).strip(s.envoy, stripOwned, false)
		for _, h := range set {
			s.envoy.Set(Request, h.Name, h.Value)
		}
		s.stage = passed
		return Step{Do: PassRequest}
	})
}

// post has the worker do something to a stream that still waits.
func (b *settlement) post(do func(s *Stream) Step) {
	s := b.stream
	s.mail.post(func() Step {
		if s.answered || s.stage != waiting {
			return Step{}
		}
		return do(s)
	})
}

// recoverFault is deferred: a fault of ours in the middle of a call refuses the request, if it
// still waits, and has whatever is held renewed no more, since nobody knows what became of
// it.
func (b *settlement) recoverFault() {
	v := recover()
	if v == nil {
		return
	}
	b.adapter.logFault("a settlement", v)
	b.post(func(s *Stream) Step { return s.refuse(s.adapter.faultReply) })
	b.mu.Lock()
	lease := b.lease
	b.mu.Unlock()
	if lease == nil {
		return
	}
	b.adapter.runCleanup(func(ctx context.Context) {
		if err := lease.Hold(ctx, "a fault in ordergate"); err != nil {
			b.adapter.log.Warn("a lock ends by itself after a fault", "error", err)
		}
	})
}
