package envoymodule

import (
	"context"
	"sync/atomic"

	"github.com/ordergate/ordergate/internal/gate"
)

// bracket is a call with a lock around it. One goroutine has the call, and reports
// events to it; the worker tells that goroutine what happens to the stream.
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
type bracket struct {
	face   *Face
	stream *Stream   // the worker's, but for its mailbox
	call   gate.Call // the goroutine's
	cancel context.CancelFunc
	told   bool        // the worker's: of an answer
	events chan event  // of capacity enough that the worker never waits
	lost   atomic.Bool // the lease ended before the call
}

// event is what happened to the stream.
type event struct {
	answer *gate.Response // nil: none, or none that was not told of
	ended  bool
	passed bool // with ended: the request was passed on
}

// mostEvents is an answer and the end.
const mostEvents = 2

// newBracket begins a call. The stream waits for it, with an open mailbox.
func newBracket(s *Stream, call gate.Call) *bracket {
	ctx, cancel := context.WithCancel(s.face.ctx)
	b := &bracket{face: s.face, stream: s, call: call, cancel: cancel, events: make(chan event, mostEvents)}
	b.face.spawn("a settlement", func() { b.run(ctx) })
	return b
}

// answered is the worker's: the response's headers have come.
func (b *bracket) answered(r *gate.Response) {
	if b.stream.stage == waiting { // it is Envoy's own
		b.cancel()
	}
	if b.lost.Load() {
		b.stream.envoy.Set(Response, headerLost, "true")
	}
	if !b.told { // the second of one stream would tell nothing new
		b.told = true
		b.events <- event{answer: r}
	}
}

// ended is the worker's: the stream is over.
func (b *bracket) ended(last *gate.Response, passed bool) {
	if !passed {
		b.cancel()
	}
	b.events <- event{answer: last, ended: true, passed: passed}
}

// run is the call's life.
func (b *bracket) run(ctx context.Context) {
	defer b.cancel()
	var granted gate.Grant
	ended := false
	defer func() {
		if v := recover(); v != nil {
			b.face.recovered("a settlement", v)
			b.fail(granted, ended)
		}
	}()
	granted = b.call.Acquire(ctx)
	if ended = b.drain(); ended { // it was over before there was a lock: that is given back
		b.grant(granted)
		return
	}
	b.grant(granted)
	for lost := b.call.Lost(); !ended; {
		select {
		case <-lost:
			lost = nil
			b.lost.Store(true)
			b.face.log.Warn("the call outlives its lease: its fence is stale", "key", b.call.Key())
		case e := <-b.events:
			ended = b.on(e)
		}
	}
}

// drain reports what happened while the lock was waited for, and whether the stream is
// over.
func (b *bracket) drain() (ended bool) {
	for {
		select {
		case e := <-b.events:
			if ended = b.on(e); ended {
				return true
			}
		default:
			return false
		}
	}
}

// on reports an event to the call, and whether it was the end.
func (b *bracket) on(e event) (ended bool) {
	cleanup, done := b.face.cleanupContext()
	defer done()
	if e.ended && !e.passed {
		// Certainly: the worker did not, and nobody else could.
		b.call.Unsent(cleanup)
	}
	if e.answer != nil {
		b.call.Answered(e.answer)
	}
	if e.ended {
		b.call.Ended(cleanup)
	}
	return e.ended
}

// grant acts on the end of the wait for a lock.
func (b *bracket) grant(g gate.Grant) {
	cleanup, done := b.face.cleanupContext()
	defer done()
	switch step := b.call.Granted(cleanup, g); {
	case step.Refuse:
		d := b.call.Decision
		if d.Verdict == gate.VerdictUnavailable {
			b.face.refused.Note("key", b.call.Key(), "error", g.Err)
		}
		b.post(func(s *Stream) Step { return s.refuse(s.decider.refusals[d.Rule][d.Refusal()]) })
	case step.Forward:
		b.forward(step.Lease)
	}
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

// fail is a fault of ours in the middle of a call: whatever is held is renewed no more,
// since nobody knows what became of it.
func (b *bracket) fail(g gate.Grant, ended bool) {
	b.post(func(s *Stream) Step { return s.refuse(s.face.fault) })
	if g.Lease == nil || ended {
		return
	}
	cleanup, done := b.face.cleanupContext()
	defer done()
	if err := g.Lease.Hold(cleanup, "a fault in ordergate"); err != nil {
		b.face.log.Warn("a lock ends by itself after a fault", "error", err)
	}
}
