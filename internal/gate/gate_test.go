package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/order"
)

// fakeFilter is a Filter of plain values.
type fakeFilter struct {
	answers   map[string]Answer
	elsewhere bool // memory alone tells nothing
	asked     []string
	learned   []string
	missed    []string
	abandoned []string
	err       error
}

func (k *fakeFilter) MayContain(id string) Answer {
	if k.elsewhere {
		return NotInMemory
	}
	return k.answers[id]
}
func (k *fakeFilter) Query(ctx context.Context, id string) Answer {
	k.asked = append(k.asked, id)
	if ctx.Err() != nil {
		return Unknown
	}
	return k.answers[id]
}
func (k *fakeFilter) MarkIncomplete(_ context.Context, reason string, _ time.Time) error {
	k.missed = append(k.missed, reason)
	return nil
}
func (k *fakeFilter) Abandoned(_ context.Context, reason string, _ time.Time) error {
	k.abandoned = append(k.abandoned, reason)
	return nil
}
func (k *fakeFilter) Learn(_ context.Context, id string) error {
	k.learned = append(k.learned, id)
	return k.err
}

// lock is a Locker and its own only Lease.
type lock struct {
	err      error
	requests []LockRequest
	did      []string
}

func (l *lock) Key(id string) string { return "order:lock:" + id }
func (l *lock) Acquire(_ context.Context, request LockRequest) (Lease, error) {
	l.requests = append(l.requests, request)
	l.did = append(l.did, "acquire "+strings.Join(request.IDs, " "))
	if l.err != nil {
		return nil, l.err
	}
	return l, nil
}
func (l *lock) Fences() []int64 {
	fences := make([]int64, len(l.requests[len(l.requests)-1].IDs))
	for i := range fences {
		fences[i] = int64(7 + i)
	}
	return fences
}
func (l *lock) Owner() string                 { return "owner" }
func (l *lock) Lost() <-chan struct{}         { return nil }
func (l *lock) Release(context.Context) error { l.did = append(l.did, "release"); return nil }
func (l *lock) Hold(_ context.Context, reason string) error {
	l.did = append(l.did, "hold: "+reason)
	return nil
}

// recorder is a Recorder that writes down what it is told.
type recorder struct {
	lines []string
	took  time.Duration // for all decisions
}

func (l *recorder) Decided(rule int, a Action, v Verdict, took time.Duration) {
	l.took += took
	l.lines = append(l.lines, fmt.Sprintf("%d %s %s", rule, a, v))
}
func (l *recorder) Refused(int, order.Reason) {}
func (l *recorder) Closed(rule int, o Outcome) {
	l.lines = append(l.lines, fmt.Sprintf("%d closed %s", rule, o))
}
func (l *recorder) Learned(rule int, err error) {
	l.lines = append(l.lines, fmt.Sprintf("%d learned %t", rule, err == nil))
}

type bench struct {
	gate   *Gate
	filter *fakeFilter
	lock   *lock
	record *recorder
}

var digits = order.Format{Kind: order.Digits, Min: 1, Max: 19}

func newBench(t testing.TB, observe bool) *bench {
	t.Helper()
	b := &bench{
		filter: &fakeFilter{answers: map[string]Answer{"1": Maybe, "2": Absent}},
		lock:   &lock{}, record: &recorder{},
	}
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	policies := []Policy{
		{
			Rule:   order.Rule{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: path},
			Lookup: &Lookup{Filter: b.filter, Absent: Reply{Status: 404}},
		},
		{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
			Create: &Create{Filter: b.filter, Learn: Learn{JSON: []string{"order", "id"}}, Format: digits},
		},
		{
			Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: path},
			Settle: &Settle{Lock: b.lock},
		},
	}
	for i := range policies {
		policies[i].Observe = observe
	}
	var err error
	if b.gate, err = New(policies, b.record, time.Now); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestScreen(t *testing.T) {
	tests := []struct {
		target  string
		observe bool
		verdict Verdict
		refused bool
		counted []string
	}{
		{"/orders/1", false, VerdictMaybe, false, []string{"0 lookup maybe"}},
		{"/orders/2", false, VerdictAbsent, true, []string{"0 lookup absent"}},
		{"/orders/3", false, VerdictUnknown, false, []string{"0 lookup unknown"}},
		{"/orders/x", false, VerdictInvalid, true, []string{"0 lookup invalid"}},
		{"/orders/2", true, VerdictAbsent, false, []string{"0 lookup absent"}},
		{"/orders/x", true, VerdictInvalid, false, []string{"0 lookup invalid"}},
		{"/elsewhere", false, VerdictNone, false, nil},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.target, tt.observe), func(t *testing.T) {
			b := newBench(t, tt.observe)
			d := b.gate.Screen(t.Context(), order.Request{Method: "GET", Target: tt.target})
			if d.Verdict != tt.verdict || d.Refused != tt.refused {
				t.Errorf("verdict %s refused %t, want %s %t", d.Verdict, d.Refused, tt.verdict, tt.refused)
			}
			if diff := cmp.Diff(tt.counted, b.record.lines); diff != "" {
				t.Error("counted (-want +got):\n" + diff)
			}
		})
	}
}

// TestTryScreen is a face that must not block: it is told the same, or to have it asked for.
// Screen asks by itself. Neither asks for what memory tells.
func TestTryScreen(t *testing.T) {
	for _, target := range []string{"/orders/1", "/orders/2", "/orders/3", "/orders/x", "/elsewhere"} {
		for _, observe := range []bool{false, true} {
			for _, elsewhere := range []bool{false, true} {
				b, screened, other := newBench(t, observe), newBench(t, observe), newBench(t, observe)
				b.filter.elsewhere, screened.filter.elsewhere = elsewhere, elsewhere
				path := []byte(target)
				req := order.Request{Method: "GET", Target: unsafe.String(&path[0], len(path))}
				want, got := other.gate.Screen(t.Context(), req), screened.gate.Screen(t.Context(), req)
				if got != want {
					t.Errorf("%s: screened %+v, want %+v", target, got, want)
				}
				result := b.gate.TryScreen(req)
				asks := elsewhere && slices.Contains([]string{"/orders/1", "/orders/2", "/orders/3"}, target)
				if (result.Pending != nil) != asks || result.NeedsBody || len(b.filter.asked) > 0 {
					t.Fatalf("%s: %+v, asked for %q", target, result, b.filter.asked)
				}
				want.ID, got = strings.Clone(want.ID), result.Decision
				if asks {
					if len(b.record.lines) > 0 {
						t.Errorf("counted before it is judged: %v", b.record.lines)
					}
					clear(path) // it is the caller's
					got = result.Pending.Resolve(t.Context())
				}
				if got != want {
					t.Errorf("%s: %+v, want %+v", target, got, want)
				}
				for _, one := range []*bench{b, screened} {
					if diff := cmp.Diff(other.record.lines, one.record.lines); diff != "" {
						t.Error("counted (-want +got):\n" + diff)
					}
					if (len(one.filter.asked) > 0) != asks {
						t.Errorf("%s: asked for %q", target, one.filter.asked)
					}
				}
			}
		}
	}
}

// TestPendingLookupEnds has the context of one that asks end: it passes the request on.
func TestPendingLookupEnds(t *testing.T) {
	b := newBench(t, false)
	b.filter.elsewhere = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	req := order.Request{Method: "GET", Target: "/orders/2"}
	if d := b.gate.Screen(ctx, req); d.Refused || d.Verdict != VerdictUnknown {
		t.Errorf("screened: %+v", d)
	}
	if d := b.gate.TryScreen(req).Pending.Resolve(ctx); d.Refused || d.Verdict != VerdictUnknown {
		t.Errorf("asked: %+v", d)
	}
}

// mixed is a filter that tells of each ID by its first letter what memory knows, and by
// the second what is known elsewhere.
type mixed struct {
	fakeFilter
	asked []string
}

func answerOf(letter byte) Answer {
	return map[byte]Answer{'u': Unknown, 'm': Maybe, 'a': Absent, 'e': NotInMemory}[letter]
}

func (f *mixed) MayContain(id string) Answer { return answerOf(id[0]) }
func (f *mixed) Query(_ context.Context, id string) Answer {
	f.asked = append(f.asked, id)
	if id[0] != 'e' {
		return answerOf(id[0])
	}
	return answerOf(id[1])
}

// TestBatch: a list of orders is absent only if each of them is, wherever that is known.
func TestBatch(t *testing.T) {
	for _, tt := range []struct {
		ids         string
		look, final Answer
	}{
		{"a", Absent, Absent},
		{"a a a", Absent, Absent},
		{"a a m", Maybe, Maybe},
		{"a u m", Unknown, Unknown},
		{"m a", Maybe, Maybe},
		{"u a", Unknown, Unknown},
		{"ea", NotInMemory, Absent},
		{"em", NotInMemory, Maybe},
		{"eu", NotInMemory, Unknown},
		{"ea a", NotInMemory, Absent},
		{"a ea", NotInMemory, Absent},
		{"ea em", NotInMemory, Maybe},
		{"ea ea eu", NotInMemory, Unknown},
		{"ea m", Maybe, Maybe},
		{"ea u", Unknown, Unknown},
		{"a ea a m", Maybe, Maybe},
	} {
		f := &mixed{}
		l := &Lookup{Filter: f}
		ids := strings.Fields(tt.ids)
		m := order.Match{ID: ids[0]}
		if len(ids) > 1 {
			m.Batch = ids
		}
		got := l.mayContain(m)
		if got != tt.look || len(f.asked) > 0 {
			t.Errorf("%s: %d in memory, want %d; asked for %q", tt.ids, got, tt.look, f.asked)
		}
		if got == NotInMemory {
			got = l.lookUp(t.Context(), cloneIDs(m))
		}
		if got != tt.final {
			t.Errorf("%s: %d, want %d", tt.ids, got, tt.final)
		}
	}
	if got := (&Lookup{Filter: &mixed{}}).mayContain(order.Match{}); got != Unknown {
		t.Errorf("of an ID that nobody showed us: %d", got)
	}
}

// TestTryScreenOfABody asks for what the ID stands in, whatever the rule is for.
func TestTryScreenOfABody(t *testing.T) {
	inBody := []order.ID{{In: order.InJSON, Members: []string{"id"}, Format: digits, MaxBody: 1000}}
	b := newBench(t, false)
	g, err := New([]Policy{
		{Rule: order.Rule{Name: "lookup", Methods: []string{"POST"}, Path: "/find", IDs: inBody}, Lookup: &Lookup{Filter: b.filter}},
		{Rule: order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/settle", IDs: inBody}, Settle: &Settle{Lock: b.lock}},
	}, b.record, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	json := order.Request{Method: "POST", Header: headers{"content-type", "application/json"}}
	for _, tt := range []struct {
		target, body string
		verdict      Verdict
	}{
		{"/find", `{"id": 2}`, VerdictAbsent},
		{"/find", `{"id": 1}`, VerdictMaybe},
		{"/find", `{`, VerdictAmbiguous},
		{"/settle", `{"id": 2}`, VerdictNone},
		{"/settle", `{"id": "x"}`, VerdictInvalid},
	} {
		req := json
		req.Target = tt.target
		if result := g.TryScreen(req); !result.NeedsBody || result.Pending != nil {
			t.Errorf("%s: %+v", tt.target, result)
		}
		req.Body, req.BodyState = []byte(tt.body), order.BodyComplete
		if result := g.TryScreen(req); result.NeedsBody || result.Decision.Verdict != tt.verdict {
			t.Errorf("%s %s: %+v", tt.target, tt.body, result)
		}
	}
}

func TestScreenDoesNotAllocate(t *testing.T) {
	b := newBench(t, false)
	gate := b.gate
	gate.record = silent{}
	ctx := t.Context()
	for _, target := range []string{"/orders/1", "/orders/2", "/orders/3"} {
		req := order.Request{Method: "GET", Target: target}
		if n := testing.AllocsPerRun(100, func() {
			gate.Screen(ctx, req)
			gate.TryScreen(req)
		}); n != 0 {
			t.Errorf("%s: %v allocations", target, n)
		}
	}
}

type silent struct{}

func (silent) Decided(int, Action, Verdict, time.Duration) {}
func (silent) Closed(int, Outcome)                         {}
func (silent) Refused(int, order.Reason)                   {}
func (silent) Learned(int, error)                          {}

func settleCall(b *bench) Call {
	return b.gate.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
}

func TestSettle(t *testing.T) {
	known := &Response{Details: "via_upstream", Attempts: 1}
	timeout := &Response{Details: "response_timeout", Attempts: 1}
	tests := []struct {
		name    string
		events  func(context.Context, *Call)
		did     []string
		counted []string
	}{
		{"answered", func(ctx context.Context, c *Call) {
			c.Granted(ctx, c.Acquire(ctx))
			c.Answered(known)
			c.Finished()
			c.Ended(ctx)
		}, []string{"acquire 42", "release"}, []string{"2 settle acquired", "2 closed known"}},
		{"answered in part", func(ctx context.Context, c *Call) {
			c.Granted(ctx, c.Acquire(ctx))
			c.Answered(known)
			c.Ended(ctx)
		}, []string{"acquire 42", "hold: outcome unknown: " + answerCutOff}, []string{"2 settle acquired", "2 closed unknown"}},
		{"timed out", func(ctx context.Context, c *Call) {
			c.Granted(ctx, c.Acquire(ctx))
			c.Answered(timeout)
			c.Ended(ctx)
		}, []string{"acquire 42", "hold: outcome unknown: response_timeout"}, []string{"2 settle acquired", "2 closed unknown"}},
		{"client gone while it runs", func(ctx context.Context, c *Call) {
			c.Granted(ctx, c.Acquire(ctx))
			c.Ended(ctx)
		}, []string{"acquire 42", "hold: outcome unknown: the client or Envoy ended the call before an answer"},
			[]string{"2 settle acquired", "2 closed unknown"}},
		{"client gone while it waits", func(ctx context.Context, c *Call) {
			g := c.Acquire(ctx)
			c.Ended(ctx)
			c.Granted(ctx, g)
		}, []string{"acquire 42", "release"}, []string{"2 closed not_forwarded"}},
		{"could not be passed on", func(ctx context.Context, c *Call) {
			c.Granted(ctx, c.Acquire(ctx))
			c.Unsent(ctx)
			c.Ended(ctx)
		}, []string{"acquire 42", "release"}, []string{"2 settle acquired", "2 closed not_forwarded"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, false)
			c := settleCall(b)
			tt.events(t.Context(), &c)
			if diff := cmp.Diff(tt.did, b.lock.did); diff != "" {
				t.Error("did (-want +got):\n" + diff)
			}
			if diff := cmp.Diff(tt.counted, b.record.lines); diff != "" {
				t.Error("counted (-want +got):\n" + diff)
			}
		})
	}
}

func TestSettleDenied(t *testing.T) {
	tests := []struct {
		name    string
		err     error
		observe bool
		verdict Verdict
		want    Step
	}{
		{"busy", fmt.Errorf("lock: %w", ErrBusy), false, VerdictBusy, Step{Refuse: true}},
		{"redis lost", errors.New("connection refused"), false, VerdictUnavailable, Step{Refuse: true}},
		{"busy, observed", ErrBusy, true, VerdictBusy, Step{Forward: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, tt.observe)
			b.lock.err = tt.err
			c := settleCall(b)
			if diff := cmp.Diff(tt.want, c.Granted(t.Context(), c.Acquire(t.Context()))); diff != "" {
				t.Error("step (-want +got):\n" + diff)
			}
			if c.Decision.Verdict != tt.verdict {
				t.Errorf("verdict %s, want %s", c.Decision.Verdict, tt.verdict)
			}
			c.Ended(t.Context())
			if diff := cmp.Diff([]string{"acquire 42"}, b.lock.did); diff != "" {
				t.Error("did (-want +got):\n" + diff)
			}
		})
	}
}

// TestObservedSettleShowsNoLease checks that observing takes a lock, to count,
// but leaves the request as it came.
func TestObservedSettleShowsNoLease(t *testing.T) {
	b := newBench(t, true)
	c := settleCall(b)
	if diff := cmp.Diff(Step{Forward: true}, c.Granted(t.Context(), c.Acquire(t.Context()))); diff != "" {
		t.Error("step (-want +got):\n" + diff)
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
			if part := c.Created(&Response{Status: 201, Details: "via_upstream", Attempts: 1}); part != BodyPart {
				t.Fatalf("part %d", part)
			}
			err := c.LearnBody(t.Context(), []byte(tt.body), tt.partial)
			if (err == nil) != (tt.missed == "") {
				t.Errorf("error %v", err)
			}
			if diff := cmp.Diff(tt.learned, b.filter.learned); diff != "" {
				t.Error("learned (-want +got):\n" + diff)
			}
			var missed []string
			if tt.missed != "" {
				missed = []string{tt.missed}
			}
			if diff := cmp.Diff(missed, b.filter.missed); diff != "" {
				t.Error("missed (-want +got):\n" + diff)
			}
			if tt.partial && tt.missed != "" != (len(b.filter.abandoned) == 1) {
				t.Errorf("calls that may still run: %q", b.filter.abandoned)
			}
		})
	}
}
