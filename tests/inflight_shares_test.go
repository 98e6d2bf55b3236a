package tests

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// abandonFrom settles orders from an address, one after the other, and leaves each when the
// backend has it, until a settlement is refused. It returns how many the backend got.
func (s *stack) abandonFrom(b *backend, address string, orders ...int) (held int) {
	s.t.Helper()
	for _, order := range orders {
		path := fmt.Sprintf("/orders/%d/settle", order)
		ctx, leave := context.WithCancel(s.t.Context())
		gone := make(chan answer, 1)
		go func() {
			a, _ := s.settleFrom(ctx, address, path+"?do=hang")
			gone <- a
		}()
		var refused answer
		bedtest.Eventually(s.t, "it is at the backend, or refused", func() bool {
			select {
			case refused = <-gone:
				return true
			default:
				return b.arrived(path) > 0
			}
		})
		leave()
		if refused.status != 0 {
			refused.want(s.t, 503, "overloaded")
			return held
		}
		<-gone
		held++
		want := fmt.Sprint(len(b.seen()))
		bedtest.Eventually(s.t, "it is held", func() bool { return s.metric("ordergate_settlements_held") == want })
	}
	return held
}

// TestPlacesLeftByFewClients has clients with an address each leave all the calls that they
// may begin. The more of them there are, the fewer each may, so a customer gets a place.
func TestPlacesLeftByFewClients(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 200, gate: flying(t, "max_in_flight: 32", "100s")})
	next := 1
	for client, want := range []int{16, 8, 4, 2, 1} { // as many as are free
		var orders []int
		for range 20 {
			orders, next = append(orders, next), next+1
		}
		address := fmt.Sprintf("127.0.0.%d", 10+client)
		if got := s.abandonFrom(b, address, orders...); got != want {
			t.Errorf("client %d keeps %d places, want %d", client, got, want)
		}
	}
	a, err := s.settleFrom(t.Context(), "127.0.0.99", "/orders/200/settle")
	must(t, err)
	a.want(t, 200, "")
}

// TestMorePlacesByReload has a call wait for a place while a reload makes room for it.
func TestMorePlacesByReload(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, before, after string }{
		{"in all", "max_in_flight: 1", "max_in_flight: 2, max_in_flight_per_client: 2"},
		{"of one client", "max_in_flight: 2, max_in_flight_per_client: 1", "max_in_flight: 2, max_in_flight_per_client: 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			r := newReloads(t, settings{
				backend: b.addr(), orders: 10, envoy: patiently(t),
				gate: both(flying(t, tt.before, "100s"), waitingUpTo(t, 40*time.Second)),
			})
			running := r.hang(b, "POST", "/orders/1/settle", "")
			done := make(chan answer, 1)
			go func() {
				a, _ := r.send(t.Context(), "POST", "/orders/2/settle", "")
				done <- a
			}()
			bedtest.Eventually(t, "another one waits", func() bool { return r.metric("ordergate_settlements_waiting") == "1" })
			r.wantAfter("applied", func() { r.rewrite(r.edited(tt.before, tt.after)) })
			bedtest.Eventually(t, "the call that has waited is at the backend", func() bool { return b.arrived("/orders/2/settle") == 1 })
			(<-done).want(t, 200, "")
			b.goOn()
			running.wantAnswer(t)
		})
	}
}

// TestOneTryForAPlace has a lock that is not waited for: no more is a place.
func TestOneTryForAPlace(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, envoy: patiently(t),
		gate: both(flying(t, "max_in_flight: 1", "100s"), edit(t, "wait: {tries: 3, every: 100ms}", "wait: {tries: 1, every: 30s}")),
	})
	running := s.hang(b, "POST", "/orders/1/settle", "")
	begun := time.Now()
	s.must("POST", "/orders/2/settle", "").want(t, 503, "overloaded")
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("the refusal took %v", took)
	}
	b.goOn()
	running.wantAnswer(t)
}

// TestBatchWithinOneInFlight has calls within another when there is no place any more: only
// one that locks no further order is let in.
func TestBatchWithinOneInFlight(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(withBatch, func(yaml string) string {
		return strings.ReplaceAll(yaml, settleAction, "settle: {lock: settlement, max_in_flight: 1}")
	})})
	outer := s.hang(b, "POST", "/batch", `{"ids":[1,2]}`, "Content-Type", jsonBody)
	within := func(ids string) answer {
		return s.must("POST", "/batch", `{"ids":`+ids+`}`, "Content-Type", jsonBody, leaseHeader, outer.ours("lease"))
	}
	within("[1,2]").want(t, 200, "")
	within("[2]").want(t, 200, "")
	within("[1,2,3]").want(t, 503, "overloaded")
	within("[3,4]").want(t, 503, "overloaded")
	if n := s.redis.Exists(t.Context(), "order:lock:3").Val(); n != 0 {
		t.Error("an order is locked for a call that was refused")
	}
	b.goOn()
	outer.wantAnswer(t)
	s.wantGone("order:lock:*")
}

// waitersPerCall is how many may wait for each call that may be in flight.
const waitersPerCall = 10

// TestWaitersOfFewClients has two clients wait for places as often as they may, while all are
// taken. Others may wait, too.
func TestWaitersOfFewClients(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 100, envoy: patiently(t),
		gate: both(flying(t, "max_in_flight: 2", "100s"), waitingUpTo(t, 40*time.Second)),
	})
	first, second := s.hang(b, "POST", "/orders/1/settle", ""), make(chan answer, 1)
	go func() {
		a, _ := s.settleFrom(t.Context(), "127.0.0.9", "/orders/2/settle?do=hang")
		second <- a
	}()
	bedtest.Eventually(t, "all places are taken", func() bool { return s.metric("ordergate_settlements_in_flight") == "2" })
	ctx, leave := context.WithCancel(t.Context())
	var rude sync.WaitGroup
	var refused atomic.Int64
	const each = 20
	for client := range 2 {
		for i := range each {
			rude.Go(func() {
				a, _ := s.settleFrom(ctx, fmt.Sprintf("127.0.0.%d", 2+client), fmt.Sprintf("/orders/%d/settle?do=hang", 10+each*client+i))
				if a.status == 503 {
					refused.Add(1)
				}
			})
		}
	}
	waiting := func() int {
		n, err := strconv.Atoi(s.metric("ordergate_settlements_waiting"))
		must(t, err)
		return n
	}
	bedtest.Eventually(t, "they wait, or are refused", func() bool { return waiting()+int(refused.Load()) == 2*each })
	rest := waiting()
	if rest >= 2*waitersPerCall {
		t.Errorf("two clients fill all %d places to wait", rest)
	}
	customer := make(chan answer, 1)
	go func() {
		a, _ := s.settleFrom(t.Context(), "127.0.0.8", "/orders/3/settle")
		customer <- a
	}()
	bedtest.Eventually(t, "the customer waits", func() bool { return waiting() == rest+1 })
	leave()
	rude.Wait()
	b.goOn()
	first.wantAnswer(t)
	(<-second).want(t, 200, "")
	(<-customer).want(t, 200, "")
	bedtest.Eventually(t, "all is over", func() bool {
		return waiting() == 0 && s.metric("ordergate_settlements_in_flight") == s.metric("ordergate_settlements_held")
	})
}
