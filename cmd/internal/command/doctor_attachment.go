package command

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/timeouts"
)

// What to write where something is missing.
const (
	doAuthz   = "have the filter ext_authz stand before ext_proc in the chain of this route's listener, without ExtAuthzPerRoute disabled"
	doProc    = "have the filter ext_proc stand behind ext_authz, and keep it on this route: no ExtProcPerRoute disabled; for a GET, a route before that of other reads"
	doGuard   = "have the filter ordergate.guard of ordergate envoy stand behind ext_proc, and keep it on this route"
	doSource  = "request_attributes: [source.address] in ext_proc"
	doBody    = "allow_mode_override: true in ext_proc (where that is not possible, request_body_mode: BUFFERED and response_body_mode: STREAMED)"
	doEnds    = "allow_mode_override: true in ext_proc, response_trailer_mode: SEND, and no decompressor between ext_proc and the router"
	doOutcome = "response_attributes: [response.code_details, upstream.request_attempt_count] in ext_proc"
)

// askRunning checks that an ordergate runs with these rules. It returns false if that makes no marks.
func (d *doctor) askRunning(ctx context.Context) bool {
	known := 0
	for i := range d.config.Rules {
		name := d.config.Rules[i].Name
		switch _, err := d.mark(ctx, &probe{stage: gate.StageAuthz, rule: name}); {
		case err == nil:
			known++
		case known == 0 && i == 0:
			d.fail("running ordergate", "", "run doctor where listen.admin can be reached, with the file of ordergate serve", "%v", err)
			return false
		default:
			d.fail("running ordergate", name, "reload or restart ordergate with this file", "%v", err)
		}
	}
	if known == len(d.config.Rules) {
		d.ok("running ordergate", "", "it has the %d rules of the file", known)
	}
	return true
}

// examineAttachment sends marked requests through Envoy.
func (d *doctor) examineAttachment(ctx context.Context) {
	if !d.examineReads(ctx) {
		return
	}
	if !d.examineWrites(ctx) {
		return
	}
	d.examineListener(ctx)
	d.examineClocks(ctx)
	var wg sync.WaitGroup
	parts := make([]doctor, len(d.policies)) // of what was found
	for i := range d.policies {
		if d.policies[i].Rule.Pass {
			continue
		}
		parts[i] = *d
		parts[i].found = nil
		wg.Go(func() { parts[i].examineRule(ctx, &parts[i].policies[i]) })
	}
	wg.Wait()
	for i := range parts {
		d.found = append(d.found, parts[i].found...)
	}
}

// examineClocks compares those of ordergate and Envoy, which shows whole seconds.
func (d *doctor) examineClocks(ctx context.Context) {
	before := time.Now()
	p := d.send(ctx, probe{stage: gate.StageAuthz, req: d.read.req})
	after := time.Now()
	if p.report == nil {
		return
	}
	d.compareClock("ordergate", ahead(p.report.Time, before, after))
	if date, err := http.ParseTime(p.header.Get("Date")); err == nil {
		d.compareClock("Envoy", ahead(date, before.Add(-time.Second), after))
	}
}

// examineReads finds a read that ordergate answers. Without one, no write is sent: it might reach the
// backend.
func (d *doctor) examineReads(ctx context.Context) bool {
	var last probe
	for _, req := range d.harmlessReads() {
		p := d.send(ctx, probe{stage: gate.StageAuthz, req: req})
		if p.report != nil {
			d.read = p
			d.ok("attachment", "", "reads are answered by ordergate (%s)", p.report.Adapter)
			return true
		}
		if p.err != nil {
			d.fail("attachment", "", "check --through: it is the listener for clients", "%s", p.outcome())
			return false
		}
		if last.header.Get(gate.HeaderVerdict) == "" { // else another ordergate has answered
			last = p
		}
	}
	if last.foreign || last.header.Get(gate.HeaderVerdict) != "" {
		d.fail("attachment", "", "ask the ordergate behind this Envoy (listen.admin of the file), and let requests pass as they are", "%s", last.outcome())
		return false
	}
	if p := d.send(ctx, probe{stage: gate.StageProc, req: last.req}); p.report != nil {
		d.fail("ext_authz", "", doAuthz, "it is not reached, though ext_proc is: no lookup is refused")
		return false
	}
	d.fail("ext_authz", "", doAuthz, "it is not reached by reads, so no lookup is refused; writes were not sent: they might reach the backend. %s", last.outcome())
	return false
}

// examineWrites proves that marks arrive with the other methods of rules, too: without one, a request
// of a rule would act at the backend.
func (d *doctor) examineWrites(ctx context.Context) bool {
	if d.read.req.Target != gate.MarkedPath {
		return true // Envoy has no route for that path, so it proves nothing
	}
	asked := []string{http.MethodGet, http.MethodHead}
	for i := range d.policies {
		for _, method := range d.policies[i].Rule.Methods {
			if slices.Contains(asked, method) {
				continue
			}
			asked = append(asked, method)
			req := d.read.req
			req.Method = method
			p := d.send(ctx, probe{stage: gate.StageAuthz, req: req})
			if p.report == nil && p.refused == "" { // ext_authz may be off here
				p = d.send(ctx, probe{stage: gate.StageProc, req: req})
			}
			if p.report == nil {
				d.fail("attachment", "", "send these requests to Envoy with both filters, and let them pass as they are", "a marked %s is not answered by ordergate, so no rule's was sent: it might reach the backend. %s", method, p.outcome())
				return false
			}
		}
	}
	return true
}

// harmlessReads are reads that no rule takes for a write.
func (d *doctor) harmlessReads() []order.Request {
	reads := []order.Request{{Method: http.MethodGet, Target: gate.MarkedPath}}
	g, err := gate.New(d.policies, explain.StubRecorder{}, time.Now)
	if err != nil {
		return reads
	}
	for i := range d.policies {
		req, err := d.policies[i].Rule.Example(http.MethodGet)
		if err != nil {
			continue
		}
		req = bodiless(req)
		if m := g.Match(req); m.Rule < 0 && !m.Screening || m.Rule >= 0 && !d.policies[m.Rule].HasCalls() {
			reads = append(reads, req)
		}
	}
	return reads
}

// bodiless returns a request without its body.
func bodiless(req order.Request) order.Request {
	headers, _ := req.Header.(order.HeaderList)
	req.Header = slices.DeleteFunc(slices.Clone(headers), func(h [2]string) bool { return strings.HasPrefix(h[0], "content-") })
	req.Body = nil
	return req
}

// examineRule proves the attachment of a rule, by each of its methods.
func (d *doctor) examineRule(ctx context.Context, p *gate.Policy) {
	for _, method := range p.Rule.Methods {
		if method == http.MethodHead { // its answer has no body; it goes the way of GET
			continue
		}
		req, err := p.Rule.Example(method)
		if err != nil {
			d.skip(method, p.Rule.Name, "not proved: %v", err)
			continue
		}
		w := way{doctor: d, policy: p, req: req, name: p.Rule.Name, method: method}
		w.examine(ctx)
	}
}

// way is that of a rule's requests by one method.
type way struct {
	*doctor
	policy  *gate.Policy
	req     order.Request
	name    string
	method  string
	adapter string // that has answered

	authzOff bool // ext_authz is off here
}

func (w *way) send(ctx context.Context, stage gate.Stage, req order.Request, delay time.Duration) probe {
	return w.doctor.send(ctx, probe{stage: stage, rule: w.name, req: req, delay: delay})
}

func (w *way) examine(ctx context.Context) {
	first := w.examineAuthz(ctx)
	if !w.policy.HasCalls() {
		if first && len(w.req.Body) > 0 {
			w.examineLookupBody(ctx)
		}
		return
	}
	if !w.examineProc(ctx) {
		return
	}
	if req, ok := w.withBody(); ok {
		w.examineBody(ctx, req)
		w.examineTrailers(ctx, req)
	}
	w.examineTimeouts(ctx)
	if !w.opts.toBackend {
		w.skip(w.method+" answers", w.name, "not proved: add --to-backend")
		return
	}
	w.examineAnswer(ctx)
}

// examineAuthz proves that the way leads through ext_authz.
func (w *way) examineAuthz(ctx context.Context) bool {
	check := w.method + " ext_authz"
	p := w.send(ctx, gate.StageAuthz, bodiless(w.req), 0)
	switch r := p.report; {
	case r == nil:
		w.fail(check, w.name, doAuthz, "it is not reached. %s", p.outcome())
		return false
	case r.Adapter == gate.AdapterAuthz && r.Sealed:
		w.fail(check, w.name, doAuthz, "it stands behind ext_proc: an order that does not exist is locked first")
		return false
	case !w.isOfRule(check, &p):
		return false
	default:
		w.adapter, w.authzOff = r.Adapter, r.AuthzOff
		if !w.policy.HasCalls() {
			w.ok(check, w.name, "%s decides", r.Adapter)
		}
		if w.authzOff {
			w.examineGuard(ctx)
		}
		return true
	}
}

// isOfRule checks that a request arrived as it was sent, under its rule.
func (w *way) isOfRule(check string, p *probe) bool {
	r := p.report
	switch {
	case r.Target != p.req.Target:
		w.fail(check, w.name, "write the rule for the path that arrives, or leave the path as it is before ordergate", "the path %s arrives as %s", p.req.Target, r.Target)
	case r.Method != p.req.Method:
		w.fail(check, w.name, "leave the method as it is before ordergate", "the method %s arrives as %s", p.req.Method, r.Method)
	case r.Rule == "":
		w.fail(check, w.name, "compare match.host, and whether ordergate runs with this file", "no rule of the running ordergate matches %s %s at the host %s", r.Method, r.Target, r.Host)
	case r.Rule != w.name:
		w.fail(check, w.name, "let this rule stand before that one, or match otherwise", "its requests fall under rule %s", r.Rule)
	case !r.Named && len(p.req.Body) >= len(w.req.Body): // its order is not in a body that was left out
		w.fail(check, w.name, "let what names the order arrive; ordergate explain '"+r.Method+" "+r.Target+"' says more", "no order is read from what arrives: %s", r.Reason)
	default:
		return true
	}
	return false
}

// examineProc proves that the way leads through ext_proc.
func (w *way) examineProc(ctx context.Context) bool {
	if w.adapter == gate.AdapterModule {
		w.ok(w.method, w.name, "the module in Envoy brackets the call")
		return true
	}
	check := w.method + " ext_proc"
	p := w.send(ctx, gate.StageProc, bodiless(w.req), 0)
	switch r := p.report; {
	case r == nil && p.header.Get(gate.HeaderVerdict) == gate.VerdictUnavailable.String():
		w.fail(check, w.name, "have both filters ask one ordergate, or ordergates with one Redis (the key ordergate:seal); have initial_metadata of ext_proc say that ext_authz is off only where it is", "its ordergate cannot read the path that ext_authz has sealed, so each of these requests fails (%d)", p.status)
		return false
	case r == nil && p.status == http.StatusForbidden:
		w.fail(check, w.name, doProc, "it is not reached, so %s: Envoy refuses such a request. %s", w.consequence(), p.outcome())
		return false
	case r == nil:
		w.fail(check, w.name, doProc, "it is not reached, so %s, and the backend gets the path /.ordergate/not-bracketed. %s", w.consequence(), p.outcome())
		return false
	case r.Adapter == gate.AdapterHTTP:
		w.fail(check, w.name, "send these requests to Envoy", "they do not go through Envoy, so %s", w.consequence())
		return false
	case !w.isOfRule(check, &p):
		return false
	case r.AuthzOff:
		w.ok(check, w.name, "reached, and ext_authz is off here")
	case !r.Sealed && w.adapter != "":
		w.fail(check, w.name, doAuthz, "its requests have not passed ext_authz")
	case !r.Sealed: // ext_authz has its line
	default:
		w.ok(check, w.name, "reached behind ext_authz")
	}
	if !slices.Contains(p.report.Attributes, "source.address") {
		w.fail(w.method+" attributes", w.name, doSource, "the client's address does not arrive, so one client can take the places of all in settle.max_in_flight")
	}
	return true
}

// examineGuard proves that Envoy refuses what ext_proc has not seen.
func (w *way) examineGuard(ctx context.Context) {
	check := w.method + " guard"
	switch p := w.send(ctx, gate.StageGuard, bodiless(w.req), 0); {
	case p.report == nil || p.report.Answer == nil:
		w.skip(check, w.name, "not proved: %s", p.outcome())
	case p.report.Answer.Details == "":
		w.skip(check, w.name, "not proved: Envoy does not tell where an answer is from")
	case !strings.HasPrefix(p.report.Answer.Details, "rbac_"):
		w.fail(check, w.name, doGuard, "ext_authz is off here, and Envoy passes on what ext_proc has not seen (%d, %s): where that is lost, %s", p.report.Answer.Status, p.report.Answer.Details, w.consequence())
	default:
		w.ok(check, w.name, "Envoy refuses what ext_proc has not seen")
	}
}

// consequence says what happens without ext_proc.
func (w *way) consequence() string {
	var parts []string
	if w.policy.HasLock() {
		parts = append(parts, "nothing is locked")
	}
	if w.policy.Create != nil {
		parts = append(parts, "no new order is learned")
	}
	if len(parts) == 0 {
		return "nothing is refused"
	}
	return strings.Join(parts, " and ")
}

// withBody returns a request with a body; not ok: ordergate would not read it. It requests that of each
// settlement, wherever its ID is.
func (w *way) withBody() (req order.Request, ok bool) {
	req = w.req
	switch {
	case len(req.Body) > 0:
	case w.method == http.MethodGet || w.method == http.MethodDelete || !w.policy.HasLock():
		return req, false
	default:
		headers, _ := req.Header.(order.HeaderList)
		body, kind := "{}", "application/json"
		if slices.ContainsFunc(w.policy.Rule.IDs, func(id order.ID) bool { return id.In == order.InForm }) {
			body, kind = "doctor=1", "application/x-www-form-urlencoded"
		}
		req.Body, req.Header = []byte(body), append(slices.Clone(headers), [2]string{"content-type", kind})
	}
	return req, true
}

// examineBody proves that ordergate sees bodies.
func (w *way) examineBody(ctx context.Context, req order.Request) {
	check := w.method + " bodies"
	p := w.send(ctx, gate.StageProc, req, 0)
	switch r := p.report; {
	case r == nil && p.err != nil:
		w.fail(check, w.name, "look at Envoy's log", "%s", p.outcome())
	case r == nil, r.Body == nil:
		w.fail(check, w.name, doBody, "Envoy does not show the body, so each request with one fails: Envoy does not do what ordergate's mode_override says")
	case *r.Body != len(req.Body):
		w.fail(check, w.name, "let no filter before ordergate change bodies", "of %d bytes ordergate has seen %d", len(req.Body), *r.Body)
	case !w.isOfRule(check, &p):
	case r.BodyMode != "" && r.BodyMode != "NONE":
		w.skip(check, w.name, "seen, as request_body_mode is %s; whether mode_override is honoured is not proved: add --to-backend", r.BodyMode)
	case r.Adapter == gate.AdapterProc:
		w.ok(check, w.name, "seen, so mode_override is honoured")
	default:
		w.ok(check, w.name, "seen")
	}
}

// examineTrailers proves that ordergate sees how requests end that have trailers, which Envoy takes over
// HTTP/2.
func (w *way) examineTrailers(ctx context.Context, req order.Request) {
	check := w.method + " trailers"
	alone := req
	alone.Body = nil
	for _, one := range []order.Request{req, alone} {
		p := w.doctor.send(ctx, probe{stage: gate.StageProc, rule: w.name, req: one, trails: true})
		switch r := p.report; {
		case r == nil && p.err != nil && !errors.Is(p.err, context.DeadlineExceeded):
			w.skip(check, w.name, "not proved: the listener does not take HTTP/2 (%v)", p.err)
			return
		case r == nil, len(one.Body) > 0 && (r.Body == nil || *r.Body != len(one.Body)):
			w.fail(check, w.name, doBody, "of a request of %d bytes that ends in trailers, Envoy does not show the end, so it fails", len(one.Body))
			return
		case !r.Trailers:
			w.skip(check, w.name, "not proved: trailers do not arrive")
			return
		}
	}
	w.ok(check, w.name, "the end of a request is seen behind its body, and without one")
}

// examineLookupBody proves that a lookup's ID in the body is seen, by ext_authz or ext_proc.
func (w *way) examineLookupBody(ctx context.Context) {
	check := w.method + " bodies"
	for _, stage := range []gate.Stage{gate.StageAuthz, gate.StageProc} {
		if p := w.send(ctx, stage, w.req, 0); p.report != nil && p.report.Body != nil && p.report.Named {
			w.ok(check, w.name, "seen by %s", p.report.Adapter)
			return
		}
	}
	w.fail(check, w.name, "with_request_body in check_settings of ExtAuthzPerRoute, or ext_proc on this route", "no filter shows the body that names the order, so nothing is refused")
}

// examineTimeouts has ordergate take as long as it may, and proves that Envoy waits.
func (w *way) examineTimeouts(ctx context.Context) {
	if w.adapter == gate.AdapterModule {
		return // Envoy waits for the module without a limit
	}
	longest, least := time.Duration(0), time.Duration(0)
	for _, h := range timeouts.AnswerDelays(w.config) {
		if h.Rule == w.name && h.Longest > longest {
			longest, least = h.Longest, h.MessageTimeout
		}
	}
	for _, r := range timeouts.RequestWaits(w.config) {
		if r.Rule == w.name && r.Timeout == timeouts.MessageTimeout && r.Longest > longest {
			longest, least = r.Longest, r.Least
		}
	}
	if longest == 0 {
		return
	}
	check := w.method + " message_timeout"
	switch p := w.send(ctx, gate.StageProc, bodiless(w.req), min(longest, gate.MaxMarkDelay)); {
	case p.report == nil:
		w.fail(check, w.name, fmt.Sprintf("message_timeout: %v in ext_proc, and longer timeouts around it", least),
			"ordergate may take %v, and Envoy has given up after %v (status %d)", longest, p.took.Round(time.Millisecond), p.status)
	default:
		w.ok(check, w.name, "Envoy waits for %v", p.took.Round(10*time.Millisecond))
	}
}

// examineAnswer proves that ordergate sees the backend's answer.
func (w *way) examineAnswer(ctx context.Context) {
	check := w.method + " answers"
	p := w.send(ctx, gate.StageBackend, bodiless(w.req), 0)
	switch r := p.report; {
	case r == nil:
		w.fail(check, w.name, "response_header_mode: SEND, and allow_mode_override: true, in ext_proc", "Envoy does not show how answers end, so each order stays locked for on_unknown_outcome.hold. %s", p.outcome())
	case r.Answer == nil:
		w.skip(check, w.name, "not proved: ordergate has not waited for one")
	case r.Answer.Details == "" || r.Answer.Attempts < 0:
		w.fail(check, w.name, doOutcome, "Envoy does not tell where an answer is from, or how often it has tried: no outcome is known, and each lock is held")
	case !strings.HasPrefix(r.Answer.Details, "via_upstream"):
		w.skip(check, w.name, "not proved: the backend has not answered (%d, %s)", r.Answer.Status, r.Answer.Details)
	case !r.Answer.Ended:
		w.fail(check, w.name, doEnds, "Envoy does not show the end of the answer")
	case r.Answer.Attempts != 1:
		w.fail(check, w.name, "no retry_policy on this route", "Envoy has tried %d times", r.Answer.Attempts)
	default:
		w.ok(check, w.name, "seen to the end (status %d, %s, attempts: %d)", r.Answer.Status, r.Answer.Details, r.Answer.Attempts)
	}
}
