package gate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
)

// TestOnceAfterALoss has an answer cross the end of the lease: it is stored.
func TestOnceAfterALoss(t *testing.T) {
	lock, record := &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}, &gatetest.Recorder{}
	g := settleOnce(t, lock, record)
	c := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
	c.Granted(t.Context(), c.Acquire(t.Context()))
	if !c.LeaseLost().Refuse {
		t.Fatal("the call goes on")
	}
	c.Answered(&gate.Response{Status: 204, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{}, Ended: true})
	if step := c.Finished(); !step.Store {
		t.Fatalf("%+v, %q", step, record.Lines())
	}
	_ = c.Store(t.Context())
	c.Ended(t.Context())
	if len(lock.Texts) != 1 {
		t.Errorf("stored are %q", lock.Texts)
	}
}

// TestOnceIsDecidedOnce reports the end of an answer twice: by its Content-Length, and by Envoy.
func TestOnceIsDecidedOnce(t *testing.T) {
	record := &gatetest.Recorder{}
	g := settleOnce(t, &gatetest.Lock{Journal: &gatetest.Journal{}, Texts: make(map[string]string)}, record)
	c := g.Open(order.Request{Method: "POST", Target: "/orders/42/settle", BodyState: order.BodyComplete})
	c.Granted(t.Context(), c.Acquire(t.Context()))
	c.Answered(&gate.Response{Status: 400, Details: "via_upstream", Attempts: 1, Header: order.HeaderList{{"content-length", "2"}}})
	if !c.AnswerBody([]byte("no")) || c.Finished().NotStored == "" || c.Finished().NotStored != "" {
		t.Error("it is decided at another time, or twice")
	}
	c.Ended(t.Context())
	n := 0
	for _, line := range record.Lines() {
		if strings.Contains(line, "once") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("counted %q", record.Lines())
	}
}

// settleOnce is a gate with one rule that stores answers of 2xx.
func settleOnce(t *testing.T, lock *gatetest.Lock, record gate.Recorder) *gate.Gate {
	t.Helper()
	g, err := gate.New([]gate.Policy{{
		Rule: order.Rule{
			Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle",
			IDs: []order.ID{{In: order.InPath, Name: "id", Format: digits}},
		},
		Settle: &gate.Settle{Lock: lock, Once: &gate.Once{
			Name: "n", Keep: time.Hour, MaxBody: 100, Stores: func(status int) bool { return status/100 == 2 },
		}},
	}}, record, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
