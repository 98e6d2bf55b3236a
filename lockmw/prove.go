package lockmw

import (
	"slices"
	"strings"

	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/wait"
)

// proofOf returns the proof of a marked request; nil: it has no mark. The mark of a sealed request is in
// its path. Without ext_authz it is in its header, and is copied to text. It is kept out of the frame of
// Process, whose stack stays while a call waits.
//
//go:noinline
func (s *Server) proofOf(req *order.Request, text *string, sealed, off bool) *proof {
	marks := s.opts.Marks
	if off {
		marks = s.opts.AuthzMarks
	}
	if !sealed && marks != nil {
		*text = gate.MarkIn(req.Header)
	}
	mark, result := marks.Take(*text)
	if result == "" {
		return nil
	}
	return &proof{req: *req, mark: mark, result: result, sealed: sealed}
}

// proof is the stream of a marked request. It takes no lock and changes nothing.
type proof struct {
	stream extproc.ExternalProcessor_ProcessServer
	first  *extproc.ProcessingRequest
	gate   *gate.Gate
	req    order.Request
	mark   gate.Mark
	result string // of Take
	sealed bool

	authzOff bool
	shown    bool // the request's body
	trailers bool // the request ends in trailers
	answer   *gate.AnswerSeen
}

// prove answers a marked request with what it has seen of it. One that asks for ext_authz goes on, if
// it has not come from there: ext_authz may stand behind ext_proc.
func (s *Server) prove(p *proof, text string) error {
	if p.result != gate.MarkTaken {
		return p.stream.Send(immediate(gate.RefusedMark(p.result).Answer(gate.VerdictNone)))
	}
	if p.mark.Stage == gate.StageAuthz && !p.sealed && !p.authzOff && s.opts.Seal != nil {
		return p.stream.Send(onRequest(p.withPath(s.opts.Seal.HideMarked(p.req.Method, p.req.Target, text)), skipRest))
	}
	if guarded, ok := p.stream.(*guardedStream); ok && p.mark.Stage == gate.StageGuard {
		guarded.shown = true
	}
	if wait.For(p.stream.Context(), min(p.mark.Delay, gate.MaxMarkDelay)) != nil || !p.look() {
		return nil // something else has answered the client
	}
	return p.stream.Send(immediate(p.report().Reply().Answer(gate.VerdictNone)))
}

// withPath has a request go on with another path.
func (p *proof) withPath(path string) *extproc.HeaderMutation {
	mutation := withPath(path)
	mutation.RemoveHeaders = slices.Concat(removeOwned, gate.Forged(p.req.Header))
	return mutation
}

// look has Envoy show the request's body and, if the mark asks for it, the answer of the backend. It returns
// false if the stream ends before.
func (p *proof) look() bool {
	hasBody, asks := p.req.BodyState == order.BodyUnseen, p.mark.Stage == gate.StageBackend || p.mark.Stage == gate.StageGuard
	if !hasBody && !asks {
		return true
	}
	mode := &procmode.ProcessingMode{
		ResponseHeaderMode: procmode.ProcessingMode_SEND, ResponseTrailerMode: procmode.ProcessingMode_SEND,
	}
	if asks {
		mode.ResponseBodyMode = procmode.ProcessingMode_BUFFERED_PARTIAL
	}
	if hasBody {
		mode.RequestBodyMode, mode.RequestTrailerMode = procmode.ProcessingMode_BUFFERED, procmode.ProcessingMode_SEND
	}
	// Until the body has come, and at the backend, the request has a path that none serves, and a body of
	// a type that none reads.
	mutation := p.withPath(gate.MarkedPath)
	if text := contentTypeOf(p.req.Header); text != "" {
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerType, gate.UnreadType))
	}
	for reply := onRequest(mutation, mode); p.stream.Send(reply) == nil; {
		msg, err := p.stream.Recv()
		if err != nil {
			return false
		}
		done := false
		reply = continueReply(msg)
		switch headers, body := msg.GetResponseHeaders(), msg.GetRequestBody(); {
		case body != nil:
			p.req.Body, p.req.BodyState, p.shown = body.GetBody(), order.BodyComplete, true
			p.trailers, done = !body.GetEndOfStream(), !asks
		case msg.GetRequestTrailers() != nil:
			p.trailers, done = true, !asks
		case headers != nil:
			r := response(headers, msg)
			p.answer = &gate.AnswerSeen{Status: r.Status, Details: strings.Clone(r.Details), Attempts: r.Attempts, Ended: r.Ended}
			if done = r.Ended || !asks; !done {
				reply = onResponse()
				reply.ModeOverride = modes[gate.ShowBody]
			}
		case msg.GetResponseBody() != nil && p.answer != nil: // it shows that Envoy sends the others
			p.answer.Ended, done = true, true
		case msg.GetResponseTrailers() != nil:
			done = true
		}
		if done {
			return true
		}
	}
	return false
}

// report says what Envoy has shown.
func (p *proof) report() *gate.Report {
	r := p.gate.Report(gate.AdapterProc, &p.mark, p.req)
	r.Sealed, r.AuthzOff, r.RawLines, r.Trailers, r.Answer = p.sealed, p.authzOff, true, p.trailers, p.answer
	for name := range p.first.GetAttributes()[attributesKey].GetFields() {
		r.Attributes = append(r.Attributes, name)
	}
	slices.Sort(r.Attributes)
	if mode := p.first.GetProtocolConfig(); mode != nil {
		r.BodyMode = mode.GetRequestBodyMode().String()
	}
	if p.shown {
		size := len(p.req.Body)
		r.Body = &size
	}
	return r
}
