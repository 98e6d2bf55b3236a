package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/gate/gatetest"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestOneWait has a caller wait for a lock, and then for a slot in flight. Both waits
// together are no longer than the lock's: the proxy waits for ordergate no longer than that.
func TestOneWait(t *testing.T) {
	t.Parallel()
	b := newReloadBed(t)
	b.write(b.with("{lease: 30s}", "{lease: 30s, wait: {up_to: 2s}}", "settle: {lock: settlement}", "settle: {lock: settlement, max_in_flight: 1}"), "applied")
	const foreign = "order:lock:1" // ends by itself before the wait does
	bedtest.Check(t, b.redis.HSet(t.Context(), foreign, "java", 1).Err())
	bedtest.Check(t, b.redis.PExpire(t.Context(), foreign, 1500*time.Millisecond).Err())

	granted := make(chan gate.Grant, 1)
	began := time.Now()
	gatetest.AcquireTo(t.Context(), opened(b.Gate(), "1"), granted)
	running, step := settlement(t, b.Gate(), "2")
	if step.Do != gate.PassRequest {
		t.Fatalf("step %+v", step)
	}
	g := <-granted
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it waited for %v", took)
	}
	if !errors.Is(g.Err, gate.ErrOverloaded) && !errors.Is(g.Err, gate.ErrBusy) {
		t.Errorf("it ended with %v", g.Err)
	}
	end(t, running)
	b.wantIdle()
}

// wantIdle waits until no settlement is in flight any more.
func (b *reloadBed) wantIdle() {
	b.t.Helper()
	bedtest.Eventually(b.t, "none is in flight", func() bool {
		calls, held, waiting := b.lockers.InFlight()
		return calls == 0 && held == 0 && waiting == 0
	})
}

// TestWaitForAPermitTakesNoSlot has calls wait for their merchant's permit: they are not in flight,
// and keep out no other merchant.
func TestWaitForAPermitTakesNoSlot(t *testing.T) {
	t.Parallel()
	b := newReloadBed(t)
	b.write(b.with(`permits: 2, key: "merchant:{id}"`, `permits: 1, key: "merchant:{id}", wait: {up_to: 60s}`,
		"settle: {lock: settlement}", "settle: {lock: settlement, max_in_flight: 2, limit: {lock: merchants, id: {header: x-merchant}}}"), "applied")
	of := func(merchant, id string) *gate.Call {
		call := b.Gate().Open(order.Request{
			Method: "POST", Target: "/orders/" + id + "/settle", Host: "shop", Header: order.HeaderList{{"x-merchant", merchant}}, BodyState: order.BodyComplete,
		})
		return call
	}
	running := of("7", "1")
	if step := gatetest.Settle(t.Context(), running); step.Do != gate.PassRequest {
		t.Fatalf("step %+v", step)
	}
	waiting := of("7", "2")
	granted := make(chan gate.Grant, 1)
	gatetest.AcquireTo(t.Context(), waiting, granted)
	bedtest.Eventually(t, "one waits for its permit", func() bool {
		return b.metric(`ordergate_lock_waiters{lock="merchants"}`) == "1"
	})
	if calls, _, _ := b.lockers.InFlight(); calls != 1 {
		t.Errorf("%d are in flight, want 1", calls)
	}
	other := of("8", "3")
	if step := gatetest.Settle(t.Context(), other); step.Do != gate.PassRequest {
		t.Errorf("another merchant's call: %+v", step)
	}
	end(t, other)
	end(t, running)
	if step := gatetest.Granted(waiting, <-granted); step.Do != gate.PassRequest {
		t.Errorf("the call that waited: %+v", step)
	}
	gatetest.End(waiting) // without an answer
	bedtest.Eventually(t, "one is in flight, and is held", func() bool {
		calls, held, _ := b.lockers.InFlight()
		return calls == 1 && held == 1
	})
}
