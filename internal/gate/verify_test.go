package gate_test

import (
	"regexp"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// verifier samples every refusal.
type verifier struct {
	samples int
	means   gate.Meaning // of the last answer
}

func (v *verifier) Sample() bool { v.samples++; return true }

func (v *verifier) Answered(_ string, means gate.Meaning) bool { v.means = means; return true }

// newVerifiedGate has a lookup and a lookup with a settlement, both of absent orders.
func newVerifiedGate(t *testing.T, observe bool, answers *gate.Answers) (*gate.Gate, *verifier) {
	t.Helper()
	v, filter := &verifier{}, &gatetest.Filter{Others: presence.Absent}
	ids := func(in order.Location, name string) []order.ID {
		return []order.ID{{In: in, Name: name, Format: digits}}
	}
	g := gatetest.Gate(t, []gate.Policy{
		{
			Rule:    order.Rule{Name: "lookup", Methods: []string{"GET", "POST"}, Path: "/orders/{id}", IDs: ids(order.InPath, "id")},
			Lookup:  &gate.Lookup{Filter: filter, Absent: gate.Reply{Status: 404, Body: "ours"}, Verify: v},
			Observe: observe, Answers: answers,
		},
		{
			Rule:   order.Rule{Name: "settle", Methods: []string{"GET"}, Path: "/orders/{id}/settle", IDs: ids(order.InPath, "id")},
			Lookup: &gate.Lookup{Filter: filter, Verify: v}, Settle: &gate.Settle{Lock: &gatetest.Lock{}}, Observe: observe,
		},
	}, &gatetest.Recorder{})
	return g, v
}

// TestSampleOfRefusals lets lookups go on whose answer would show whether the order exists. A
// settlement is never one of them: it would act.
func TestSampleOfRefusals(t *testing.T) {
	for _, tc := range []struct {
		name, method, target string
		observe              bool
		verdict              gate.Verdict
		verified             bool
	}{
		{"a lookup", "GET", "/orders/42", false, gate.VerdictUnknown, true},
		{"observed", "GET", "/orders/42", true, gate.VerdictAbsent, true},
		{"a POST", "POST", "/orders/42", false, gate.VerdictAbsent, false},
		{"a settlement", "GET", "/orders/42/settle", false, gate.VerdictAbsent, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, v := newVerifiedGate(t, tc.observe, nil)
			req := order.Request{Method: tc.method, Target: tc.target, BodyState: order.BodyComplete}
			for adapter, d := range map[string]gate.Decision{"Screen": g.Screen(t.Context(), req), "TryScreen": g.TryScreen(req).Decision} {
				if d.Verdict != tc.verdict || d.Verified != tc.verified || d.Refused != (tc.verdict == gate.VerdictAbsent && !tc.observe) {
					t.Errorf("%s: %+v", adapter, d)
				}
			}
			if tc.observe && v.samples > 0 {
				t.Error("an observed request needs no sample")
			}
		})
	}
}

// TestAnswerToASample gets the client ordergate's answer if neither has the order.
func TestAnswerToASample(t *testing.T) {
	is := func(status int) func(int) bool { return func(got int) bool { return got == status } }
	declared := &gate.Answers{
		Failed: []gate.AnswerTest{{ContentType: "text/html"}},
		Absent: []gate.AnswerTest{{Status: is(200), Headers: map[string]*regexp.Regexp{"x-code": regexp.MustCompile("^404$")}}},
		Done:   []gate.AnswerTest{{Status: is(200)}},
	}
	header := func(lines ...[2]string) order.HeaderList { return order.HeaderList(lines) }
	for _, tc := range []struct {
		name    string
		answers *gate.Answers
		answer  gate.Response
		means   gate.Meaning
	}{
		{"404", nil, gate.Response{Status: 404}, gate.MeansAbsent},
		{"410", nil, gate.Response{Status: 410}, gate.MeansAbsent},
		{"200", nil, gate.Response{Status: 200}, gate.MeansDone},
		{"to the login", nil, gate.Response{Status: 302}, gate.MeansNothing},
		{"an error", nil, gate.Response{Status: 500}, gate.MeansNothing},
		{"declared absent", declared, gate.Response{Status: 200, Header: header([2]string{"x-code", "404"})}, gate.MeansAbsent},
		{"declared done", declared, gate.Response{Status: 200, Header: header([2]string{"x-code", "0"})}, gate.MeansDone},
		{"a page", declared, gate.Response{Status: 200, Header: header([2]string{"content-type", "text/html; charset=utf-8"})}, gate.MeansFailed},
		{"without its headers", declared, gate.Response{Status: 200, Header: header([2]string{":status", "200"})}, gate.MeansNothing},
		{"404", declared, gate.Response{Status: 404, Header: header([2]string{"x", "y"})}, gate.MeansAbsent},
		{"500 is not declared", declared, gate.Response{Status: 500, Header: header([2]string{"x", "y"})}, gate.MeansNothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, v := newVerifiedGate(t, false, tc.answers)
			req := order.Request{Method: "GET", Target: "/orders/42", Header: header([2]string{gate.HeaderVerdict, "unknown"})}
			tc.answer.Details, tc.answer.Attempts = "via_upstream", 1
			call := g.Open(req)
			step := gatetest.Answer(call, &tc.answer)
			if v.means != tc.means || step.Do == gate.Refuse != (tc.means == gate.MeansAbsent) {
				t.Errorf("means %v, step %+v; want %v", v.means, step, tc.means)
			}
			if reply, verdict, ok := g.Policies()[0].Reply(call.Decision.Refusal()); step.Do == gate.Refuse && (!ok || verdict != gate.VerdictAbsent || reply.Body != "ours") {
				t.Errorf("%v %+v", verdict, reply)
			}
			req.Header = header([2]string{gate.HeaderVerdict, "maybe"})
			call = g.Open(req)
			if step := gatetest.Answer(call, &tc.answer); step.Do == gate.Refuse {
				t.Error("an answer to a lookup that passed is replaced")
			}
			if v.means = 0; tc.means != gate.MeansNothing {
				if g.Answered(req, &tc.answer); v.means != tc.means {
					t.Errorf("alone: means %v", v.means)
				}
			}
		})
	}
}

// TestCutAnswerToASample has a 404 whose body may say that it is a failure, and has not come whole: it proves
// nothing.
func TestCutAnswerToASample(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		end        bool
		means      gate.Meaning
	}{
		{"another code", `{"code":2}`, true, gate.MeansAbsent},
		{"a failure", `{"code":1}`, true, gate.MeansFailed},
		{"cut", `{"co`, false, gate.MeansNothing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, v := newVerifiedGate(t, false, &gate.Answers{Failed: []gate.AnswerTest{{Members: []gate.MemberTest{{Path: []string{"code"}, Is: []string{"1"}}}}}})
			c := g.Open(order.Request{Method: "GET", Target: "/orders/42", Header: order.HeaderList{{gate.HeaderVerdict, "unknown"}}})
			if step := gatetest.Answer(c, &gate.Response{Status: 404, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}}); step.Do != gate.ReadResponse {
				t.Fatalf("step %+v", step)
			}
			step := c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte(tc.body), End: tc.end, Cut: true})
			if v.means != tc.means || step.Do == gate.Refuse != (tc.means == gate.MeansAbsent) {
				t.Errorf("means %v, want %v; step %+v", v.means, tc.means, step)
			}
		})
	}
}
