package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

// conditions return an error, and note what they are checked for.
type conditions struct {
	err     error
	fault   bool // Check panics
	checked []string
}

// Check implements gate.Conditions.
func (c *conditions) Check(_ context.Context, ids, headers []string) error {
	if c.fault {
		panic("a fault in a condition")
	}
	c.checked = append(c.checked, fmt.Sprintf("%q %q", ids, headers))
	return c.err
}

// requireBench is a gate with one rule, which has two conditions.
type requireBench struct {
	gate       *gate.Gate
	lock       *gatetest.Lock
	conditions *conditions
	record     *gatetest.Recorder
}

func newRequireBench(t testing.TB, observe bool, headers ...string) *requireBench {
	t.Helper()
	b := &requireBench{lock: &gatetest.Lock{Journal: &gatetest.Journal{}}, conditions: &conditions{}, record: &gatetest.Recorder{}}
	b.gate = gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
			IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}},
		},
		Observe: observe,
		Invalid: gate.Reply{Status: 400},
		Settle: &gate.Settle{Lock: b.lock, Require: &gate.Require{
			Conditions: b.conditions, Headers: headers,
			Otherwise: []gate.Reply{{Status: 425, RetryAfter: time.Second}, {Status: 409, Body: "frozen"}},
		}},
	}}, b.record)
	return b
}

func (b *requireBench) open(header ...[2]string) *gate.Call {
	return b.gate.Open(order.Request{
		Method: "POST", Target: "/orders/42/settle", Header: order.HeaderList(header), BodyState: order.BodyComplete,
	})
}

// TestNotReady has conditions that do not hold: the call gives up the lock that it has.
func TestNotReady(t *testing.T) {
	for condition, want := range []gate.Reply{{Status: 425, RetryAfter: time.Second}, {Status: 409, Body: "frozen"}} {
		for _, observe := range []bool{false, true} {
			b := newRequireBench(t, observe)
			b.conditions.err = fmt.Errorf("checking: %w", &gate.UnmetError{Condition: condition})
			c := b.open()
			step := gatetest.Settle(t.Context(), c)
			gatetest.End(c)
			if step.Do != map[bool]gate.Move{false: gate.Refuse, true: gate.PassRequest}[observe] {
				t.Errorf("step %+v", step)
			}
			if events := b.lock.Journal.Lines(); !strings.HasPrefix(events[len(events)-1], "release") {
				t.Errorf("the lock stays taken: %q", events)
			}
			reply, verdict, ok := b.gate.Policies()[0].Reply(c.Decision.Refusal())
			if !ok || verdict != gate.VerdictNotReady || !cmp.Equal(want, reply, cmp.AllowUnexported(gate.Reply{})) {
				t.Errorf("condition %d: reply %+v %s %v", condition, reply, verdict, ok)
			}
			if name := c.Decision.Refusal().String(); name != "not_ready" || c.Decision.Verdict.IsTrouble() {
				t.Errorf("the refusal is called %s", name)
			}
			counted := []string{"0 settle not_ready"}
			if !observe {
				counted = append(counted, "0 closed not_forwarded")
			}
			if diff := cmp.Diff(counted, b.record.Lines()); diff != "" {
				t.Error("counted (-want +got):\n" + diff)
			}
		}
	}
}

// TestConditionsOfARequest checks what the conditions are checked for.
func TestConditionsOfARequest(t *testing.T) {
	b := newRequireBench(t, false, "x-store", "x-day")
	c := b.open([2]string{"x-day", "2026-11-24"}, [2]string{"x-other", "1"}, [2]string{"x-store", "A.b_c:7-"})
	if step := gatetest.Settle(t.Context(), c); step.Do != gate.PassRequest {
		t.Fatalf("step %+v", step)
	}
	if diff := cmp.Diff([]string{`["42"] ["A.b_c:7-" "2026-11-24"]`}, b.conditions.checked); diff != "" {
		t.Errorf("checked (-want +got):\n%s", diff)
	}
}

// TestHeadersOfConditions has a header that conditions need in wrong forms.
func TestHeadersOfConditions(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header order.HeaderList
		want   order.Reason
	}{
		{"good", order.HeaderList{{"x-store", "7"}}, order.NoReason},
		{"long", order.HeaderList{{"x-store", strings.Repeat("7", 128)}}, order.NoReason},
		{"missing", nil, order.MissingHeader},
		{"another", order.HeaderList{{"x-stores", "7"}}, order.MissingHeader},
		{"empty", order.HeaderList{{"x-store", ""}}, order.MalformedHeader},
		{"too long", order.HeaderList{{"x-store", strings.Repeat("7", 129)}}, order.MalformedHeader},
		{"braces", order.HeaderList{{"x-store", "{7}"}}, order.MalformedHeader},
		{"a blank", order.HeaderList{{"x-store", "7 8"}}, order.MalformedHeader},
		{"two values in one", order.HeaderList{{"x-store", "7,8"}}, order.MalformedHeader},
		{"a control byte", order.HeaderList{{"x-store", "7\x00"}}, order.MalformedHeader},
		{"beyond ASCII", order.HeaderList{{"x-store", "7é"}}, order.MalformedHeader},
		{"twice", order.HeaderList{{"x-store", "7"}, {"x-store", "7"}}, order.RepeatedHeader},
		{"as CGI spells it", order.HeaderList{{"x-store", "7"}, {"x_store", "8"}}, order.RepeatedHeader},
		{"as CGI spells it, before", order.HeaderList{{"x.store", "8"}, {"x-store", "7"}}, order.RepeatedHeader},
	} {
		for _, observe := range []bool{false, true} {
			b := newRequireBench(t, observe, "x-store")
			c := b.open(tt.header...)
			good := tt.want == order.NoReason
			if c.Decision.Reason != tt.want || c.Decision.Refused != (!good && !observe) || c.NeedsLock != good || c.NeedsAnswer != good {
				t.Errorf("%s, observe %v: %+v, needs lock %v, answer %v", tt.name, observe, c.Decision, c.NeedsLock, c.NeedsAnswer)
			}
			if good {
				continue
			}
			reply, verdict, _ := b.gate.Policies()[0].Reply(c.Decision.Refusal())
			if reply.Status != 400 || verdict != gate.VerdictInvalid || !strings.Contains(reply.Body, `"part":"header"`) {
				t.Errorf("%s: %+v %s", tt.name, reply, verdict)
			}
			if diff := cmp.Diff([]string{"0 settle invalid"}, b.record.Lines()); diff != "" {
				t.Errorf("%s, counted (-want +got):\n%s", tt.name, diff)
			}
			gatetest.End(c)
		}
	}
}

func TestTooManyConditions(t *testing.T) {
	b := newRequireBench(t, false)
	policies := b.gate.Policies()
	policies[0].Settle.Require.Otherwise = make([]gate.Reply, gate.MaxConditions+1)
	if _, err := gate.New(policies, gatetest.Silent{}, time.Now); err == nil || !strings.Contains(err.Error(), "more than 16 conditions") {
		t.Errorf("error %v", err)
	}
}

// TestUndecided leaves open whether what is to hold under the lock does: the call is refused, and gives the lock back.
func TestUndecided(t *testing.T) {
	away := errors.New("condition latch cannot be checked: WRONGTYPE")
	undo := &gate.Once{Keep: time.Hour, Forget: []string{"answer"}, Stores: func(int) bool { return true }}
	for name, tt := range map[string]struct {
		suspends   error
		conditions conditions
		change     func(*gate.Policy)
	}{
		"a condition":                    {conditions: conditions{err: away}},
		"a fault in a condition":         {conditions: conditions{fault: true}},
		"an answer that is to be undone": {suspends: away, change: func(p *gate.Policy) { p.Settle.Once = undo }},
		"whether the order of a create exists": {change: func(p *gate.Policy) {
			unsure := &gatetest.Filter{Others: presence.Unknown}
			p.Create = &gate.Create{Filter: unsure, Dedup: &gate.Dedup{Filter: unsure, Confirm: &gatetest.Confirmer{Err: away}, Refuse: true}}
		}},
	} {
		b := newRequireBench(t, false)
		*b.conditions, b.lock.Unsuspended = tt.conditions, tt.suspends
		if tt.change != nil {
			tt.change(&b.gate.Policies()[0])
		}
		c := b.open()
		step := gatetest.Settle(t.Context(), c)
		if step.Do != gate.Refuse || c.Decision.Verdict != gate.VerdictUnavailable || !c.Decision.Verdict.IsTrouble() {
			t.Errorf("%s: %+v, verdict %s", name, step, c.Decision.Verdict)
		}
		if events := b.lock.Journal.Lines(); b.lock.Open() != 0 || events[len(events)-1] != "release" {
			t.Errorf("%s: the lock stays taken: %q", name, events)
		}
		gatetest.End(c)
	}
}

func BenchmarkOpenWithConditions(b *testing.B) {
	for _, conditions := range []bool{false, true} {
		bed := newRequireBench(b, false)
		g := bed.gate
		if !conditions {
			policies := g.Policies()
			policies[0].Settle.Require = nil
			g, _ = gate.New(policies, gatetest.Silent{}, time.Now)
		}
		request := order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete}
		b.Run(fmt.Sprint("conditions ", conditions), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if c := g.Open(request); !c.NeedsLock {
					b.Fatal("no lock")
				}
			}
		})
	}
}
