package envoymodule

import (
	"context"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// create is a call whose answer may name a new order. The order is learned before the
// client receives the answer. The worker owns all of it, and passes the call to learn's
// goroutine.
type create struct {
	call          *gate.Call
	stream        *Stream
	phase         learnPhase
	body          []byte // of the answer, so far
	timer         *time.Timer
	delayedSince  time.Time // when the answer began to wait
	answerDetails string    // Envoy's response code details
}

// learnPhase is the progress of learning.
type learnPhase int8

const (
	idle       learnPhase = iota // nothing to learn, or no answer yet
	collecting                   // reading the answer's body
	learning                     // the answer waits until the order is known
)

// maxAnswer bounds the part of an answer in which the ID is searched, in bytes. It is
// Envoy's default buffer size.
const maxAnswer = 1 << 20

// responseHeaders handles the headers of the answer.
func (c *create) responseHeaders(r *gate.Response, end bool) Step {
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
		text := c.call.HeaderText(r.Header)
		c.learn(func(ctx context.Context) error { return c.call.LearnHeader(ctx, text) })
	}
	return Step{Do: Wait}
}

// startTimer limits the time for the rest of a body. If an answer is larger than Envoy's
// buffer, Envoy sends no more of it until it is passed on, and the size of that buffer is
// unknown here.
func (c *create) startTimer() {
	s := c.stream
	s.mail.open(s.envoy)
	c.timer = time.AfterFunc(s.adapter.opts.AnswerDelay, func() {
		s.mail.post(func() Step {
			if body, ok := c.collected(); ok {
				c.learn(func(ctx context.Context) error { return c.call.LearnBegun(ctx, body) })
			}
			return Step{}
		})
	})
}

// responseBody handles a piece of the body, which waits until the order is known.
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

// responseTrailers handles the end of a body by trailers. It reports whether they have to
// wait.
func (c *create) responseTrailers() bool {
	c.learnCollected(false)
	return c.phase == learning
}

// streamEnded handles the end of the stream. It learns from the part of the answer that has
// arrived. Last is Envoy's information about the end, if no answer has arrived.
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

// learnCollected learns from the collected body. Partial means that the body was cut off.
func (c *create) learnCollected(partial bool) {
	if body, ok := c.collected(); ok {
		c.learn(func(ctx context.Context) error { return c.call.LearnBody(ctx, body, partial) })
	}
}

// collected ends the collection of the body, and returns it; false: it has ended before.
func (c *create) collected() (body []byte, ok bool) {
	if c.phase != collecting {
		return nil, false
	}
	c.timer.Stop()
	body, c.body = c.body, nil
	return body, true
}

// learn runs do, even if the client has left: the order exists. The filter bounds its time. learn logs
// an error, and passes the answer on in any case.
func (c *create) learn(do func(context.Context) error) {
	c.phase, c.delayedSince = learning, time.Now()
	s := c.stream
	s.mail.open(s.envoy)
	s.adapter.spawn("a new order", func() {
		defer s.mail.post(func() Step {
			s.create = nil
			describeNews(s.envoy, c.call)
			return s.endResponse(Step{Do: PassResponse})
		})
		if err := do(s.adapter.ctx); err != nil {
			s.adapter.problems.Unlearned(c.call, err)
		}
	})
}
