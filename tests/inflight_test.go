package tests

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// flying has the example's rule bound what is in flight, and hold for so long.
func flying(t testing.TB, limits, hold string) func(string) string {
	return edit(t, settleAction, "settle: {lock: settlement, "+limits+"}", "hold: 60s", "hold: "+hold)
}

// TestTooManyInFlight fills the backend with calls that run or are held. Others get no lock
// until one of these is over.
func TestTooManyInFlight(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: flying(t, "max_in_flight: 2, max_in_flight_per_client: 2", "100s")})
	left := s.hang(b, "POST", "/orders/1/settle", "")
	left.leave()
	bedtest.Eventually(t, "it is held", func() bool { return s.metric("ordergate_settlements_held") == "1" })
	running := s.hang(b, "POST", "/orders/2/settle", "")

	a := s.must("POST", "/orders/3/settle", "")
	a.want(t, 503, "overloaded")
	if a.header.Get("Retry-After") == "" {
		t.Error("the client is not told to come again")
	}
	if n := b.arrived("/orders/3/settle"); n != 0 {
		t.Errorf("the backend has %d settlements too many", n)
	}
	if n := s.redis.Exists(t.Context(), "order:lock:3").Val(); n != 0 {
		t.Error("the order is locked for a call that was refused")
	}
	if n := s.metric("ordergate_settlements_in_flight"); n != "2" {
		t.Errorf("%s settlements are in flight, want 2", n)
	}
	s.wantLogged(`"settlement refused"`, "too many settlements are in flight")

	b.goOn()
	running.wantAnswer(t)
	s.must("POST", "/orders/3/settle", "").want(t, 200, "")
	s.must("POST", "/orders/1/settle", "").want(t, 409, "busy")
}

// TestWaitsForAPlace has a caller wait until a call has ended.
func TestWaitsForAPlace(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, envoy: patiently(t),
		gate: both(flying(t, "max_in_flight: 1", "100s"), waitingUpTo(t, 40*time.Second)),
	})
	running := s.hang(b, "POST", "/orders/1/settle", "")
	done := make(chan answer, 1)
	go func() {
		a, _ := s.send(t.Context(), "POST", "/orders/2/settle", "")
		done <- a
	}()
	bedtest.Eventually(t, "another one waits", func() bool { return s.metric("ordergate_settlements_waiting") == "1" })
	b.goOn()
	running.wantAnswer(t)
	(<-done).want(t, 200, "")
	bedtest.Eventually(t, "all is over", func() bool { return s.metric("ordergate_settlements_in_flight") == "0" })
}

// TestWithinOneInFlight has a call within another when there is no place any more.
func TestWithinOneInFlight(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: flying(t, "max_in_flight: 1", "100s")})
	outer := s.hang(b, "POST", "/orders/1/settle", "")
	s.must("POST", "/orders/1/settle", "", leaseHeader, outer.ours("lease")).want(t, 200, "")
	s.must("POST", "/orders/2/settle", "", leaseHeader, outer.ours("lease")).want(t, 503, "overloaded")
	b.goOn()
	outer.wantAnswer(t)
}

// TestManyOrdersOneLock has many callers wait for one order: they are no settlements in
// flight, and keep out nobody else.
func TestManyOrdersOneLock(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, envoy: patiently(t),
		gate: both(flying(t, "max_in_flight: 2, max_in_flight_per_client: 2", "100s"), waitingUpTo(t, 40*time.Second)),
	})
	running := s.hang(b, "POST", "/orders/1/settle", "")
	const crowd = 20
	done := make(chan answer, crowd)
	for range crowd {
		go func() {
			a, _ := s.send(t.Context(), "POST", "/orders/1/settle", "")
			done <- a
		}()
	}
	waiters := `ordergate_lock_waiters{lock="settlement"}`
	bedtest.Eventually(t, "they wait", func() bool { return s.metric(waiters) == fmt.Sprint(crowd) })
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	b.goOn()
	running.wantAnswer(t)
	for range crowd {
		(<-done).want(t, 200, "")
	}
}

// settleFrom settles from an address of this machine.
func (s *stack) settleFrom(ctx context.Context, address, path string) (answer, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext,
	}
	req, err := http.NewRequestWithContext(ctx, "POST", s.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	return answer{status: resp.StatusCode, verdict: resp.Header.Get(gate.HeaderVerdict)}, resp.Body.Close()
}

// TestClientOfHeldCalls has one client leave its calls. It is refused until their holds have
// ended; another client is not.
func TestClientOfHeldCalls(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: flying(t, "max_in_flight_per_client: 1", "3s")})
	const rude, other = "127.0.0.2", "127.0.0.3"
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.settleFrom(ctx, rude, "/orders/1/settle?do=hang")
	}()
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/1/settle") == 1 })
	leave()
	<-gone
	bedtest.Eventually(t, "it is held", func() bool { return s.metric("ordergate_settlements_held") == "1" })
	settle := func(address, path string) answer {
		a, err := s.settleFrom(t.Context(), address, path)
		must(t, err)
		return a
	}
	settle(rude, "/orders/2/settle").want(t, 503, "overloaded")
	settle(other, "/orders/2/settle").want(t, 200, "")
	bedtest.Eventually(t, "the hold has ended", func() bool { return settle(rude, "/orders/3/settle").status == 200 })
}
