package envoymodule

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// create is a call whose answer tells of a new order, which is learned before the
// client hears of it. All of it is the worker's, but for the call once learn has it.
type create struct {
	call   gate.Call
	stream *Stream
	state  learning
	body   []byte // of the answer, so far
	timer  *time.Timer
	since  time.Time // when it became busy
	how    string    // Envoy's details of the answer
}

// learning is how far it is.
type learning int8

const (
	idle       learning = iota // there is nothing to learn, or no answer yet
	collecting                 // the answer's body
	busy                       // the answer waits until the order is known
)

// mostAnswer bounds what is read of an answer for its ID, in bytes: what Envoy buffers
// by default.
const mostAnswer = 1 << 20

// answered looks at the headers of the answer.
func (c *create) answered(r *gate.Response, h Headers, end bool) Step {
	c.how = r.Details
	switch part := c.call.Created(r); {
	case part == gate.NoPart:
		c.stream.create = nil
		return Step{Do: PassResponse}
	case part == gate.TheirBody && !end:
		c.state = collecting
		c.patience()
		return Step{Do: Read}
	case part == gate.TheirBody:
		c.learn(func(ctx context.Context) error { return c.call.LearnBody(ctx, nil, false) })
	default:
		text := c.call.HeaderText(h)
		c.learn(func(ctx context.Context) error { return c.call.LearnText(ctx, text) })
	}
	return Step{Do: Wait}
}

// patience ends the wait for the rest of a body. An answer that is larger than Envoy's
// buffer comes no further until it is passed on, and nobody tells how large that is.
func (c *create) patience() {
	s := c.stream
	s.mail.open(s.envoy)
	c.timer = time.AfterFunc(s.face.opts.LearnTimeout, func() {
		s.mail.post(func() Step {
			c.whole(true)
			return Step{}
		})
	})
}

// more takes a piece of the body. It is kept back until the order is known.
func (c *create) more(end bool) Step {
	switch c.state {
	case collecting:
		c.body = appendTo(c.body, c.stream.envoy.Chunks(Response))
		if end || len(c.body) > mostAnswer {
			c.whole(!end)
		}
		return Step{Do: Wait}
	case busy:
		return Step{Do: Wait}
	}
	return Step{Do: PassResponse}
}

// end is the end of a body by trailers. It reports whether they have to wait.
func (c *create) end() bool {
	c.whole(false)
	return c.state == busy
}

// left is the end of the stream. What has come of an answer is learned from; last is what
// Envoy tells of the end if none has come.
func (c *create) left(last *gate.Response) {
	switch c.state {
	case idle:
		c.learn(func(ctx context.Context) error { return c.call.Left(ctx, last) })
	case collecting:
		c.timer.Stop()
		body := c.body
		c.learn(func(ctx context.Context) error { return c.call.LeftWithin(ctx, body) })
	case busy:
		c.stream.face.held.ended(c, c.stream.envoy.Details())
	}
}

// whole learns from the body that is there. Partial tells that it was cut off.
func (c *create) whole(partial bool) {
	if c.state != collecting {
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
	c.state, c.since = busy, time.Now()
	s := c.stream
	s.mail.open(s.envoy)
	s.face.spawn("a new order", func() {
		defer s.mail.post(func() Step {
			s.create = nil
			return Step{Do: PassResponse}
		})
		ctx, cancel := context.WithTimeout(s.face.ctx, s.face.opts.LearnTimeout)
		defer cancel()
		if err := do(ctx); err != nil {
			s.face.unlearned.Note(append(c.call.About(), "error", err)...)
		}
	})
}
