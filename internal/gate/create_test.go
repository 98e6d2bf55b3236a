package gate_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// newCreate opens a create with this rule, of which the request may name order 7.
func newCreate(t *testing.T, learn gate.Learn, target string) (*gate.Call, *gatetest.Filter) {
	t.Helper()
	filter := &gatetest.Filter{Journal: &gatetest.Journal{}}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "create", Methods: []string{"POST"}, Path: "/orders", Optional: true,
			IDs: []order.ID{{In: order.InQuery, Name: "id", Format: digits}},
		},
		Create: &gate.Create{Filter: filter, Learn: learn, Format: digits},
	}}, &gatetest.Recorder{})
	c := g.Open(order.Request{Method: "POST", Target: target})
	if step := c.On(gate.Event{Kind: gate.Opened}); step.Do != gate.PassRequest || !c.NeedsAnswer || c.NeedsLock {
		t.Fatalf("opened %+v", c)
	}
	return c, filter
}

// did returns the IDs that a filter has learned, and its marks: incomplete, abandoned.
func did(filter *gatetest.Filter) string {
	return strings.ReplaceAll(filter.Journal.Short(), "learn ", "")
}

var (
	inHeader = gate.Learn{Header: "location"}
	inPart   = gate.Learn{Header: "location", Capture: regexp.MustCompile(`/orders/([0-9]+)$`)}
	inBody   = gate.Learn{JSON: []string{"id"}}
)

// TestCreated is the table of the answers to a create: no order, an order with its ID, or an unknown
// outcome.
func TestCreated(t *testing.T) {
	// What Envoy says of an answer.
	once := gate.Response{Details: "via_upstream", Attempts: 1, AttemptHeader: -1}
	twice := gate.Response{Details: "via_upstream", Attempts: 2, AttemptHeader: -1}
	timeout := gate.Response{Details: "response_timeout", Attempts: 1, AttemptHeader: -1}
	reset := gate.Response{Details: "upstream_reset_before_response_started{connection_termination}", Attempts: 1, AttemptHeader: -1}
	refused := gate.Response{Details: "upstream_reset_before_response_started{remote_connection_failure}", Attempts: 1, AttemptHeader: -1}
	refusedLater := gate.Response{Details: "upstream_reset_before_response_started{remote_connection_failure}", Attempts: 2, AttemptHeader: -1}
	nowhere := gate.Response{Details: "cluster_not_found", Attempts: 0, AttemptHeader: -1}
	mute := gate.Response{Attempts: -1, AttemptHeader: -1}
	served := gate.Response{Attempts: -1, HasServiceTime: true, AttemptHeader: -1}
	servedOnce := gate.Response{Attempts: -1, HasServiceTime: true, AttemptHeader: 1}
	servedTwice := gate.Response{Attempts: -1, HasServiceTime: true, AttemptHeader: 2}
	uncounted := gate.Response{Details: "via_upstream", Attempts: -1, AttemptHeader: -1}

	tests := []struct {
		name   string
		learn  gate.Learn
		r      gate.Response
		status int
		text   string // where the ID is looked for; of a header, its lines
		want   string // "": nothing
	}{
		{"created", inHeader, once, 201, "42", "42"},
		{"created, in lines that agree", inHeader, once, 201, "42\n42", "42"},
		{"created, in lines that differ", inHeader, once, 201, "42\n43", "incomplete"},
		{"created, in a part", inPart, once, 201, "https://shop/orders/42", "42"},
		{"created, in no part", inPart, once, 201, "https://shop/orders/42?new", "incomplete"},
		{"created, in a part of several", inPart, once, 201, "/login,/orders/42", "42"},
		{"created, in a part twice", inPart, once, 201, "/orders/42,/orders/42", "42"},
		{"created, in parts that differ", inPart, once, 201, "/orders/42,/orders/43", "incomplete"},
		{"created, in parts that differ, with blanks", inPart, once, 201, "/orders/42 , /x , /orders/43", "incomplete"},
		{"created, of another form", inPart, once, 201, "/orders/042", "incomplete"},
		{"created, unnamed", inHeader, once, 201, "", "incomplete"},
		{"created, in the body", inBody, once, 201, `{"id":42}`, "42"},
		{"created, a part of the body", gate.Learn{JSON: []string{"id"}, Capture: inPart.Capture}, once, 201, `{"id":"/orders/42"}`, "42"},
		{"created, a part of a text", gate.Learn{JSON: []string{"id"}, Capture: regexp.MustCompile(`([0-9]+)`)}, once, 201, `{"id":"Order 42, 3 items"}`, "42"},
		{"created, and never named", gate.Learn{}, once, 201, "ok", "incomplete"},
		{"no order in a body", inBody, once, 200, `{"error":"sold out"}`, "incomplete"},
		{"see other", inPart, once, 303, "/orders/42", "42"},
		{"found", inPart, once, 302, "/orders/42", "42"},
		{"found elsewhere", inPart, once, 302, "/login", "incomplete"},
		{"not modified", inPart, once, 304, "", "incomplete"},
		{"conflict", inBody, once, 409, `{"id":42}`, "42"},
		{"conflict, unnamed", inBody, once, 409, `{"error":"exists"}`, "incomplete"},

		{"invalid", inBody, once, 422, `{"id":42}`, ""},
		{"a fault", inBody, once, 500, "", ""},
		{"unavailable", inBody, once, 503, "", "abandoned"},
		{"a gateway's timeout", inBody, once, 504, "", "abandoned"},
		{"a gateway's timeout, a header", inHeader, once, 504, "", "abandoned"},
		{"a gateway without an answer", inBody, once, 502, "", "abandoned"},
		{"named twice", inBody, once, 201, `{"id":42,"id":43}`, "incomplete"},
		{"named twice, in other letters", inBody, once, 201, `{"id":42,"x":[{}],"\u0069d":43}`, "incomplete"},
		{"named twice, below a name twice", gate.Learn{JSON: []string{"order", "id"}}, once, 201, `{"order":{"id":42},"order":{"id":43}}`, "incomplete"},
		{"named once", gate.Learn{JSON: []string{"order", "id"}}, once, 201, `{"x":{"id":1},"order":{"id":42,"order":{"id":2}},"id":3}`, "42"},
		{"named, and cut off", inBody, once, 201, `{"id":42,"x`, "42"},
		{"no status", inBody, once, -1, "", "incomplete"},

		{"a second attempt", inBody, twice, 201, `{"id":42}`, "42, abandoned"},
		{"a second attempt is invalid", inBody, twice, 422, `{}`, "abandoned"},
		{"a second attempt fails", inBody, twice, 500, "", "abandoned"},
		{"a second attempt conflicts", inBody, twice, 409, `{"id":42}`, "42, abandoned"},
		{"a second attempt is refused", inBody, refusedLater, 503, "", "abandoned"},
		{"attempts are not counted", inBody, uncounted, 500, "", "abandoned"},
		{"attempts are not counted, created", inBody, uncounted, 201, `{"id":42}`, "42"},

		{"timeout", inBody, timeout, 504, `{"id":42}`, "abandoned"},
		{"timeout, a header", inHeader, timeout, 504, "42", "abandoned"},
		{"reset", inBody, reset, 503, "", "abandoned"},
		{"refused", inBody, refused, 503, "", ""},
		{"nowhere to go", inBody, nowhere, 503, "", ""},

		{"no attributes", inBody, mute, 201, `{"id":42}`, "42"},
		{"no attributes, unnamed", inBody, mute, 201, `{}`, "abandoned"},
		{"no attributes, a header", inHeader, mute, 201, "42", "42"},
		{"no attributes, a redirect", inPart, mute, 303, "/orders/42", "42"},
		{"no attributes, invalid", inBody, mute, 422, `{}`, "abandoned"},
		{"no attributes, timeout", inBody, mute, 504, "upstream request timeout", "abandoned"},
		{"no attributes, served, created", inBody, served, 201, `{"id":42}`, "42"},
		{"no attributes, served, invalid", inBody, served, 422, `{}`, "abandoned"},
		{"no attributes, served once, created", inBody, servedOnce, 201, `{"id":42}`, "42"},
		{"no attributes, served once, invalid", inBody, servedOnce, 422, `{}`, ""},
		{"no attributes, served twice, created", inBody, servedTwice, 201, `{"id":42}`, "42, abandoned"},
		{"no attributes, served twice, invalid", inBody, servedTwice, 422, `{}`, "abandoned"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, filter := newCreate(t, tt.learn, "/orders")
			tt.r.Status = tt.status
			if tt.learn.Header != "" {
				var lines order.HeaderList
				for line := range strings.SplitSeq(tt.text, "\n") {
					lines = append(lines, [2]string{tt.learn.Header, line})
				}
				tt.r.Header = lines
			}
			readsBody, err := answered(t, c, tt.r, tt.text, "")
			if !readsBody && tt.learn.Header == "" && did(filter) != "abandoned" && did(filter) != "" {
				t.Error("its body is not read")
			}
			if got := did(filter); got != tt.want {
				t.Errorf("it did %q, want %q", got, tt.want)
			}
			if failed := strings.Contains(tt.want, "incomplete") || tt.want == "abandoned"; failed != (err != nil) {
				t.Errorf("error %v", err)
			}
			if err := learned(t, c, gatetest.End(c)); err != nil || did(filter) != tt.want {
				t.Errorf("its end did something too: %v, %s", err, did(filter))
			}
		})
	}
}

// TestConflictNamedByTheRequest has the answer leave it to the request which order it is.
func TestConflictNamedByTheRequest(t *testing.T) {
	for _, tt := range []struct {
		status, attempts int
		body, want       string
	}{
		{409, 1, `{"error":"exists"}`, "7"},
		{409, 1, `{"id":42}`, "42"},
		{409, 2, `{"error":"exists"}`, "abandoned"},
		{201, 1, `{}`, "incomplete"}, // the backend may have chosen another
		{422, 1, `{}`, ""},
	} {
		c, filter := newCreate(t, inBody, "/orders?id=7")
		_, _ = answered(t, c, gate.Response{Status: tt.status, Details: "via_upstream", Attempts: tt.attempts}, tt.body, "")
		if got := did(filter); got != tt.want {
			t.Errorf("%d after %d attempts, %s: it did %q, want %q", tt.status, tt.attempts, tt.body, got, tt.want)
		}
	}
}

// TestStreamEnded is the end of a stream that nothing was learned from.
func TestStreamEnded(t *testing.T) {
	left := func(attempts int) *gate.Response {
		return &gate.Response{Details: "downstream_remote_disconnect", Attempts: attempts, AttemptHeader: -1}
	}
	for _, tt := range []struct {
		name   string
		answer *gate.Response // that came before
		last   *gate.Response
		want   string
	}{
		{"could not be passed on", nil, nil, ""},
		{"without an answer", nil, nil, "abandoned"},
		{"without an answer, with Envoy's details", nil, left(1), "abandoned"},
		{"before it was passed on", nil, left(0), ""},
		{"in the middle of one", &gate.Response{Status: 201, Details: "via_upstream", Attempts: 1}, nil, "abandoned"},
		{"in the middle of the second", &gate.Response{Status: 201, Details: "via_upstream", Attempts: 2}, nil, "abandoned"},
		{"after a failure", &gate.Response{Status: 422, Details: "via_upstream", Attempts: 1}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, filter := newCreate(t, inBody, "/orders?id=7")
			if tt.name == "could not be passed on" {
				c.On(gate.Event{Kind: gate.Unsent})
			} else if tt.answer != nil {
				gatetest.Answer(c, tt.answer)
			}
			for range 2 { // the second time changes nothing
				if err := learned(t, c, c.On(gate.Event{Kind: gate.StreamEnded, Response: tt.last})); err != nil && tt.want == "" {
					t.Error(err)
				}
			}
			if got := did(filter); got != tt.want {
				t.Errorf("it did %q, want %q", got, tt.want)
			}
		})
	}
}

// TestUnknownReason is what an operator reads.
func TestUnknownReason(t *testing.T) {
	for want, tt := range map[string]struct {
		r    gate.Response
		body string
	}{
		"the client or Envoy ended the call before the backend's answer: response_timeout": {
			gate.Response{Status: 504, Details: "response_timeout", Attempts: 1, AttemptHeader: -1}, "",
		},
		"the answer is not JSON: Envoy does not report the origin of the answer": {
			gate.Response{Status: 422, Attempts: -1, AttemptHeader: -1}, "",
		},
		"an earlier attempt may make another order: via_upstream after 2 attempts": {
			gate.Response{Status: 201, Details: "via_upstream", Attempts: 2, AttemptHeader: -1}, `{"id":1}`,
		},
	} {
		c, filter := newCreate(t, inBody, "/orders")
		_, _ = answered(t, c, tt.r, tt.body, "")
		if got := filter.Journal.After("abandoned: "); !slices.Equal(got, []string{want}) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCaptureHasOneGroup(t *testing.T) {
	for expr, ok := range map[string]bool{`/orders/([0-9]+)$`: true, `/orders/[0-9]+$`: false, `(a)(b)`: false} {
		_, err := gate.New([]gate.Policy{{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
			Create: &gate.Create{Filter: &gatetest.Filter{}, Learn: gate.Learn{Header: "location", Capture: regexp.MustCompile(expr)}, Format: digits},
		}}, &gatetest.Recorder{}, time.Now)
		if (err == nil) != ok {
			t.Errorf("%s: %v", expr, err)
		}
	}
}

func TestLearnBody(t *testing.T) {
	tests := []struct {
		name, body string
		partial    bool
		learned    []string
		missed     string
	}{
		{"number", `{"status":"new","order":{"x":[1,{"id":9}],"id":1001}}`, false, []string{"1001"}, ""},
		{"string", `{"order":{"id":"1001"}}`, false, []string{"1001"}, ""},
		{"cut off after the ID", `{"order":{"id":1001,"lines":[`, true, []string{"1001"}, ""},
		{"cut off before it", `{"lines":[1,2`, true, nil, "the answer was cut off, is larger than the buffer, or takes too long: the answer is not JSON"},
		{"cut off within it", `{"order":{"id":10`, true, nil, "the answer was cut off, is larger than the buffer, or takes too long: the answer is not JSON"},
		{"cut off within a text", `{"order":{"id":"10`, true, nil, "the answer was cut off, is larger than the buffer, or takes too long: the answer is not JSON"},
		{"no such member", `{"order":{}}`, false, nil, `the answer has no member "id"`},
		{"not an object", `[1]`, false, nil, "the answer is not JSON"},
		{"empty", ``, false, nil, "the answer is not JSON"},
		{"wrong format", `{"order":{"id":"A-1"}}`, false, nil, "the ID in the answer does not have the rule's format"},
		{"wrong type", `{"order":{"id":null}}`, false, nil, `member "id" of the answer is neither a string nor a number`},
		{"fraction", `{"order":{"id":10.0}}`, false, nil, "the ID in the answer does not have the rule's format"},
		{"two IDs", `{"order":{"id":3,"a":1,"id":3}}`, false, nil, `the answer has two members "id"`},
		{"in Latin-1", "{\"note\":\"caf\xe9\",\"order\":{\"id\":1007}}", false, []string{"1007"}, ""},
		{"two IDs, in Latin-1", "{\"order\":{\"id\":3,\"note\":\"caf\xe9\",\"id\":4}}", false, nil, `the answer has two members "id"`},
		{"a byte order mark", "\ufeff{\"order\":{\"id\":1007}}", false, []string{"1007"}, ""},
		{"two orders", `{"order":{"id":3},"order":null}`, false, nil, `the answer has two members "order"`},
		{"others twice", `{"a":1,"order":{"a":1,"a":2,"id":3,"b":1,"b":2},"a":2}`, false, []string{"3"}, ""},
		{"text behind it", `{"order":{"id":3}}<br>`, false, []string{"3"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, false)
			c := b.gate.Open(order.Request{Method: "POST", Target: "/orders"})
			c.On(gate.Event{Kind: gate.Opened})
			cut := map[bool]string{true: "large"}[tt.partial]
			readsBody, err := answered(t, c, gate.Response{Status: 201, Details: "via_upstream", Attempts: 1}, tt.body, cut)
			if !readsBody {
				t.Fatal("its body is not read")
			}
			if (err == nil) != (tt.missed == "") {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tt.learned, b.filter.Journal.After("learn ")); diff != "" {
				t.Error("learned (-want +got):\n" + diff)
			}
			var missed []string
			if tt.missed != "" {
				missed = []string{tt.missed}
			}
			if diff := cmp.Diff(missed, b.filter.Journal.After("incomplete: ")); diff != "" {
				t.Error("missed (-want +got):\n" + diff)
			}
			if tt.partial && tt.missed != "" != (len(b.filter.Journal.After("abandoned: ")) == 1) {
				t.Errorf("calls that may still run: %q", b.filter.Journal.After("abandoned: "))
			}
		})
	}
}

// TestCreateByTable has answers that name no order, where the order's table is followed. The gate
// asks for the table's rows only after the end of an answer that the client gets: until then the
// backend may commit. Such an answer is a doubt if the follower is late or the end is not awaited.
func TestCreateByTable(t *testing.T) {
	once := gate.Response{Status: 200, Details: "via_upstream", Attempts: 1}
	with := func(change func(r *gate.Response)) gate.Response {
		r := once
		change(&r)
		return r
	}
	elsewhere := order.HeaderList{{"location", "/login"}}
	for _, tt := range []struct {
		name  string
		learn gate.Learn
		r     gate.Response
		late  bool   // the follower is
		cut   string // why the body is cut off
		want  string
	}{
		{"by its table", gate.Learn{}, once, false, "", "caught up"},
		{"by its table, which is late", gate.Learn{}, once, true, "", "caught up, incomplete"},
		{"by its table, of an answer without end", gate.Learn{}, once, false, "slow", "incomplete, abandoned"},
		{"by its table, of a large answer", gate.Learn{}, once, false, "large", "caught up"},
		{"by its table, of an answer beyond the buffer", gate.Learn{}, once, false, "endless", "caught up"},
		{"by its table, of a client that leaves", gate.Learn{}, once, false, "left", ""},
		{"no member", inBody, once, false, "", "caught up"},
		{"no member, late", inBody, once, true, "", "caught up, incomplete"},
		{"no member, without end", inBody, once, false, "slow", "incomplete, abandoned"},
		{"no header", inPart, with(func(r *gate.Response) { r.Header = elsewhere }), false, "", "caught up"},
		{"no header, without end", inPart, with(func(r *gate.Response) { r.Header = elsewhere }), false, "slow", "incomplete, abandoned"},
		{"the header", inPart, with(func(r *gate.Response) { r.Header = order.HeaderList{{"location", "/orders/42"}} }), false, "", "42"},
		{"two attempts", gate.Learn{}, with(func(r *gate.Response) { r.Attempts = 2 }), false, "", "caught up"},
		{"two attempts, late", gate.Learn{}, with(func(r *gate.Response) { r.Attempts = 2 }), true, "", "caught up, abandoned"},
		{"two attempts, named", inPart, with(func(r *gate.Response) { r.Attempts, r.Header = 2, order.HeaderList{{"location", "/orders/42"}} }), false, "", "42"},
		{"of unknown origin", gate.Learn{}, gate.Response{Status: 200, Attempts: -1, AttemptHeader: -1}, false, "", "caught up"},
		{"of unknown origin, late", gate.Learn{}, gate.Response{Status: 200, Attempts: -1, AttemptHeader: -1}, true, "", "caught up, abandoned"},
		{"a gateway's timeout", gate.Learn{}, with(func(r *gate.Response) { r.Status = 504 }), false, "", ""},
		{"Envoy's timeout", gate.Learn{}, gate.Response{Status: 504, Details: "response_timeout", Attempts: 1}, false, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, filter := newCreate(t, tt.learn, "/orders")
			filter.Tables, filter.Late = true, tt.late
			if tt.r.Header == nil {
				tt.r.Header = order.HeaderList{}
			}
			if readsBody, _ := answered(t, c, tt.r, "<html>", tt.cut); !readsBody && tt.want != "42" && tt.want != "" {
				t.Error("its body is not read")
			}
			if got := did(filter); got != tt.want {
				t.Errorf("it did %q, want %q", got, tt.want)
			}
			if gatetest.End(c).Work != gate.NoWork {
				t.Error("it may still create an order")
			}
		})
	}
}

// TestLeavingByTable has a client that leaves: it knows of no order.
func TestLeavingByTable(t *testing.T) {
	c, filter := newCreate(t, gate.Learn{}, "/orders")
	filter.Tables = true
	if err := learned(t, c, gatetest.End(c)); err != nil || did(filter) != "" {
		t.Errorf("it did %q: %v", did(filter), err)
	}
}

// newLockedCreate opens a create whose body names its order, with a lock.
func newLockedCreate(t *testing.T, filter *gatetest.Filter) (*gate.Call, *gatetest.Lock, order.Request) {
	t.Helper()
	lock := &gatetest.Lock{Journal: &gatetest.Journal{}}
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "create", Methods: []string{"POST"}, Path: "/orders",
			IDs: []order.ID{{In: order.InJSON, Members: []string{"id"}, Format: digits, MaxBody: 100}},
		},
		Create: &gate.Create{Filter: filter, Learn: inBody, Format: digits},
		Settle: &gate.Settle{Lock: lock},
	}}, gatetest.Silent{})
	req := order.Request{Method: "POST", Target: "/orders", Header: order.HeaderList{{"content-type", "application/json"}}}
	return g.Open(req), lock, req
}

// TestEndWhileLearning has the stream end, or the lease reach its maximum, while an answer that has come to
// its end waits until its order is known: the backend is done. The lock is released only then: before, the
// same create would pass once more, if its client left and tries again.
func TestEndWhileLearning(t *testing.T) {
	filter := &gatetest.Filter{Journal: &gatetest.Journal{}}
	c, lock, req := newLockedCreate(t, filter)
	req.Body, req.BodyState = []byte(`{"id":7}`), order.BodyComplete
	gatetest.Granted(c, grantOf(t, c, withBody(t, c, req)))
	gatetest.Answer(c, &gate.Response{Status: 201, Details: "via_upstream", Attempts: 1})
	step := c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte(`{"id":7}`), End: true})
	if step.Work != gate.LearnOrder {
		t.Fatalf("step %+v", step)
	}
	if lost := c.On(gate.Event{Kind: gate.LeaseLost}); lost.Do != gate.Nothing {
		t.Errorf("the call is ended: %+v", lost)
	}
	filter.OnLearn = func(string) {
		if locked := lock.Journal.Short(); locked != "acquire 7" {
			t.Errorf("before the order is known, the lock: %s", locked)
		}
	}
	gatetest.End(c)
	gatetest.Work(t.Context(), c, step)
	if did, locked := did(filter), lock.Journal.Short(); did != "7" || locked != "acquire 7, release" {
		t.Errorf("learned %q, the lock: %s", did, locked)
	}
}

// TestEndByLength has the stream end after the last byte of an answer, by its Content-Length, of which
// Envoy has not shown the end: the order is learned, and the answer stored, before the lock is released.
func TestEndByLength(t *testing.T) {
	for _, body := range []string{`{"id":7}`, ""} {
		t.Run(body, func(t *testing.T) {
			filter := &gatetest.Filter{Journal: &gatetest.Journal{}}
			keys := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}
			g := gatetest.Gate(t, []gate.Policy{{
				Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
				Create: &gate.Create{Filter: filter, Learn: inBody, Format: digits},
				Once: &gate.Once{
					Name: "answer", Keep: time.Hour, MaxBody: 100, Stores: func(int) bool { return true },
					Key: &gate.OnceKey{Lock: keys, Parts: []string{gate.HeaderIdempotencyKey}},
				},
			}}, gatetest.Silent{})
			c := g.Open(order.Request{
				Method: "POST", Target: "/orders", Header: order.HeaderList{{gate.HeaderIdempotencyKey, "k"}}, BodyState: order.BodyComplete,
			})
			gatetest.Settle(t.Context(), c)
			step := gatetest.Answer(c, &gate.Response{
				Status: 201, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{{"content-length", strconv.Itoa(len(body))}},
			})
			if body != "" {
				step = c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte(body)})
			}
			if step.Work != gate.LearnOrder {
				t.Fatalf("step %+v", step)
			}
			gatetest.End(c)
			filter.OnLearn = func(string) {
				if n := len(keys.Texts); n != 0 || strings.Contains(keys.Journal.Short(), "release") {
					t.Errorf("before the order is known, %d answers are stored, the lock: %s", n, keys.Journal.Short())
				}
			}
			gatetest.Work(t.Context(), c, gatetest.Work(t.Context(), c, step)) // learns, and then stores
			if len(keys.Texts) != 1 || !strings.HasSuffix(keys.Journal.Short(), "release") {
				t.Errorf("%d answers are stored, the lock: %s", len(keys.Texts), keys.Journal.Short())
			}
		})
	}
}

// grantOf returns the result of the lock request of a step.
func grantOf(t *testing.T, c *gate.Call, step gate.Step) gate.Grant {
	t.Helper()
	granted := make(chan gate.Grant, 1)
	c.Start(t.Context(), step.Work, func(e gate.Event) { granted <- e.Grant })
	return <-granted
}

// TestLeavingBeforeTheBody has the client of a create leave before its body has come: the backend would not
// serve the path that it has until then.
func TestLeavingBeforeTheBody(t *testing.T) {
	c, _, _ := newLockedCreate(t, &gatetest.Filter{})
	if step := c.On(gate.Event{Kind: gate.Opened}); step.Do != gate.ReadRequest || !step.Hide {
		t.Fatalf("step %+v", step)
	}
	if step := gatetest.End(c); step.Work != gate.NoWork {
		t.Errorf("there is a doubt: %+v", step)
	}
}

// TestFaultWhileLearning has the filter fail: no order is absent, and the answer goes on.
func TestFaultWhileLearning(t *testing.T) {
	c, filter := newCreate(t, inBody, "/orders")
	filter.OnLearn = func(string) { panic("a fault") }
	readsBody, err := answered(t, c, gate.Response{Status: 201, Details: "via_upstream", Attempts: 1}, `{"id":7}`, "")
	if !readsBody || err == nil || did(filter) != "7, incomplete" {
		t.Errorf("did %q: %v", did(filter), err)
	}
	c, filter = newCreate(t, inBody, "/orders")
	filter.Journal.Fault = func(string) { panic("a fault") } // in the doubt, too
	if _, err := answered(t, c, gate.Response{Status: 201, Details: "via_upstream", Attempts: 1}, `{"id":7}`, ""); err == nil {
		t.Error("the answer stalls")
	}
}

// TestAnswerInPlaceOfAnother has Envoy answer by itself while it collects the backend's answer. The backend
// may have created an order even so.
func TestAnswerInPlaceOfAnother(t *testing.T) {
	c, filter := newCreate(t, inBody, "/orders")
	if step := gatetest.Answer(c, &gate.Response{Status: 201, Details: "via_upstream", Attempts: 1}); step.Do != gate.ReadResponse {
		t.Fatalf("step %+v", step)
	}
	step := gatetest.Answer(c, &gate.Response{Status: 500, Details: "direct_response", Attempts: 1, Ended: true})
	if err := learned(t, c, step); err == nil || did(filter) != "incomplete, abandoned" {
		t.Errorf("did %q: %v", did(filter), err)
	}
}
