package envoymodule

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

// TestConversations has a stream in Envoy do what the call alone does.
func TestConversations(t *testing.T) {
	b := newBench(t, Options{})
	rapid.Check(t, func(rt *rapid.T) {
		c := gatetest.Conversations(rt)
		want := c.Play(t)
		s := c.NewStage(t)
		b.adapter.Use(s.Gate)
		e := b.converse(&c, s)
		b.end(e)
		got := ""
		for deadline := time.Now().Add(5 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			got = s.Report(int(e.answer))
		}
		if got != want {
			rt.Fatalf("%+v %+v\n%s\nwant\n%s", c, c.Answer, got, want)
		}
	})
}

// converse plays Envoy, until the stream ends.
func (b *bench) converse(c *gatetest.Conversation, stage *gatetest.Stage) *envoy {
	e, do := b.arrive(c)
	passed := do == PassRequest
	if c.IsLocked() {
		b.until("the lock is requested", func() bool { return stage.Lock.Journal.Short() != "" })
		if c.Grant == "" {
			return e
		}
		stage.Decide(c)
	}
	b.until("it is passed or refused", func() bool { return passed || e.continued == 1 || e.answer != 0 })
	if e.answer != 0 {
		return e
	}
	if c.Lost == "before" && c.IsLocked() {
		stage.Lock.Lose()
		b.until("the call is ended", func() bool { return e.answer != 0 })
		return e
	}
	if c.Answer == nil {
		return e
	}
	lose := func() {}
	if c.Lost == "within" && c.IsLocked() {
		lose = stage.Lock.Lose
	}
	if do := b.respond(e, c, lose); c.Answer.End != "" && do == Wait { // the client takes the end
		b.until("the answer goes on", func() bool { return e.response == 1 || e.stream == nil })
	}
	return e
}

// arrive has the request come.
func (b *bench) arrive(c *gatetest.Conversation) (e *envoy, do Action) {
	req := c.Request(false)
	e = &envoy{worker: b.worker, mute: true}
	e.headers[Request] = headersOf(":method", req.Method, ":path", req.Target, ":authority", req.Host, "content-type", "application/json")
	if do = b.start(e, c.Body == ""); c.Body == "" || do == Refuse {
		return e, do
	}
	b.worker.do(func() {
		e.chunk = c.Body
		do = e.on(RequestBody, true)
	})
	return e, do
}

// respond has the backend answer, and something happen within. Of an answer that waits, Envoy has the rest
// meanwhile.
func (b *bench) respond(e *envoy, c *gatetest.Conversation, within func()) (do Action) {
	a := c.Answer
	lines := []string{":status", strconv.Itoa(a.Status)}
	for _, h := range a.Header {
		lines = append(lines, h[0], h[1])
	}
	b.worker.do(func() {
		e.details, e.attempts, e.mute = a.Details, a.Attempts, false
		e.headers[Response] = headersOf(lines...)
		do = e.on(ResponseHeaders, a.End == "headers")
	})
	within()
	b.worker.do(func() {
		for i, piece := range a.Pieces {
			do = e.more(piece, a.End == "piece" && i == len(a.Pieces)-1)
		}
		if a.End == "trailers" {
			do = e.on(ResponseTrailers, true)
		}
	})
	return do
}
