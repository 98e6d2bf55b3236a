package envoymodule

import (
	"context"
	"sync"

	"github.com/ordergate/ordergate/internal/gate"
)

// bracket is a call with a lock around it. It has no goroutine: the worker reports what
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
type bracket struct {
	face   *Face
	stream *Stream // the worker's, but for its mailbox
	cancel context.CancelFunc
	told   bool // the worker's: of an answer

	mu    sync.Mutex // held for each event of the call, never for long
	call  gate.Call
	lease gate.Lease // that was granted
}

// newBracket begins a call. The stream waits for it, with an open mailbox.
func newBracket(s *Stream, call gate.Call) *bracket {
	ctx, cancel := context.WithCancel(s.face.ctx)
	b := &bracket{face: s.face, stream: s, call: call, cancel: cancel}
	b.call.Background = b.face.background
	b.call.From(s.envoy.Client())
	if !b.call.AcquireAsync(ctx, b.acquired) {
		b.face.spawn("a settlement", func() { b.acquire(ctx) })
	}
	return b
}

// acquire waits for the lock.
func (b *bracket) acquire(ctx context.Context) {
	defer b.guard()
	b.acquired(b.call.Acquire(ctx))
}

// acquired acts on the end of the wait for a lock.
func (b *bracket) acquired(g gate.Grant) {
	defer b.guard()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lease = g.Lease
	switch step := b.call.Granted(b.face.ctx, g); {
	case step.Refuse:
		d := b.call.Decision
		if d.Verdict != gate.VerdictBusy {
			b.face.refused.Note(append(b.call.About(), "key", b.call.Key(), "error", g.Err)...)
		}
		b.call.LogRefused(b.face.log)
		b.post(func(s *Stream) Step { return s.refuse(s.decider.refusals[d.Rule][d.Refusal()]) })
	case step.Forward:
		b.forward(step.Lease)
		b.call.NotifyLost(b.lost)
	}
}

// lost ends a call whose lease went before its answer came. The end of the stream follows.
func (b *bracket) lost() {
	s := b.stream
	s.mail.post(func() Step {
		b.mu.Lock()
		defer b.mu.Unlock()
		if s.answered || !b.call.LeaseLost().Refuse {
			return Step{}
		}
		b.face.ended.Note(append(b.call.About(), "key", b.call.Key())...)
		b.call.LogRefused(b.face.log)
		s.answered = true // and its stage stays: the backend may have the request
		d := b.call.Decision
		return Step{Do: Refuse, Reply: s.decider.refusals[d.Rule][d.Refusal()]}
	})
}

// answered is the worker's: the response's headers have come.
func (b *bracket) answered(r *gate.Response) {
	if b.stream.stage == waiting { // it is Envoy's own
		b.cancel()
	}
	if !b.told { // the second of one stream would tell nothing new
		b.told = true
		b.mu.Lock()
		defer b.mu.Unlock()
		b.call.Answered(r)
	}
}

// finished is the worker's: the response has come to its end.
func (b *bracket) finished() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.call.Finished()
}

// ended is the worker's: the stream is over.
func (b *bracket) ended(last *gate.Response, passed bool) {
	defer b.guard()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel() // a wait that goes on is for nothing
	if !passed {
		// Certainly: the worker did not, and nobody else could.
		b.call.Unsent(b.face.ctx)
	}
	if last != nil {
		b.call.Answered(last)
	}
	b.call.Ended(b.face.ctx)
}

// forward passes the request on. The lease is nil in observe mode.
func (b *bracket) forward(lease gate.Lease) {
	var set []gate.Header
	if lease != nil {
		headers := b.call.LeaseHeaders(lease)
		set = headers[:]
	}
	b.post(func(s *Stream) Step {
		// What the client sent is removed although it is overwritten: of a header that
		// came twice only the first would be.
		s.envoy.Headers(Request).strip(s.envoy, ours, false)
		for _, h := range set {
			s.envoy.Set(Request, h.Name, h.Value)
		}
		s.stage = passed
		return Step{Do: PassRequest}
	})
}

// post has the worker do something to a stream that still waits.
func (b *bracket) post(do func(s *Stream) Step) {
	s := b.stream
	s.mail.post(func() Step {
		if s.answered || s.stage != waiting {
			return Step{}
		}
		return do(s)
	})
}

// guard is deferred: a fault of ours in the middle of a call refuses the request, if it
// still waits, and has whatever is held renewed no more, since nobody knows what became of
// it.
func (b *bracket) guard() {
	v := recover()
	if v == nil {
		return
	}
	b.face.recovered("a settlement", v)
	b.post(func(s *Stream) Step { return s.refuse(s.face.fault) })
	b.mu.Lock()
	lease := b.lease
	b.mu.Unlock()
	if lease == nil {
		return
	}
	b.face.background(func(ctx context.Context) {
		if err := lease.Hold(ctx, "a fault in ordergate"); err != nil {
			b.face.log.Warn("a lock ends by itself after a fault", "error", err)
		}
	})
}
