package envoymodule

import (
	"net/http"
	"runtime"

	"github.com/envoyproxy/envoy/source/extensions/dynamic_modules/sdk/go/shared"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// stream is the filter of one HTTP stream. All of it is the worker's: its methods are
// called by Envoy, and by what was scheduled.
type stream struct {
	shared.EmptyHttpFilter
	face  *Face
	envoy shared.HttpFilterHandle

	stage    stage
	body     []byte // of the request, as far as it was waited for
	state    order.BodyState
	witness  bool // a lookup was passed on whose answer is of interest
	over     bool
	answered bool     // the response's headers have come, or an answer was given
	bracket  *bracket // of a settlement; nil: none
	create   *create  // nil: none
}

// stage is where a request stands.
type stage int8

const (
	reading stage = iota // its headers, or its body, are yet to come
	waiting              // for a verdict, or for a lock: it is not passed on
	passed               // it is on its way
	refused              // it was answered here
)

// OnRequestHeaders implements shared.HttpFilter.
func (s *stream) OnRequestHeaders(h shared.HeaderMap, end bool) (status shared.HeadersStatus) {
	defer func() {
		if v := recover(); v != nil {
			s.failed("request headers", v)
			status = s.headersStatus()
		}
	}()
	if end { // no body will come
		s.state = order.BodyComplete
	}
	s.judge(headers(h.GetAll()))
	return s.headersStatus()
}

func (s *stream) headersStatus() shared.HeadersStatus {
	switch s.stage {
	case passed:
		return shared.HeadersStatusContinue
	case reading:
		return shared.HeadersStatusStop // the body will be shown
	}
	// Not the one that refuses what is larger than a buffer: the client is slowed down.
	return shared.HeadersStatusStopAllAndWatermark
}

// OnRequestBody implements shared.HttpFilter. It is called while the body is waited
// for, and when the request was passed on.
func (s *stream) OnRequestBody(body shared.BodyBuffer, end bool) (status shared.BodyStatus) {
	defer func() {
		if v := recover(); v != nil {
			s.failed("request body", v)
			status = s.bodyStatus()
		}
	}()
	if s.stage == reading {
		for _, chunk := range body.GetChunks() {
			s.body = append(s.body, chunk.ToUnsafeBytes()...)
		}
		if end {
			s.bodyIsThere()
		}
	}
	return s.bodyStatus()
}

func (s *stream) bodyStatus() shared.BodyStatus {
	if s.stage == passed {
		return shared.BodyStatusContinue
	}
	return shared.BodyStatusStopAndBuffer // one that is too large Envoy refuses, with 413
}

// OnRequestTrailers implements shared.HttpFilter.
func (s *stream) OnRequestTrailers(shared.HeaderMap) (status shared.TrailersStatus) {
	defer func() {
		if v := recover(); v != nil {
			s.failed("request trailers", v)
			status = s.trailersStatus()
		}
	}()
	if s.stage == reading {
		s.bodyIsThere()
	}
	return s.trailersStatus()
}

func (s *stream) trailersStatus() shared.TrailersStatus {
	if s.stage == passed {
		return shared.TrailersStatusContinue
	}
	return shared.TrailersStatusStop
}

func (s *stream) bodyIsThere() {
	s.state = order.BodyComplete
	s.judge(headers(s.envoy.RequestHeaders().GetAll()))
}

// judge asks for the verdict, and goes on with it unless that takes time.
func (s *stream) judge(h headers) {
	req := h.request(s.body, s.state)
	switch glimpse := s.face.gate.Glance(req); {
	case glimpse.NeedsBody:
		s.stage = reading
	case glimpse.Waits != nil:
		s.stage = waiting
		s.await(glimpse.Waits)
	default:
		s.judged(h, &glimpse.Decision)
	}
}

// await has the verdict waited for.
func (s *stream) await(w *gate.Waiting) {
	to := s.envoy.GetScheduler()
	s.face.work.Add(1)
	w.Then(func(d gate.Decision) {
		defer s.face.work.Done()
		to.Schedule(func() { s.scheduled("a verdict", func() { s.decided(&d) }) })
		runtime.KeepAlive(to) // Envoy's part of it is freed with ours
	})
}

// decided goes on with a verdict that took time.
func (s *stream) decided(d *gate.Decision) {
	if s.answered {
		return // Envoy was faster, or the client
	}
	s.judged(headers(s.envoy.RequestHeaders().GetAll()), d)
	if s.stage == passed {
		s.envoy.ContinueRequest()
	}
}

// judged does what follows a verdict. It leaves it to the caller to let the request go
// on, where the stage says so.
func (s *stream) judged(h headers, d *gate.Decision) {
	if d.Refused {
		s.refuse(s.face.refusals[d.Rule][d.Refusal()])
		return
	}
	s.stage = passed
	if d.Rule < 0 {
		h.strip(s.envoy.RequestHeaders(), foreign, false)
		return
	}
	p := &s.face.gate.Policies()[d.Rule]
	if p.Settle != nil || p.Create != nil {
		s.open(h)
		return
	}
	to := s.envoy.RequestHeaders()
	h.strip(to, ours, false)
	if d.Verdict != gate.VerdictNone {
		to.Set(gate.HeaderVerdict, d.Verdict.String())
	}
	s.witness = p.Lookup != nil && p.Lookup.Missing != nil
}

// open begins the call of a rule that creates or settles.
func (s *stream) open(h headers) {
	call := s.face.gate.Open(h.request(s.body, s.state))
	s.body = nil
	if call.Decision.Refused {
		s.refuse(s.face.refusals[call.Decision.Rule][call.Decision.Refusal()])
		return
	}
	if call.NeedsLock {
		s.stage = waiting
		s.bracket = s.face.newBracket(call, s)
		return
	}
	h.strip(s.envoy.RequestHeaders(), ours, call.LearnsBody())
	if call.NeedsAnswer {
		s.create = &create{call: call, stream: s}
	}
}

func (s *stream) refuse(r *reply) {
	s.stage, s.answered = refused, true
	s.envoy.SendLocalResponse(r.status, r.headers, r.body, r.details)
}

// OnResponseHeaders implements shared.HttpFilter.
func (s *stream) OnResponseHeaders(h shared.HeaderMap, end bool) (next shared.HeadersStatus) {
	defer func() {
		if v := recover(); v != nil {
			s.face.recovered("response headers", v)
			next = shared.HeadersStatusContinue
		}
	}()
	s.answered = true
	switch {
	case s.witness:
		if code := status(h); code == http.StatusNotFound || code == http.StatusGone {
			req := headers(s.envoy.RequestHeaders().GetAll()).request(nil, order.BodyUnseen)
			s.face.gate.Answered(req, s.response(h))
		}
	case s.bracket != nil:
		s.bracket.answered(s.response(h), h)
	case s.create != nil:
		return s.create.answered(s.response(h), h, end)
	}
	return shared.HeadersStatusContinue
}

// OnResponseBody implements shared.HttpFilter.
func (s *stream) OnResponseBody(body shared.BodyBuffer, end bool) (next shared.BodyStatus) {
	defer func() {
		if v := recover(); v != nil {
			s.face.recovered("response body", v)
			next = shared.BodyStatusContinue
		}
	}()
	if s.create == nil {
		return shared.BodyStatusContinue
	}
	return s.create.more(body, end)
}

// OnResponseTrailers implements shared.HttpFilter.
func (s *stream) OnResponseTrailers(shared.HeaderMap) (next shared.TrailersStatus) {
	defer func() {
		if v := recover(); v != nil {
			s.face.recovered("response trailers", v)
			next = shared.TrailersStatusContinue
		}
	}()
	if s.create != nil && s.create.end() {
		return shared.TrailersStatusStop
	}
	return shared.TrailersStatusContinue
}

// OnStreamComplete implements shared.HttpFilter: the stream is over, well or badly, and
// nothing that is scheduled comes any more.
func (s *stream) OnStreamComplete() {
	defer func() {
		if v := recover(); v != nil {
			s.face.recovered("the end of a stream", v)
		}
	}()
	if s.over {
		return
	}
	s.over = true
	if s.create != nil && s.create.timer != nil {
		s.create.timer.Stop()
	}
	if s.bracket == nil {
		return
	}
	var last *gate.Response
	if !s.answered {
		last = s.response(nil)
	}
	s.bracket.ended(last, s.stage == passed)
}

// OnDestroy implements shared.HttpFilter.
func (s *stream) OnDestroy() { s.OnStreamComplete() }

// scheduled runs what came back to the worker.
func (s *stream) scheduled(at string, do func()) {
	defer func() {
		if v := recover(); v != nil {
			s.failed(at, v)
			if s.stage == passed {
				s.envoy.ContinueRequest()
			}
		}
	}()
	do()
}

// failed is a fault of ours before the request was passed on.
func (s *stream) failed(at string, v any) {
	s.face.recovered(at, v)
	if s.answered || s.stage == passed && s.bracket != nil {
		return
	}
	method := s.envoy.RequestHeaders().GetOne(":method").ToUnsafeString()
	if s.face.opts.FailureModeAllow || s.bracket == nil && (method == http.MethodGet || method == http.MethodHead) {
		s.stage = passed
		return
	}
	s.refuse(fault)
}
