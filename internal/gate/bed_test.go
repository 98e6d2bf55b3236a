package gate_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/presence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	gate   *gate.Gate
	filter *gatetest.Filter
	lock   *gatetest.Lock
	record *gatetest.Recorder
}

var digits = order.Format{Kind: order.Digits, Min: 1, Max: 19}

func newBench(t testing.TB, observe bool) *bench {
	t.Helper()
	b := &bench{
		filter: &gatetest.Filter{Journal: &gatetest.Journal{}, Answers: map[string]presence.Answer{"1": presence.Maybe, "2": presence.Absent, "9": 9}},
		lock:   &gatetest.Lock{Journal: &gatetest.Journal{}},
		record: &gatetest.Recorder{},
	}
	path := []order.ID{{In: order.InPath, Name: "id", Format: digits}}
	policies := []gate.Policy{
		{
			Rule:   order.Rule{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: path},
			Lookup: &gate.Lookup{Filter: b.filter, Absent: gate.Reply{Status: 404}},
		},
		{
			Rule:   order.Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders"},
			Create: &gate.Create{Filter: b.filter, Learn: gate.Learn{JSON: []string{"order", "id"}}, Format: digits},
		},
		{
			Rule:   order.Rule{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: path},
			Settle: &gate.Settle{Lock: b.lock},
		},
		{
			Rule: order.Rule{
				Name: "form", Methods: []string{"GET"}, Path: "/form", Optional: true,
				IDs: []order.ID{{In: order.InQuery, Name: "order_id", Format: digits}},
			},
			Lookup: &gate.Lookup{Filter: b.filter, Absent: gate.Reply{Status: 404}},
		},
	}
	for i := range policies {
		policies[i].Observe = observe
	}
	b.gate = gatetest.Gate(t, policies, b.record)
	b.gate.TraceTo(gatetest.Tracer{})
	return b
}

// silent returns the bench's gate with a recorder that counts nothing.
func (b *bench) silent(t testing.TB) *gate.Gate {
	t.Helper()
	g := gatetest.Gate(t, b.gate.Policies(), gatetest.Silent{})
	return g
}

// answered reports an answer to a create, with its body if that is read, and has the order learned. Cut
// says why the body is not whole: "large", "slow" or "left"; "endless": no adapter bounds it.
func answered(t *testing.T, c *gate.Call, r gate.Response, body, cut string) (readsBody bool, err error) {
	t.Helper()
	step := gatetest.Answer(c, &r)
	if readsBody = step.Do == gate.ReadResponse; readsBody {
		step = c.On(gate.Event{Kind: gate.ResponseBody, Body: []byte(body), End: cut == "", Cut: cut == "large"})
		switch cut {
		case "endless":
			step = c.On(gate.Event{Kind: gate.ResponseBody, Body: make([]byte, 1<<20)})
		case "slow":
			step = c.On(gate.Event{Kind: gate.Delayed})
		case "left":
			step = gatetest.End(c)
		}
	}
	return readsBody, learned(t, c, step)
}

// learned has an order learned if the step says so.
func learned(t *testing.T, c *gate.Call, step gate.Step) (err error) {
	t.Helper()
	if step.Work == gate.LearnOrder {
		c.Start(t.Context(), step.Work, func(e gate.Event) {
			err = e.LearnErr()
			c.On(e)
		})
	}
	return err
}

// withBody reports the body of a request that needs it, and does what follows.
func withBody(t *testing.T, c *gate.Call, req order.Request) gate.Step {
	t.Helper()
	if step := c.On(gate.Event{Kind: gate.Opened}); step.Do != gate.ReadRequest {
		t.Fatalf("the body is not read: %+v", step)
	}
	step := c.On(gate.Event{Kind: gate.RequestBody, Request: &req})
	if step.Work == gate.Screen {
		step = gatetest.Work(t.Context(), c, step)
	}
	return step
}

func settleCall(b *bench) *gate.Call {
	return b.gate.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
}
