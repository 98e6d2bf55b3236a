package lockmw

import (
	"strconv"
	"strings"
	"testing"
	"time"

	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate/gatetest"
)

// TestConversations has a stream of gRPC do what the call alone does.
func TestConversations(t *testing.T) {
	b := newBed(t)
	rapid.Check(t, func(rt *rapid.T) {
		c := gatetest.Conversations(rt)
		want := c.Play(t)
		s := c.NewStage(t)
		b.server.Use(s.Gate)
		refused, ok := b.converse(&c, s)
		if !ok {
			rt.Skip() // of a buffered body, Envoy shows nothing before it has all of it, and no end where trailers follow
		}
		got := ""
		for deadline := time.Now().Add(5 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			got = s.Report(refused)
		}
		if got != want {
			rt.Fatalf("%+v %+v\n%s\nwant\n%s", c, c.Answer, got, want)
		}
	})
}

// converse plays Envoy. It returns the status with which the request was refused, 0 if it was not.
func (b *bed) converse(c *gatetest.Conversation, stage *gatetest.Stage) (refused int, ok bool) {
	s := b.open()
	defer s.leave()
	req := c.Request(false)
	msg := requestHeaders(":method", req.Method, ":path", req.Target, ":authority", req.Host)
	if c.Body == "" {
		msg = whole(msg)
	} else {
		msg.GetRequestHeaders().Headers.Headers = append(msg.GetRequestHeaders().Headers.Headers, headersOf("content-type", "application/json").Headers.Headers...)
	}
	mode := &procmode.ProcessingMode{}
	hear := func(r *extproc.ProcessingResponse) (refused int) {
		if r.GetModeOverride() != nil {
			mode = r.GetModeOverride()
		}
		return int(r.GetImmediateResponse().GetStatus().GetCode())
	}
	if c.Body != "" {
		hear(s.say(msg))
		msg = &extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_RequestBody{RequestBody: &extproc.HttpBody{Body: []byte(c.Body), EndOfStream: true}}}
	}
	if err := s.Send(msg); err != nil {
		b.t.Fatal(err)
	}
	if c.IsLocked() {
		for stage.Lock.Journal.Short() == "" {
			time.Sleep(100 * time.Microsecond)
		}
		if c.Grant == "" {
			return 0, true
		}
		stage.Decide(c)
	}
	if refused = hear(s.hear()); refused != 0 {
		return refused, true
	}
	if c.Lost == "before" && c.IsLocked() {
		stage.Lock.Lose()
		return hear(s.hear()), true
	}
	if c.Answer == nil || mode.GetResponseHeaderMode() == procmode.ProcessingMode_SKIP {
		return 0, true
	}
	if refused = hear(s.say(headersOfAnswer(c.Answer))); refused != 0 {
		return refused, true
	}
	if c.Lost == "within" && c.IsLocked() {
		stage.Lock.Lose()
	}
	return b.rest(s, c.Answer, mode, hear)
}

// rest has Envoy show what the mode asks for of the answer behind its headers.
func (b *bed) rest(s stream, a *gatetest.BackendAnswer, mode *procmode.ProcessingMode, hear func(*extproc.ProcessingResponse) int) (refused int, ok bool) {
	pieces := a.Pieces
	switch mode.GetResponseBodyMode() {
	case procmode.ProcessingMode_NONE:
		return 0, true
	case procmode.ProcessingMode_BUFFERED_PARTIAL:
		if a.End != "piece" {
			return 0, false
		}
		pieces = []string{strings.Join(pieces, "")}
	}
	for i, piece := range pieces {
		msg := bodyPart(a.End == "piece" && i == len(pieces)-1)
		msg.GetResponseBody().Body = []byte(piece)
		if refused = hear(s.say(msg)); refused != 0 {
			return refused, true
		}
	}
	if a.End == "trailers" {
		s.say(&extproc.ProcessingRequest{Request: &extproc.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extproc.HttpTrailers{}}})
	}
	return 0, true
}

func headersOfAnswer(a *gatetest.BackendAnswer) *extproc.ProcessingRequest {
	fields := map[string]any{"upstream.request_attempt_count": a.Attempts}
	if a.Details != "" {
		fields["response.code_details"] = a.Details
	}
	attributes, _ := structpb.NewStruct(fields) // it never fails for these types
	headers := headersOf(":status", strconv.Itoa(a.Status))
	for _, h := range a.Header {
		headers.Headers.Headers = append(headers.Headers.Headers, headersOf(h[0], h[1]).Headers.Headers...)
	}
	headers.EndOfStream = a.End == "headers"
	return &extproc.ProcessingRequest{
		Request:    &extproc.ProcessingRequest_ResponseHeaders{ResponseHeaders: headers},
		Attributes: map[string]*structpb.Struct{attributesKey: attributes},
	}
}
