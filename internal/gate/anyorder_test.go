package gate_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// TestAnyOrder reports events to a call in any order, also in one that no Envoy has. Each lock that is
// granted is released or held, and released only when the backend is done; each message gets a reply, or waits
// for work; no client has the answer to a create whose order is neither known nor in doubt, or one that is to be
// stored and is not.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newAnyOrder(rt)
		p.on(gate.Event{Kind: gate.Opened})
		for range rapid.IntRange(0, 12).Draw(rt, "events") {
			p.next()
		}
		if rapid.Bool().Draw(rt, "patient") {
			for p.working > 0 {
				p.deliver()
			}
			if p.holds && p.shown {
				p.fail("the answer stalls")
			}
		}
		p.on(gate.Event{Kind: gate.StreamEnded})
		for p.working > 0 {
			p.deliver()
		}
		p.check()
	})
}

// anyOrder is a call with what has happened to it.
type anyOrder struct {
	t       *rapid.T
	rule    gate.Policy
	req     order.Request
	call    *gate.Call
	lock    *gatetest.Lock
	keys    *gatetest.Lock
	filter  *gatetest.Filter
	ends    chan gate.Event // of work
	working int             // of which the end is to come
	reading bool            // the request's body
	passed  bool            // the request
	refused bool
	over    bool           // the stream
	watched bool           // the lease
	lost    bool           // or at its maximum
	answer  *gate.Response // the first one
	rest    int            // of its body, by its Content-Length; -1: unknown
	whole   bool           // all of it has come
	shown   bool           // and its end
	second  bool           // another one has come
	early   bool           // a part of one has come before its headers
	holds   bool           // it waits, as far as it has come
	told    bool           // the client has all of it
	trail   []string
}

func newAnyOrder(t *rapid.T) *anyOrder {
	did := &gatetest.Journal{}
	p := &anyOrder{
		t: t, ends: make(chan gate.Event, 20), keys: &gatetest.Lock{Journal: did, Name: "key", Texts: make(map[string]string)},
		lock:   &gatetest.Lock{Journal: did, Grants: make(chan error, 1), Texts: make(map[string]string)},
		filter: &gatetest.Filter{Journal: &gatetest.Journal{}, Others: presence.Maybe, Tables: rapid.Bool().Draw(t, "followed"), Late: rapid.Bool().Draw(t, "late")},
	}
	inPath := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	inBody := []order.ID{{In: order.InJSON, Members: []string{"id"}, Format: digits, MaxBody: 1000}}
	stores := func(status int) bool { return status/100 == 2 }
	once := &gate.Once{Name: "answer", Keep: time.Hour, MaxBody: 100, Stores: stores}
	keyed := &gate.Once{Name: "keyed", Keep: time.Hour, MaxBody: 100, Stores: stores, Key: &gate.OnceKey{Lock: p.keys, Parts: []string{"idempotency-key"}}}
	undo := &gate.Once{Keep: time.Hour, Stores: stores, Forget: []string{"answer"}}
	create := &gate.Create{Filter: p.filter, Learn: gate.Learn{JSON: []string{"id"}}, Format: digits}
	named := &gate.Create{Filter: p.filter, Learn: gate.Learn{Header: "location"}, Format: digits}
	absent := &gate.Answers{Absent: []gate.AnswerTest{{Members: []gate.MemberTest{{Path: []string{"code"}, Is: []string{"404"}}}}}}
	at := func(path string, ids []order.ID) order.Rule {
		return order.Rule{Name: path, Methods: []string{"GET"}, Path: path, IDs: ids}
	}
	p.rule = rapid.SampledFrom([]gate.Policy{
		{Rule: at("/{id}", inPath), Settle: &gate.Settle{Lock: p.lock}},
		{Rule: at("/{id}", inPath), Settle: &gate.Settle{Lock: p.lock, Once: once}},
		{Rule: at("/{id}", inPath), Settle: &gate.Settle{Lock: p.lock, Once: once}, Once: keyed},
		{Rule: at("/{id}", inPath), Settle: &gate.Settle{Lock: p.lock, Once: undo}},
		{Rule: at("/", inBody), Settle: &gate.Settle{Lock: p.lock, Once: once}},
		{Rule: at("/", inBody), Settle: &gate.Settle{Lock: p.lock}, Create: create},
		{Rule: at("/", nil), Once: keyed},
		{Rule: at("/", nil), Once: keyed, Create: create},
		{Rule: at("/", nil), Create: create},
		{Rule: at("/", nil), Create: named},
		{Rule: at("/{id}", inPath), Answers: absent, Lookup: &gate.Lookup{Filter: p.filter, OnNotFound: func(string) {}}},
	}).Draw(t, "rule")
	p.rule.Observe = rapid.Bool().Draw(t, "observe")
	g := gatetest.Gate(t, []gate.Policy{p.rule}, gatetest.Silent{})
	g.LogDecisionsTo(gatetest.Decisions(true))
	g.TraceTo(gatetest.Tracer{})
	p.lock.Grants <- rapid.SampledFrom([]error{nil, nil, nil, gate.ErrBusy, errors.New("connection refused")}).Draw(t, "grant")
	p.req = order.Request{
		Method: "GET", Target: strings.Replace(p.rule.Rule.Path, "{id}", "42", 1), BodyState: order.BodyComplete,
		Header: order.HeaderList{{"content-type", "application/json"}, {"content-length", "9"}, {"idempotency-key", `"k"`}},
	}
	if len(p.rule.Rule.IDs) > 0 && p.rule.Rule.IDs[0].In == order.InJSON {
		p.req.BodyState = order.BodyUnseen
	}
	p.call = g.Open(p.req)
	return p
}

// next has something happen.
func (p *anyOrder) next() {
	of := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(p.t, name) }
	flag := func(name string) bool { return rapid.Bool().Draw(p.t, name) }
	switch event := of("event", "request", "request", "headers", "headers", "body", "trailers", "work", "work", "lost", "maximum", "delayed"); {
	case event == "request" && p.reading:
		p.reading = false
		if flag("trailers") {
			p.on(gate.Event{Kind: gate.RequestTrailers})
			return
		}
		whole := p.req
		whole.Body, whole.BodyState = []byte(`{"id":42}`), order.BodyComplete
		p.on(gate.Event{Kind: gate.RequestBody, Request: &whole})
	case event == "headers":
		r := &gate.Response{
			Status:   rapid.SampledFrom([]int{200, 201, 303, 404, 409, 422, 500, 502}).Draw(p.t, "status"),
			Attempts: rapid.IntRange(0, 2).Draw(p.t, "attempts"), AttemptHeader: -1, GRPC: flag("grpc"), Ended: flag("ended"), Header: order.HeaderList{},
			Details: of("details", "via_upstream", "via_upstream", "via_upstream", "response_timeout", "no_healthy_upstream", ""),
		}
		if flag("named") {
			r.Header = order.HeaderList{{"location", "43"}}
		}
		if p.answer != nil {
			p.second = true
		} else {
			p.answer, p.rest = r, -1
			if flag("sized") {
				p.rest = rapid.SampledFrom([]int{0, 1, 9}).Draw(p.t, "length")
				r.Header = append(r.Header.(order.HeaderList), [2]string{"content-length", strconv.Itoa(p.rest)})
			}
			p.arrive(0, r.Ended)
		}
		p.reading = false
		p.on(gate.Event{Kind: gate.ResponseHeaders, Response: r, Unseen: flag("unseen")})
	case event == "body" && !p.reading:
		e := gate.Event{Kind: gate.ResponseBody, Body: []byte(of("piece", `{"id":43}`, "x", `{"code":404}`)), End: flag("end"), Cut: flag("cut")}
		p.arrive(len(e.Body), e.End)
		p.on(e)
	case event == "trailers" && !p.reading:
		p.arrive(0, true)
		p.on(gate.Event{Kind: gate.ResponseTrailers, GRPCStatus: of("grpc-status", "", "0", "4", "13")})
	case event == "work" && p.working > 0:
		p.deliver()
	case event == "lost" && p.watched:
		p.lost = true
		p.lock.Lose()
		p.keys.Lose()
		p.on(gate.Event{Kind: gate.LeaseLost})
	case event == "maximum" && p.watched:
		p.lost = true
		p.on(gate.Event{Kind: gate.LeaseLost})
	case event == "delayed":
		p.on(gate.Event{Kind: gate.Delayed})
	}
}

// arrive has a part of the first answer come, unless another one has.
func (p *anyOrder) arrive(size int, end bool) {
	p.early = p.early || p.answer == nil
	if p.early || p.second {
		return
	}
	if p.rest > 0 {
		p.rest = max(p.rest-size, 0)
	}
	p.shown = p.shown || end
	p.whole = p.whole || end || p.rest == 0
}

func (p *anyOrder) deliver() {
	e := <-p.ends
	p.working--
	p.on(e)
}

// on reports an event, and checks the step.
func (p *anyOrder) on(e gate.Event) {
	p.over = p.over || e.Kind == gate.StreamEnded
	step := p.call.On(e)
	p.trail = append(p.trail, fmt.Sprintf("event %d %+v: %+v", e.Kind, e.Response, step))
	p.reading = p.reading || step.Do == gate.ReadRequest
	switch step.Do {
	case gate.PassRequest, gate.Refuse:
		if p.over || p.refused || step.Do == gate.PassRequest && p.passed {
			p.fail("done once more, or after the end")
		}
		p.passed, p.refused, p.holds = p.passed || step.Do == gate.PassRequest, step.Do == gate.Refuse, false
	case gate.ReadResponse:
		p.holds = !p.second
	case gate.Wait:
		p.holds = p.answer != nil && !p.second
		if step.Work == gate.NoWork && p.working == 0 && e.Kind != gate.ResponseBody {
			p.fail("it waits for nothing")
		}
	case gate.PassResponse:
		p.holds, p.told = false, p.told || p.whole && !p.refused
		if p.hasCreated() && p.filter.Journal.Short() == "" {
			p.fail("the client has the answer, and the order is not known")
		}
	}
	switch step.Work {
	case gate.NoWork:
	case gate.Watch:
		p.watched = true
	default:
		p.working++
		p.call.Start(p.t.Context(), step.Work, func(e gate.Event) { p.ends <- e })
	}
}

// hasCreated reports whether the client gets an answer of the backend by which there is an order.
func (p *anyOrder) hasCreated() bool {
	return p.passed && !p.refused && p.rule.Create != nil && p.answer != nil && p.answer.Details == "via_upstream" && p.answer.Status/100 == 2
}

// check checks what is left of the call.
func (p *anyOrder) check() {
	lines := p.lock.Journal.Lines()
	count := func(what string) (n int) {
		for _, line := range lines {
			if strings.Contains(line, what) {
				n++
			}
		}
		return n
	}
	outcome := gate.OutcomeUnknown
	if p.answer != nil {
		outcome = p.answer.Outcome()
	}
	atWork := p.watched && outcome != gate.OutcomeNotForwarded && (outcome != gate.OutcomeKnown || !p.whole)
	stores := p.watched && !p.rule.Observe && (p.rule.Once != nil || p.rule.Settle.Once != nil && p.rule.Settle.Once.Forget == nil)
	switch {
	case p.early: // no Envoy does that
	case atWork && count("release") > 0:
		p.fail("a lock is released while the backend may be at work")
	case atWork && len(p.lock.Texts)+len(p.keys.Texts) > 0:
		p.fail("an answer is stored that is none")
	case stores && p.told && !p.lost && outcome == gate.OutcomeKnown && p.answer.Status/100 == 2 && !p.answer.GRPC && count("store") == 0:
		p.fail("the client has an answer that is not stored")
	}
	switch ends := count("release") + count("hold"); {
	case p.lock.Open()+p.keys.Open() > 0:
		p.fail("a lock is left")
	case ends > count("acquire"):
		p.fail("a lock ends twice")
	case p.watched && p.answer == nil && count("hold") == 0:
		p.fail("a lock is released without an answer")
	case p.passed && p.rule.Create != nil && p.answer == nil && !p.filter.Tables && len(p.filter.Journal.Lines()) == 0:
		p.fail("an order may exist, and nothing shows it")
	}
}

func (p *anyOrder) fail(why string) {
	p.t.Fatalf("%s\n%s\nlocks: %s\nfilter: %s", why, strings.Join(p.trail, "\n"), p.lock.Journal.Short(), p.filter.Journal.Short())
}
