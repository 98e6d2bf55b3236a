package gatetest

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// Conversation is all that Envoy shows of one request. Every adapter, and the call alone, does the same in it.
type Conversation struct {
	Path, Body string
	Grant      string // of the lock: "granted", "busy", "unavailable"; "": the client leaves before
	Lost       string // when the lease is lost: "before" the answer, "within" it; "": never
	Answer     *BackendAnswer
}

// BackendAnswer is the backend's, or Envoy's own. Nil: the client leaves before.
type BackendAnswer struct {
	Status, Attempts int
	Details          string
	Header           order.HeaderList
	Pieces           []string
	End              string // "headers", "piece", "trailers"; "": the client leaves within it
}

// Paths of a [Stage].
const (
	settlePath, settleJSONPath, createPath, namedPath, lockedPath, keyedPath, lookupPath = "/orders/42/settle", "/settle", "/orders", "/named", "/locked", "/keyed", "/orders/42"
)

// Conversations draws one.
func Conversations(t *rapid.T) Conversation {
	of := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	c := Conversation{
		Path:  of("path", settlePath, settleJSONPath, createPath, namedPath, lockedPath, keyedPath, lookupPath),
		Grant: of("grant", "granted", "granted", "granted", "busy", "unavailable", ""),
		Lost:  of("lost", "", "", "", "before", "within"),
	}
	if c.IsLocked() && c.Path != settlePath {
		c.Body = `{"id":42}`
	}
	if rapid.IntRange(0, 5).Draw(t, "answered") == 0 {
		return c
	}
	a := &BackendAnswer{
		Status: rapid.SampledFrom([]int{200, 201, 303, 404, 409, 422, 500, 502, 503, 504}).Draw(t, "status"), Attempts: rapid.IntRange(0, 2).Draw(t, "attempts"),
		Details: of("details", "via_upstream", "via_upstream", "via_upstream", "response_timeout", "no_healthy_upstream", ""),
		End:     of("end", "headers", "piece", "piece", "trailers", ""),
	}
	if a.End != "headers" {
		a.Pieces = rapid.SampledFrom([][]string{{`{"id":43}`}, {`{"id"`, `:43}`}, {`{"code":404}`}, {"x", "y", "z"}, {`{"id":43`}}).Draw(t, "body")
	}
	if named := of("location", "", "/orders/43", "/login"); named != "" {
		a.Header = append(a.Header, [2]string{"location", named})
	}
	if size := len(strings.Join(a.Pieces, "")); (a.End == "piece" || a.End == "") && rapid.Bool().Draw(t, "sized") {
		a.Header = append(a.Header, [2]string{"content-length", fmt.Sprint(size)})
	}
	c.Answer = a
	return c
}

// IsLocked reports whether the request takes a lock.
func (c *Conversation) IsLocked() bool {
	return c.Path == settlePath || c.Path == settleJSONPath || c.Path == lockedPath || c.Path == keyedPath
}

// Request returns the request, with or without its body.
func (c *Conversation) Request(withBody bool) *order.Request {
	req := &order.Request{Method: http.MethodPost, Target: c.Path, Host: "shop", BodyState: order.BodyComplete, Header: order.HeaderList{{"content-type", "application/json"}}}
	if c.Path == lookupPath {
		req.Method = http.MethodGet
	}
	switch {
	case c.Body == "":
		req.Header = order.HeaderList{}
	case withBody:
		req.Body = []byte(c.Body)
	default:
		req.BodyState = order.BodyUnseen
	}
	return req
}

// Response returns the headers of the answer.
func (a *BackendAnswer) Response() *gate.Response {
	return &gate.Response{Status: a.Status, Details: a.Details, Attempts: a.Attempts, AttemptHeader: -1, Header: a.Header, Ended: a.End == "headers"}
}

// Stage is a gate with the parts behind it, for one conversation.
type Stage struct {
	Gate   *gate.Gate
	Lock   *Lock
	filter *Filter
	record *Recorder
}

// NewStage returns one whose lock is decided by the conversation.
func (c *Conversation) NewStage(t testing.TB) *Stage {
	t.Helper()
	s := &Stage{
		Lock:   &Lock{Journal: &Journal{}, Grants: make(chan error, 1), Texts: make(map[string]string)},
		filter: &Filter{Journal: &Journal{}, Others: presence.Maybe}, record: &Recorder{},
	}
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	inPath := []order.ID{{In: order.InPath, Name: "id", Format: format}}
	inJSON := []order.ID{{In: order.InJSON, Name: "id", Members: []string{"id"}, Format: format, MaxBody: 1 << 10}}
	settle := &gate.Settle{
		Lock: s.Lock, Busy: gate.Reply{Status: 409}, Unavailable: gate.Reply{Status: 503},
		Once: &gate.Once{Name: "answer", Keep: time.Hour, MaxBody: 100, Stores: func(status int) bool { return status/100 == 2 }},
	}
	keyed := *settle.Once
	keyed.Key, keyed.InUse, keyed.Unavailable = &gate.OnceKey{Lock: s.Lock, Parts: []string{""}}, gate.Reply{Status: 409}, gate.Reply{Status: 503}
	create := gate.Create{Filter: s.filter, Learn: gate.Learn{JSON: []string{"id"}}, Format: format}
	named := gate.Create{Filter: s.filter, Learn: gate.Learn{Header: "location", Capture: regexp.MustCompile("/orders/([0-9]+)$")}, Format: format}
	rule := func(method, path string, ids []order.ID) order.Rule {
		return order.Rule{Name: path, Methods: []string{method}, Path: path, IDs: ids}
	}
	s.Gate = Gate(t, []gate.Policy{
		{Rule: rule("POST", "/orders/{id}/settle", inPath), Settle: settle},
		{Rule: rule("POST", settleJSONPath, inJSON), Settle: settle},
		{Rule: rule("POST", lockedPath, inJSON), Create: &create, Settle: &gate.Settle{Lock: s.Lock, Busy: gate.Reply{Status: 409}, Unavailable: gate.Reply{Status: 503}}},
		{Rule: rule("POST", keyedPath, nil), Create: &create, Once: &keyed},
		{Rule: rule("POST", createPath, nil), Create: &create},
		{Rule: rule("POST", namedPath, nil), Create: &named},
		{
			Rule: rule("GET", "/orders/{id}", inPath), Answers: &gate.Answers{Absent: []gate.AnswerTest{{Members: []gate.MemberTest{{Path: []string{"code"}, Is: []string{"404"}}}}}},
			Lookup: &gate.Lookup{Filter: s.filter, OnNotFound: func(id string) { s.filter.Journal.Add("not found ", id) }},
		},
	}, s.record)
	return s
}

// FaultAt has fault called before what the stage's parts do, where it may panic. That a lock is requested or held
// is left out.
func (s *Stage) FaultAt(fault func(event string)) {
	s.Gate.LogDecisionsTo(faultyLog{fault})
	s.filter.Journal.Fault, s.record.Fault = fault, fault
	s.Lock.Journal.Fault = func(event string) {
		if event == "release" || strings.HasPrefix(event, "store ") {
			fault(event)
		}
	}
}

type faultyLog struct{ fault func(event string) }

func (l faultyLog) Wants(int, gate.Action, gate.Verdict) bool {
	l.fault("log")
	return true
}

func (faultyLog) Write(*gate.LoggedDecision) {}

// Decide has the lock granted or refused.
func (s *Stage) Decide(c *Conversation) {
	s.Lock.Grants <- map[string]error{"busy": gate.ErrBusy, "unavailable": errors.New("connection refused")}[c.Grant]
}

// Report says what was done in a conversation, without the reasons, and with which status the client was refused; 0: it was not.
func (s *Stage) Report(refused int) string {
	var lines []string
	for _, line := range s.record.Lines() { // an adapter may have judged a request before that
		if !strings.HasSuffix(line, " none") && !strings.HasSuffix(line, " maybe") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("lock: %s\nfilter: %s\nrecord: %q\nrefused: %d\n", s.Lock.Journal.Short(), s.filter.Journal.Short(), lines, refused)
}

// player has a call alone take part in a conversation.
type player struct {
	t       testing.TB
	stage   *Stage
	call    *gate.Call
	events  chan gate.Event // of work that goes on meanwhile
	passed  bool            // the request
	refused bool
}

// Play has the call alone take part in a conversation, and returns the report.
func (c *Conversation) Play(t testing.TB) string {
	t.Helper()
	s := c.NewStage(t)
	p := &player{t: t, stage: s, call: s.Gate.Open(*c.Request(false)), events: make(chan gate.Event, 10)}
	p.on(gate.Event{Kind: gate.Opened})
	if c.Body != "" {
		p.on(gate.Event{Kind: gate.RequestBody, Request: c.Request(true)})
	}
	if c.IsLocked() && c.Grant != "" {
		s.Decide(c)
		p.on(<-p.events)
	}
	if p.passed {
		p.answer(c)
	}
	p.on(gate.Event{Kind: gate.StreamEnded})
	if c.IsLocked() && c.Grant == "" {
		p.on(<-p.events)
	}
	status := 0
	if p.refused {
		reply, _, _ := s.Gate.Policies()[p.call.Decision.Rule].Reply(p.call.Decision.Refusal())
		status = reply.Status
	}
	return s.Report(status)
}

func (p *player) answer(c *Conversation) {
	if c.Lost == "before" && c.IsLocked() {
		p.stage.Lock.Lose()
		p.on(<-p.events)
		return
	}
	if c.Answer == nil {
		return
	}
	p.on(gate.Event{Kind: gate.ResponseHeaders, Response: c.Answer.Response()})
	if c.Lost == "within" && c.IsLocked() && !p.refused {
		p.stage.Lock.Lose()
		p.on(<-p.events)
	}
	for i, piece := range c.Answer.Pieces {
		if !p.refused {
			p.on(gate.Event{Kind: gate.ResponseBody, Body: []byte(piece), End: c.Answer.End == "piece" && i == len(c.Answer.Pieces)-1})
		}
	}
	if c.Answer.End == "trailers" && !p.refused {
		p.on(gate.Event{Kind: gate.ResponseTrailers})
	}
}

func (p *player) on(e gate.Event) {
	for {
		step := p.call.On(e)
		p.passed, p.refused = p.passed || step.Do == gate.PassRequest, p.refused || step.Do == gate.Refuse
		if step.Work == gate.NoWork {
			return
		}
		ended := p.events
		if step.Work.Waits() {
			ended = make(chan gate.Event, 1)
		}
		p.call.Start(p.t.Context(), step.Work, func(e gate.Event) { ended <- e })
		if !step.Work.Waits() {
			return
		}
		e = <-ended
	}
}
