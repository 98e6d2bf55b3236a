package gate_test

import (
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// resultCode is a rule's answer by a member of JSON.
func resultCode() *gate.Answers {
	is := func(codes ...string) []gate.AnswerTest {
		return []gate.AnswerTest{{Members: []gate.MemberTest{{Path: []string{"code"}, Is: codes}}}}
	}
	return &gate.Answers{
		Failed: append(is("500"), gate.AnswerTest{Status: func(s int) bool { return s == 302 }},
			gate.AnswerTest{Status: func(s int) bool { return s == 503 }, Headers: map[string]*regexp.Regexp{"x-app": regexp.MustCompile("shop")}},
			gate.AnswerTest{ContentType: "text/html"}),
		Done: is("200"),
	}
}

// TestCreatesThatFailed has creates whose answers say that there is no order.
func TestCreatesThatFailed(t *testing.T) {
	header := order.HeaderList{{"location", "42"}}
	for _, tt := range []struct {
		name    string
		learn   gate.Learn
		r       gate.Response
		body    string
		partial bool
		want    string
	}{
		{"a redirect", inBody, gate.Response{Status: 302}, "", false, ""},
		{"a redirect, of a rule that reads no body", inBody, gate.Response{Status: 302}, "", false, ""},
		{"503 of the application", inBody, gate.Response{Status: 503, Header: order.HeaderList{{"x-app", "shop"}}}, "", false, ""},
		{"503 of a proxy", inBody, gate.Response{Status: 503, Header: order.HeaderList{{"content-type", "text/html"}}}, "", false, "abandoned"},
		{"a code", inBody, gate.Response{Status: 200}, `{"code":500}`, false, ""},
		{"a code and an ID", inBody, gate.Response{Status: 200}, `{"code":500,"id":42}`, false, ""},
		{"done", inBody, gate.Response{Status: 200}, `{"code":200,"id":42}`, false, "42"},
		{"done, without an ID", inBody, gate.Response{Status: 200}, `{"code":200}`, false, "incomplete"},
		{"nothing said", inBody, gate.Response{Status: 200}, `{"code":7}`, false, "incomplete"},
		{"a code, cut off", inBody, gate.Response{Status: 200}, `{"code":500,`, true, "incomplete, abandoned"},
		{"a code after two attempts", inBody, gate.Response{Status: 200, Attempts: 2}, `{"code":500}`, false, "abandoned"},
		{"a code, the ID in a header", inHeader, gate.Response{Status: 200, Header: header}, `{"code":500}`, false, ""},
		{"the ID in a header", inHeader, gate.Response{Status: 200, Header: header}, `{"code":200}`, false, "42"},
		{"the ID in a header, a body that is cut off", inHeader, gate.Response{Status: 200, Header: header}, `{"co`, true, "42"},
		{"no ID in a header", inHeader, gate.Response{Status: 200}, `{"code":200}`, false, "incomplete"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			filter, record, answers := &gatetest.Filter{Journal: &gatetest.Journal{}}, &gatetest.Recorder{}, resultCode()
			if strings.HasSuffix(tt.name, "reads no body") {
				answers = &gate.Answers{Failed: answers.Failed[1:2]}
			}
			g := gatetest.Gate(t, []gate.Policy{{
				Rule:    order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
				Answers: answers,
				Create:  &gate.Create{Filter: filter, Learn: tt.learn, Format: digits},
			}}, record)
			c := g.Open(order.Request{Method: "POST", Target: "/orders"})
			if tt.r.Details, tt.r.Attempts = "via_upstream", max(1, tt.r.Attempts); tt.r.Header == nil {
				tt.r.Header = order.HeaderList{}
			}
			c.On(gate.Event{Kind: gate.Opened})
			step := gatetest.Answer(c, &tt.r)
			if step.Work == gate.LearnOrder {
				t.Error("the body is not asked for")
			}
			if step.Do == gate.ReadResponse {
				_ = learned(t, c, c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte(tt.body), End: !tt.partial, Cut: tt.partial}))
			}
			if err := learned(t, c, gatetest.End(c)); err != nil {
				t.Error(err)
			}
			if got := did(filter); got != tt.want {
				t.Errorf("did %q, want %q", got, tt.want)
			}
			refused := tt.r.Status >= 400 && tt.want == "" // as HTTP says it
			if n := len(record.After("0 learned ")); (n == 0) != refused || n > 1 {
				t.Errorf("counted %d times", n)
			}
		})
	}
}

// TestFailuresAreNotStored has the answers of a settlement that once stores.
func TestFailuresAreNotStored(t *testing.T) {
	failures := &gate.Answers{Failed: []gate.AnswerTest{{
		Status: func(s int) bool { return s == 302 || s == 409 }, Headers: map[string]*regexp.Regexp{"location": regexp.MustCompile("/login$")},
	}}}
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   string // what is logged; "": nothing, since it is stored or the rule calls it a failure
		stored bool
	}{
		{"a redirect that is a failure", 302, "/login", "", false},
		{"a redirect of a kind that may be a failure", 302, "/thanks", "", true},
		{"a redirect of another kind", 303, "/thanks", "does not name it as a failure", true},
		{"an error of a kind that is a failure", 409, "/thanks", "not one of statuses", false},
		{"done", 200, `{"code":200}`, "", true},
		{"as large as is stored", 200, `{"code":200,"x":"` + strings.Repeat("x", 81) + `"}`, "", true},
		{"failed", 200, `{"code":500}`, "", false},
		{"neither", 200, `{"code":7}`, "does not say", false},
		{"another status", 404, `{"code":200}`, "not one of statuses", false},
		{"more than is stored", 200, `{"code":500,"x":"` + strings.Repeat("x", 100) + `"}`, "", false},
		{"too large to be read", 200, `{"code":500,"x":"` + strings.Repeat("x", 64<<10) + `"}`, "more than 100 bytes", true},
		{"encoded", 200, "\x1f\x8b", "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			lock, record := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}, &gatetest.Recorder{}
			policies := slices.Clone(settleOnce(t, lock, record).Policies())
			header := order.HeaderList{}
			if policies[0].Answers = resultCode(); tt.status/100 != 2 && tt.status != 404 {
				policies[0].Answers, header = failures, order.HeaderList{{"location", tt.body}}
			}
			g := gatetest.Gate(t, policies, record)
			var log strings.Builder
			g.LogProblems(gate.NewProblems(slog.New(slog.NewTextHandler(&log, nil))))
			c := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
			gatetest.Settle(t.Context(), c)
			if tt.name == "encoded" {
				header = order.HeaderList{{"content-encoding", "gzip"}}
			}
			gatetest.Answer(c, &gate.Response{Status: tt.status, Details: "via_upstream", Attempts: 1, Header: header})
			step := c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte(tt.body), End: true})
			if !strings.Contains(log.String(), tt.want) || (log.Len() == 0) != (tt.want == "") {
				t.Errorf("not stored: %q", log.String())
			}
			if step.Work == gate.Store {
				gatetest.Work(t.Context(), c, step)
			}
			gatetest.End(c)
			if len(lock.Texts) != 0 != tt.stored {
				t.Errorf("stored are %q", lock.Texts)
			}
		})
	}
}

// TestUndoIsDoneByItsAnswer has an undo answer a status of a refusal, of which the rule's answer says that
// it is done, or fail half way: what it undoes is not given back.
func TestUndoIsDoneByItsAnswer(t *testing.T) {
	for status, kept := range map[int]bool{404: false, 409: true, 500: true} {
		lock := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: map[string]string{"42 n": "paid"}}
		policies := slices.Clone(settleOnce(t, lock, gatetest.Silent{}).Policies())
		policies[0].Settle.Once.Forget = []string{"n"}
		policies[0].Answers = &gate.Answers{Done: []gate.AnswerTest{{Status: func(s int) bool { return s == 409 }}}}
		g := gatetest.Gate(t, policies, gatetest.Silent{})
		c := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
		gatetest.Settle(t.Context(), c)
		gatetest.Answer(c, &gate.Response{Status: status, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}, Ended: true})
		gatetest.Finish(c)
		gatetest.End(c)
		if got := strings.Contains(strings.Join(lock.Journal.Lines(), ","), "keep suspended"); got != kept {
			t.Errorf("%d: it stays suspended: %t", status, got)
		}
	}
}
