package lockmw

import (
	"slices"
	"strings"
	"time"

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
	return &proof{server: s, req: *req, mark: mark, result: result, sealed: sealed}
}

// proof is the stream of a marked request. It takes no lock and changes nothing.
type proof struct {
	server *Server
	stream extproc.ExternalProcessor_ProcessServer
	first  *extproc.ProcessingRequest
	gate   *gate.Gate
	req    order.Request
	mark   gate.Mark
	result string // of Take
	sealed bool
	report *gate.Report

	authzOff bool
}

// prove answers a marked request with what it has seen of it. One that asks for ext_authz goes on, if
// it has not come from there: ext_authz may stand behind ext_proc.
func (s *Server) prove(p *proof, text string) error {
	if p.result != gate.MarkTaken {
		return p.stream.Send(immediate(gate.RefusedMark(p.result).Answer(gate.VerdictNone)))
	}
	if p.mark.Stage == gate.StageAuthz && !p.sealed && !p.authzOff && s.opts.Seal != nil {
		mutation := withPath(s.opts.Seal.HideMarked(p.req.Method, p.req.Target, text))
		mutation.RemoveHeaders = slices.Concat(removeOwned, gate.Forged(p.req.Header))
		return p.stream.Send(onRequest(mutation, skipRest))
	}
	if guarded, ok := p.stream.(*guardedStream); ok && p.mark.Stage == gate.StageGuard {
		guarded.shown = true
	}
	p.look()
	if err := p.readRequest(); err != nil || p.report == nil {
		return err
	}
	return p.reply()
}

// look begins the report.
func (p *proof) look() {
	p.report = p.gate.Report(gate.AdapterProc, &p.mark, p.req)
	p.report.Sealed, p.report.AuthzOff, p.report.RawLines = p.sealed, p.authzOff, true
	for name := range p.first.GetAttributes()[attributesKey].GetFields() {
		p.report.Attributes = append(p.report.Attributes, name)
	}
	slices.Sort(p.report.Attributes)
	if mode := p.first.GetProtocolConfig(); mode != nil {
		p.report.BodyMode = mode.GetRequestBodyMode().String()
	}
}

// readRequest waits as the mark asks for, and has Envoy show the request's body and, if the mark asks
// for it, the answer of the backend.
func (p *proof) readRequest() error {
	if wait.For(p.stream.Context(), min(p.mark.Delay, gate.MaxMarkDelay)) != nil {
		return nil
	}
	hasBody, asks := p.req.BodyState == order.BodyUnseen, p.mark.Stage == gate.StageBackend || p.mark.Stage == gate.StageGuard
	mode := &procmode.ProcessingMode{
		ResponseHeaderMode: procmode.ProcessingMode_SEND, ResponseTrailerMode: procmode.ProcessingMode_SEND,
	}
	if asks {
		mode.ResponseBodyMode = procmode.ProcessingMode_BUFFERED_PARTIAL
	}
	if hasBody {
		mode.RequestBodyMode, mode.RequestTrailerMode = procmode.ProcessingMode_BUFFERED, procmode.ProcessingMode_SEND
	}
	if !hasBody && !asks {
		return nil
	}
	// Until the body has come, and at the backend, the request has a path that none serves, and a body of
	// a type that none reads.
	mutation := withPath(gate.MarkedPath)
	mutation.RemoveHeaders = slices.Concat(removeOwned, gate.Forged(p.req.Header))
	if text := contentTypeOf(p.req.Header); text != "" {
		mutation.SetHeaders = append(mutation.SetHeaders, set(headerType, gate.UnreadType))
	}
	if err := p.stream.Send(onRequest(mutation, mode)); err != nil {
		return nil
	}
	return p.receive(asks)
}

// receive reads what Envoy shows. It returns once the report is complete, and without a report if the
// stream has ended: then something else has answered the client.
func (p *proof) receive(asks bool) error {
	for {
		msg, err := p.stream.Recv()
		if err != nil {
			p.report = nil
			return nil
		}
		reply, done := continueReply(msg), false
		switch headers, body := msg.GetResponseHeaders(), msg.GetResponseBody(); {
		case msg.GetRequestBody() != nil:
			p.body(msg.GetRequestBody())
			done = !asks
		case msg.GetRequestTrailers() != nil:
			p.report.Trailers, done = true, !asks
		case headers != nil:
			r := response(headers, msg)
			p.report.Answer = &gate.AnswerSeen{Status: r.Status, Details: strings.Clone(r.Details), Attempts: r.Attempts, Ended: r.Ended}
			if done = r.Ended || !asks; !done {
				reply = onResponse()
				reply.ModeOverride = modes[gate.ShowBody]
			}
		case body != nil && p.report.Answer != nil: // it shows that Envoy sends the others
			p.report.Answer.Ended, done = true, true
		case msg.GetResponseTrailers() != nil:
			done = true
		}
		if done {
			return nil
		}
		if err := p.stream.Send(reply); err != nil {
			p.report = nil
			return nil
		}
	}
}

// body notes the request's body, and reads the order in it.
func (p *proof) body(msg *extproc.HttpBody) {
	p.req.Body, p.req.BodyState = msg.GetBody(), order.BodyComplete
	before := *p.report
	p.look()
	size := len(p.req.Body)
	p.report.Body, p.report.Trailers, p.report.Answer = &size, !msg.GetEndOfStream(), before.Answer
}

// reply answers in place of the backend.
func (p *proof) reply() error {
	p.report.Time = time.Now().UTC()
	return p.stream.Send(immediate(p.report.Reply().Answer(gate.VerdictNone)))
}
