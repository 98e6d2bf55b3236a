package gate_test

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestReportRefused has requests with odd IDs: no line is forged, in either format.
func TestReportRefused(t *testing.T) {
	t.Parallel()
	g := newBench(t, false).gate
	const forged = "1\nlevel=ERROR msg=forged\x1b[31m\u009b31m"
	tests := []struct {
		name   string
		id     string
		header order.HeaderList
		want   string
	}{
		{"all is known", "42", order.HeaderList{{"x-request-id", "4d0e-1"}}, "rule=settle order=42 request=4d0e-1 verdict=busy"},
		{"no order", "", order.HeaderList{{"x-request-id", "4d0e-1"}}, "rule=settle request=4d0e-1 verdict=busy"},
		{"no ID", "42", nil, "rule=settle order=42 verdict=busy"},
		{"a forged ID", "42", order.HeaderList{{"x-request-id", forged}}, "rule=settle order=42 verdict=busy"},
		{"a long ID", "42", order.HeaderList{{"x-request-id", strings.Repeat("x", 1000)}}, "rule=settle order=42 verdict=busy"},
		{"two IDs", "42", order.HeaderList{{"x-request-id", "a"}, {"x-request-id", "b"}}, "rule=settle order=42 verdict=busy"},
		{"a forged order", forged, nil, `\"1\\nlevel=ERROR msg=forged\\x1b[31m\\u009b31m\"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := gate.Decision{Rule: 2, Verdict: gate.VerdictBusy, ID: tt.id}
			for name, handler := range map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{
				"text": func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewTextHandler(w, o) },
				"JSON": func(w io.Writer, o *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(w, o) },
			} {
				var log strings.Builder
				g.ReportRefused(slog.New(handler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), &d, &order.Request{Header: tt.header})
				if name == "text" && !strings.Contains(log.String(), tt.want) {
					t.Errorf("got %s, want %s", log.String(), tt.want)
				}
				if strings.Count(log.String(), "\n") != 1 || strings.ContainsAny(log.String(), "\x1b\u009b") {
					t.Errorf("%s: %q", name, log.String())
				}
			}
		})
	}
}

// TestReportRefusedIsFree has a flood of refusals.
func TestReportRefusedIsFree(t *testing.T) {
	g := newBench(t, false).gate
	log := slog.New(slog.NewTextHandler(io.Discard, nil)) // at info
	header := order.Header(order.HeaderList{{"x-request-id", "4d0e-1"}})
	g.ReportTo(&gate.RecentRefusals{})
	if n := testing.AllocsPerRun(400, func() {
		g.ReportRefused(log, &gate.Decision{Rule: 2, Verdict: gate.VerdictBusy, ID: "42"}, &order.Request{Method: "POST", Target: "/orders/42/settle", Header: header})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// journal keeps the decisions that are logged.
type journal struct{ lines []gate.LoggedDecision }

func (*journal) Wants(int, gate.Action, gate.Verdict) bool { return true }

func (j *journal) Write(l *gate.LoggedDecision) { j.lines = append(j.lines, *l) }

// TestObservedCreateHasNoOutcome has a create go on whose order cannot be read.
func TestObservedCreateHasNoOutcome(t *testing.T) {
	t.Parallel()
	var log journal
	b := newBench(t, true)
	b.gate.LogDecisionsTo(&log)
	b.gate.Open(order.Request{Method: "POST", Target: "/orders%zz", BodyState: order.BodyComplete})
	for _, l := range log.lines {
		if l.Outcome != "" {
			t.Errorf("logged before it was forwarded: %+v", l)
		}
	}
	if len(log.lines) == 0 {
		t.Error("nothing is logged")
	}
}

// TestRequestOfLookupByBody has an order that does not exist in a body that ext_proc reads.
func TestRequestOfLookupByBody(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	g := gatetest.Gate(t, []gate.Policy{{
		Rule: order.Rule{
			Name: "find", Methods: []string{"POST"}, Path: "/find",
			IDs: []order.ID{{In: order.InJSON, Members: []string{"order"}, Format: digits, MaxBody: 100}},
		},
		Lookup: &gate.Lookup{Filter: b.filter, Absent: gate.Reply{Status: 404}},
	}}, b.record)
	req := order.Request{
		Method: "POST", Target: "/find",
		Header: order.HeaderList{{"content-type", "application/json"}, {"x-request-id", "4d0e-1"}},
	}
	c := g.Open(req)
	c.On(gate.Event{Kind: gate.Opened})
	req.Body, req.BodyState = []byte(`{"order":"2"}`), order.BodyComplete
	step := c.On(gate.Event{Kind: gate.RequestBody, Request: &req})
	c.Start(t.Context(), step.Work, func(e gate.Event) { step = c.On(e) })
	if step.Do != gate.Refuse || !slices.Contains(c.LogArgs(), any("4d0e-1")) {
		t.Errorf("step %v, logged with %v", step.Do, c.LogArgs())
	}
}
