package envoymodule

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// create is a call whose answer tells of a new order, which is learned before the
// client hears of it. All of it is the worker's, but for the call once learn has it.
type create struct {
	call          gate.Call
	stream        *Stream
	phase         learnPhase
	body          []byte // of the answer, so far
	timer         *time.Timer
	delayedSince  time.Time // when it became busy
	answerDetails string    // Envoy's details of the answer
}

// learnPhase is how far it is.
type learnPhase int8

const (
	idle       learnPhase = iota // there is nothing to learn, or no answer yet
	collecting                   // the answer's body
	learning                     // the answer waits until the order is known
)

// maxAnswer bounds what is read of an answer for its ID, in bytes: what Envoy buffers
// by default.
const maxAnswer = 1 << 20

// responseHeaders looks at the headers of the answer.
func (c *create) responseHeaders(r *gate.Response, h Headers, end bool) Step {
	c.answerDetails = r.Details
	switch part := c.call.Created(r); {
	case part == gate.NoPart:
		c.stream.create = nil
		return Step{Do: PassResponse}
	case part == gate.BodyPart && !end:
		c.phase = collecting
		c.startTimer()
		return Step{Do: Read}
	case part == gate.BodyPart:
		c.learn(func(ctx context.Context) error { return c.call.LearnBody(ctx, nil, false) })
	default:
		text := c.call.HeaderText(h)
		c.learn(func(ctx context.Context) error { return c.call.LearnHeader(ctx, text) })
	}
	return Step{Do: Wait}
}

// startTimer ends the wait for the rest of a body. An answer that is larger than Envoy's
// buffer comes no further until it is passed on, and nobody tells how large that is.
func (c *create) startTimer() {
	s := c.stream
	s.mail.open(s.envoy)
	c.timer = time.AfterFunc(s.adapter.opts.LearnTimeout, func() {
		s.mail.post(func() Step {
			c.learnCollected(true)
			return Step{}
		})
	})
}

// responseBody takes a piece of the body. It is kept back until the order is known.
func (c *create) responseBody(end bool) Step {
	switch c.phase {
	case collecting:
		c.body = appendTo(c.body, c.stream.envoy.Chunks(Response))
		if end || len(c.body) > maxAnswer {
			c.learnCollected(!end)
		}
		return Step{Do: Wait}
	case learning:
		return Step{Do: Wait}
	}
	return Step{Do: PassResponse}
}

// responseTrailers is the end of a body by trailers. It reports whether they have to wait.
func (c *create) responseTrailers() bool {
	c.learnCollected(false)
	return c.phase == learning
}

// streamEnded is the end of the stream. What has come of an answer is learned from; last is what
// Envoy tells of the end if none has come.
func (c *create) streamEnded(last *gate.Response) {
	switch c.phase {
	case idle:
		c.learn(func(ctx context.Context) error { return c.call.StreamEnded(ctx, last) })
	case collecting:
		c.timer.Stop()
		body := c.body
		c.learn(func(ctx context.Context) error { return c.call.StreamEndedInBody(ctx, body) })
	case learning:
		c.stream.adapter.delayed.streamEnded(c, c.stream.envoy.Details())
	}
}

// learnCollected learns from the body that is there. Partial tells that it was cut off.
func (c *create) learnCollected(partial bool) {
	if c.phase != collecting {
		return
	}
	c.timer.Stop()
	body := c.body
	c.body = nil
	c.learn(func(ctx context.Context) error { return c.call.LearnBody(ctx, body, partial) })
}

// learn runs within its limit and whether or not the client still waits: the order
// exists. What fails is logged; the answer is passed on in any case.
func (c *create) learn(do func(context.Context) error) {
	c.phase, c.delayedSince = learning, time.Now()
	s := c.stream
	s.mail.open(s.envoy)
	s.adapter.spawn("a new order", func() {
		defer s.mail.post(func() Step {
			s.create = nil
			return Step{Do: PassResponse}
		})
		ctx, cancel := context.WithTimeout(s.adapter.ctx, s.adapter.opts.LearnTimeout)
		defer cancel()
		if err := do(ctx); err != nil {
			s.adapter.unlearned.Note(append(c.call.LogArgs(), "error", err)...)
		}
	})
}
