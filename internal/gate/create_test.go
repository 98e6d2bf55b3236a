package gate

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// newCreate opens a create with this rule, of which the request may name order 7.
func newCreate(t *testing.T, learn Learn, target string) (*Call, *fakeFilter) {
	t.Helper()
	filter := &fakeFilter{}
	g, err := New([]Policy{{
		Rule: order.Rule{
			Name: "create", Methods: []string{"POST"}, Path: "/orders", Optional: true,
			IDs: []order.ID{{In: order.InQuery, Name: "id", Format: digits}},
		},
		Create: &Create{Filter: filter, Learn: learn, Format: digits},
	}}, &recorder{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	c := g.Open(order.Request{Method: "POST", Target: target})
	if !c.NeedsAnswer || c.NeedsLock {
		t.Fatalf("opened %+v", c)
	}
	return &c, filter
}

// did is all that a filter was told, in one line.
func (k *fakeFilter) did() string {
	return strings.Join(slices.Concat(k.learned, mark("missed", k.missed), mark("abandoned", k.abandoned)), ", ")
}

func mark(what string, all []string) (marked []string) {
	for range all {
		marked = append(marked, what)
	}
	return marked
}

var (
	inHeader = Learn{Header: "location"}
	inPart   = Learn{Header: "location", Capture: regexp.MustCompile(`/orders/([0-9]+)$`)}
	inBody   = Learn{JSON: []string{"id"}}
)

// TestCreated is the table of what an answer to a create says: that there is no order, or
// which one, or that nobody knows.
func TestCreated(t *testing.T) {
	// What Envoy says of an answer.
	once := Response{Details: "via_upstream", Attempts: 1, AttemptHeader: -1}
	twice := Response{Details: "via_upstream", Attempts: 2, AttemptHeader: -1}
	timeout := Response{Details: "response_timeout", Attempts: 1, AttemptHeader: -1}
	reset := Response{Details: "upstream_reset_before_response_started{connection_termination}", Attempts: 1, AttemptHeader: -1}
	refused := Response{Details: "upstream_reset_before_response_started{remote_connection_failure}", Attempts: 1, AttemptHeader: -1}
	refusedLater := Response{Details: "upstream_reset_before_response_started{remote_connection_failure}", Attempts: 2, AttemptHeader: -1}
	nowhere := Response{Details: "cluster_not_found", Attempts: 0, AttemptHeader: -1}
	mute := Response{Attempts: -1, AttemptHeader: -1}
	served := Response{Attempts: -1, HasServiceTime: true, AttemptHeader: -1}
	servedOnce := Response{Attempts: -1, HasServiceTime: true, AttemptHeader: 1}
	servedTwice := Response{Attempts: -1, HasServiceTime: true, AttemptHeader: 2}
	uncounted := Response{Details: "via_upstream", Attempts: -1, AttemptHeader: -1}

	tests := []struct {
		name   string
		learn  Learn
		r      Response
		status int
		text   string // where the ID is looked for
		want   string // "": nothing
	}{
		{"created", inHeader, once, 201, "42", "42"},
		{"created, in a part", inPart, once, 201, "https://shop/orders/42", "42"},
		{"created, in no part", inPart, once, 201, "https://shop/orders/42?new", "missed"},
		{"created, in a part of several", inPart, once, 201, "/login,/orders/42", "42"},
		{"created, in a part twice", inPart, once, 201, "/orders/42,/orders/42", "42"},
		{"created, in parts that differ", inPart, once, 201, "/orders/42,/orders/43", "missed"},
		{"created, in parts that differ, with blanks", inPart, once, 201, "/orders/42 , /x , /orders/43", "missed"},
		{"created, of another form", inPart, once, 201, "/orders/042", "missed"},
		{"created, unnamed", inHeader, once, 201, "", "missed"},
		{"created, in the body", inBody, once, 201, `{"id":42}`, "42"},
		{"created, a part of the body", Learn{JSON: []string{"id"}, Capture: inPart.Capture}, once, 201, `{"id":"/orders/42"}`, "42"},
		{"created, a part of a text", Learn{JSON: []string{"id"}, Capture: regexp.MustCompile(`([0-9]+)`)}, once, 201, `{"id":"Order 42, 3 items"}`, "42"},
		{"no order in a body", inBody, once, 200, `{"error":"sold out"}`, "missed"},
		{"see other", inPart, once, 303, "/orders/42", "42"},
		{"found", inPart, once, 302, "/orders/42", "42"},
		{"found elsewhere", inPart, once, 302, "/login", "missed"},
		{"not modified", inPart, once, 304, "", "missed"},
		{"conflict", inBody, once, 409, `{"id":42}`, "42"},
		{"conflict, unnamed", inBody, once, 409, `{"error":"exists"}`, "missed"},

		{"invalid", inBody, once, 422, `{"id":42}`, ""},
		{"a fault", inBody, once, 500, "", ""},
		{"unavailable", inBody, once, 503, "", ""},
		{"a gateway's timeout", inBody, once, 504, "", "abandoned"},
		{"a gateway's timeout, a header", inHeader, once, 504, "", "abandoned"},
		{"a gateway without an answer", inBody, once, 502, "", "abandoned"},
		{"named twice", inBody, once, 201, `{"id":42,"id":43}`, "missed"},
		{"named twice, in other letters", inBody, once, 201, `{"id":42,"x":[{}],"\u0069d":43}`, "missed"},
		{"named twice, below a name twice", Learn{JSON: []string{"order", "id"}}, once, 201, `{"order":{"id":42},"order":{"id":43}}`, "missed"},
		{"named once", Learn{JSON: []string{"order", "id"}}, once, 201, `{"x":{"id":1},"order":{"id":42,"order":{"id":2}},"id":3}`, "42"},
		{"named, and cut off", inBody, once, 201, `{"id":42,"x`, "42"},
		{"no status", inBody, once, -1, "", "missed"},

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
			var err error
			switch part := c.Created(&tt.r); part {
			case NoPart:
			case HeaderPart:
				if err = c.LearnHeader(t.Context(), tt.text); tt.learn.Header == "" && filter.did() != "abandoned" {
					t.Error("its body was not asked for")
				}
			case BodyPart:
				err = c.LearnBody(t.Context(), []byte(tt.text), false)
			}
			if got := filter.did(); got != tt.want {
				t.Errorf("it did %q, want %q", got, tt.want)
			}
			if told := strings.Contains(tt.want, "missed") || tt.want == "abandoned"; told != (err != nil) {
				t.Errorf("error %v", err)
			}
			if err := c.StreamEnded(t.Context(), nil); err != nil || filter.did() != tt.want {
				t.Errorf("its end did something too: %v, %s", err, filter.did())
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
		{201, 1, `{}`, "missed"}, // the backend may have chosen another
		{422, 1, `{}`, ""},
	} {
		c, filter := newCreate(t, inBody, "/orders?id=7")
		if c.Created(&Response{Status: tt.status, Details: "via_upstream", Attempts: tt.attempts}) != NoPart {
			_ = c.LearnBody(t.Context(), []byte(tt.body), false)
		}
		if got := filter.did(); got != tt.want {
			t.Errorf("%d after %d attempts, %s: it did %q, want %q", tt.status, tt.attempts, tt.body, got, tt.want)
		}
	}
}

// TestStreamEnded is the end of a stream that nothing was learned from.
func TestStreamEnded(t *testing.T) {
	gone := func(attempts int) *Response {
		return &Response{Details: "downstream_remote_disconnect", Attempts: attempts, AttemptHeader: -1}
	}
	for _, tt := range []struct {
		name   string
		answer *Response // that came before
		last   *Response
		want   string
	}{
		{"without an answer", nil, nil, "abandoned"},
		{"without an answer, told of", nil, gone(1), "abandoned"},
		{"before it was passed on", nil, gone(0), ""},
		{"in the middle of one", &Response{Status: 201, Details: "via_upstream", Attempts: 1}, nil, "abandoned"},
		{"in the middle of the second", &Response{Status: 201, Details: "via_upstream", Attempts: 2}, nil, "abandoned"},
		{"after a failure", &Response{Status: 422, Details: "via_upstream", Attempts: 1}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, filter := newCreate(t, inBody, "/orders?id=7")
			if tt.answer != nil {
				c.Created(tt.answer)
			}
			for range 2 { // the second time changes nothing
				if err := c.StreamEnded(t.Context(), tt.last); err != nil && tt.want == "" {
					t.Error(err)
				}
			}
			if got := filter.did(); got != tt.want {
				t.Errorf("it did %q, want %q", got, tt.want)
			}
		})
	}
}

// TestUnknownReason is what an operator reads.
func TestUnknownReason(t *testing.T) {
	c, filter := newCreate(t, inBody, "/orders")
	c.Created(&Response{Status: 504, Details: "response_timeout", Attempts: 1, AttemptHeader: -1})
	_ = c.LearnHeader(t.Context(), "")
	c.Created(&Response{Status: 422, Attempts: -1, AttemptHeader: -1})
	_ = c.LearnBody(t.Context(), nil, false)
	c.Created(&Response{Status: 201, Details: "via_upstream", Attempts: 2, AttemptHeader: -1})
	_ = c.LearnBody(t.Context(), []byte(`{"id":1}`), false)
	want := []string{
		"the client or Envoy ended the call before the backend's answer: response_timeout",
		"the answer is not JSON: Envoy does not tell where the answer is from",
		"an earlier attempt may make another order: via_upstream after 2 attempts",
	}
	if !slices.Equal(filter.abandoned, want) {
		t.Errorf("%q", filter.abandoned)
	}
}

func TestCaptureHasOneGroup(t *testing.T) {
	for expr, ok := range map[string]bool{`/orders/([0-9]+)$`: true, `/orders/[0-9]+$`: false, `(a)(b)`: false} {
		_, err := New([]Policy{{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
			Create: &Create{Filter: &fakeFilter{}, Learn: Learn{Header: "location", Capture: regexp.MustCompile(expr)}, Format: digits},
		}}, &recorder{}, time.Now)
		if (err == nil) != ok {
			t.Errorf("%s: %v", expr, err)
		}
	}
}
