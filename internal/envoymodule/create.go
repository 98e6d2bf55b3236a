package envoymodule

import (
	"context"
	"runtime"
	"time"

	"github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/shared"

	"github.com/ordergate/ordergate/internal/gate"
)

// create is a call whose answer tells of a new order, which is learned before the
// client hears of it. All of it is the worker's, but for the call once learn has it.
type create struct {
	call   gate.Call
	stream *stream
	state  learning
	body   []byte // of the answer, so far
	timer  *time.Timer
}

// learning is how far it is.
type learning int8

const (
	idle       learning = iota // there is nothing to learn, or no answer yet
	collecting                 // the answer's body
	busy                       // the answer waits until the order is known
	learned
)

// mostAnswer bounds what is read of an answer for its ID, in bytes: what Envoy buffers
// by default.
const mostAnswer = 1 << 20

// answered looks at the headers of the answer.
func (c *create) answered(r *gate.Response, h shared.HeaderMap, end bool) shared.HeadersStatus {
	switch {
	case !r.Succeeded():
		return shared.HeadersStatusContinue
	case c.call.LearnsBody() && !end:
		c.state = collecting
		c.patience()
		return shared.HeadersStatusStop
	case c.call.LearnsBody():
		c.learn(func(ctx context.Context) error { return c.call.LearnBody(ctx, nil, false) })
	default:
		text := headers(h.GetAll()).lastOf(c.call.LearnsHeader())
		c.learn(func(ctx context.Context) error { return c.call.LearnText(ctx, text) })
	}
	return shared.HeadersStatusStopAllAndWatermark
}

// patience ends the wait for the rest of a body. An answer that is larger than Envoy's
// buffer comes no further until it is passed on, and nobody tells how large that is.
func (c *create) patience() {
	to := c.stream.envoy.GetScheduler()
	c.timer = time.AfterFunc(c.stream.face.opts.LearnTimeout, func() {
		to.Schedule(func() { c.stream.scheduled("an answer", func() { c.whole(true) }) })
		runtime.KeepAlive(to) // Envoy's part of it is freed with ours
	})
}

// more takes a piece of the body. It is kept back until the order is known.
func (c *create) more(body shared.BodyBuffer, end bool) shared.BodyStatus {
	switch c.state {
	case collecting:
		for _, chunk := range body.GetChunks() {
			c.body = append(c.body, chunk.ToUnsafeBytes()...)
		}
		if end || len(c.body) > mostAnswer {
			c.whole(!end)
		}
		return shared.BodyStatusStopAndWatermark
	case busy:
		return shared.BodyStatusStopAndWatermark
	}
	return shared.BodyStatusContinue
}

// end is the end of a body by trailers. It reports whether they have to wait.
func (c *create) end() bool {
	c.whole(false)
	return c.state == busy
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
	c.state = busy
	s, to := c.stream, c.stream.envoy.GetScheduler()
	s.face.spawn("a new order", func() {
		defer runtime.KeepAlive(to) // Envoy's part of it is freed with ours
		defer to.Schedule(func() {
			c.state = learned
			s.envoy.ContinueResponse()
		})
		ctx, cancel := context.WithTimeout(s.face.ctx, s.face.opts.LearnTimeout)
		defer cancel()
		if err := do(ctx); err != nil {
			s.face.log.Error("a new order is not known everywhere", "error", err)
		}
	})
}
