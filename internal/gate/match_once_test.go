package gate_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// tracedHeader notes which function of a table has an order's ID read from it.
type tracedHeader struct {
	order.HeaderList
	reads *[]string
}

func (h tracedHeader) Next(cursor int) (name, value string, next int) {
	var callers [20]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for reads, more := false, cursor == 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		_, function, _ := strings.Cut(f.Function, "/internal/order.")
		reads = reads || function == "(*compiled).readHeaders"
		if table, of := strings.CutPrefix(function, "(*Table)."); of && reads && table != "match" {
			*h.reads = append(*h.reads, table)
			break
		}
	}
	return h.HeaderList.Next(cursor)
}

// TestMatchedOnce counts how often a request is matched. What its body adds goes on from there.
func TestMatchedOnce(t *testing.T) {
	b := newBench(t, false)
	inBody := []order.ID{{In: order.InJSON, Members: []string{"id"}, Format: digits, MaxBody: 1000}}
	inPath := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	g := gatetest.Gate(t, []gate.Policy{
		{Rule: order.Rule{Name: "body", Methods: []string{"POST"}, Path: "/settle", IDs: inBody}, Settle: &gate.Settle{Lock: b.lock}},
		{Rule: order.Rule{Name: "path", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: inPath}, Settle: &gate.Settle{Lock: b.lock}},
		{
			Rule:   order.Rule{Name: "looks up", Methods: []string{"POST"}, Path: "/pay/{id}", IDs: inPath},
			Lookup: &gate.Lookup{Filter: b.filter}, Settle: &gate.Settle{Lock: b.lock},
		},
	}, b.record)
	for _, tt := range []struct {
		target, body string
		want         []string
	}{
		{"/settle", `{"id": 1}`, []string{"Find", "MatchBody"}},
		{"/orders/1/settle", `{"amount": 1}`, []string{"Find", "MatchBody"}},
		{"/orders/1/settle", "", []string{"Find"}},
		{"/pay/1", "", []string{"Find"}},
		{"/pay/9", "", []string{"Find"}}, // memory does not hold it
	} {
		for adapter, open := range map[string]func(req, whole order.Request) *gate.Call{
			"ext_proc": func(req, whole order.Request) *gate.Call {
				c := g.Open(req)
				if c.On(gate.Event{Kind: gate.Opened}); c.NeedsBody {
					c.On(gate.Event{Kind: gate.RequestBody, Request: &whole})
				}
				return c
			},
			"module": func(req, whole order.Request) *gate.Call {
				result := g.TryScreen(req)
				if result.NeedsBody {
					result = g.TryScreenBody(whole, result.Found)
				}
				return result.Open(whole)
			},
		} {
			var reads []string
			req := order.Request{Method: "POST", Target: tt.target, Header: tracedHeader{order.HeaderList{{"content-type", "application/json"}}, &reads}}
			whole := req
			whole.Body, whole.BodyState = []byte(tt.body), order.BodyComplete
			if tt.body == "" {
				req = whole
			}
			if c := open(req, whole); !c.NeedsLock {
				t.Errorf("%s: %s %s needs no lock: %+v", adapter, tt.target, tt.body, c.Decision)
			}
			if diff := cmp.Diff(tt.want, reads); diff != "" {
				t.Errorf("%s: %s %s is matched (-want +got):\n%s", adapter, tt.target, tt.body, diff)
			}
		}
	}
}
