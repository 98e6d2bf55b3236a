package envoymodule

import (
	"time"

	"github.com/ordergate/ordergate/internal/gate"
)

// lookup is a lookup whose answer is held against the filter. The worker owns all of it.
type lookup struct {
	call   *gate.Call
	stream *Stream
	body   []byte      // of the answer, so far
	timer  *time.Timer // nil: the headers of the answer decide
}

// responseHeaders handles the headers of the answer.
func (l *lookup) responseHeaders(r *gate.Response) Step {
	step := l.call.Answered(r)
	if !step.ReadBody {
		return l.end(step)
	}
	s := l.stream
	s.mail.open(s.envoy)
	// As of a create: Envoy sends no more of a body that is larger than its buffer.
	l.timer = time.AfterFunc(s.adapter.opts.AnswerDelay, func() {
		s.mail.post(func() Step { return l.finish(false) })
	})
	return Step{Do: Read}
}

// responseBody handles a piece of the body, which waits until all of it has arrived.
func (l *lookup) responseBody(end bool) Step {
	if l.body = appendTo(l.body, l.stream.envoy.Chunks(Response)); end || len(l.body) > maxAnswer {
		return l.finish(end)
	}
	return Step{Do: Wait}
}

// finish decides by the body. Whole means that it is all of it.
func (l *lookup) finish(whole bool) Step {
	if l.stream.lookup != l {
		return Step{} // it is decided
	}
	return l.end(l.call.LookupBody(l.body, whole))
}

// end passes the answer on, or gives that of a refusal in its place.
func (l *lookup) end(step gate.Step) Step {
	l.streamEnded()
	if step.Refuse {
		describe(l.stream.envoy, l.call)
		return l.stream.refuse(l.stream.replies.refuse(&l.call.Decision))
	}
	return Step{Do: PassResponse}
}

func (l *lookup) streamEnded() {
	l.stream.lookup = nil
	if l.timer != nil {
		l.timer.Stop()
	}
}
