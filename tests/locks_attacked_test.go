package tests

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// register is an order service that takes a moment for each settlement, and goes on with it
// when the client has left. It notes orders that it settles more than once at a time.
type register struct {
	*httptest.Server
	most int // settlements of one order at a time

	mu     sync.Mutex
	at     map[string]int // settlements under way, by the key of the order's lock
	served int
	wrong  []string
}

func newRegister(t testing.TB, most int) *register {
	r := &register{most: most, at: make(map[string]int)}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *register) serve(_ http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	keys := strings.Split(req.Header.Get("x-ordergate-key"), ",")
	r.count(keys, 1)
	time.Sleep(5 * time.Millisecond) // it is at work
	r.count(keys, -1)
}

func (r *register) count(keys []string, change int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served += max(change, 0)
	for _, key := range keys {
		if r.at[key] += change; r.at[key] > r.most {
			r.wrong = append(r.wrong, key)
		}
	}
}

func (r *register) addr() string { return strings.TrimPrefix(r.URL, "http://") }

// attackedOrders are those that are settled in TestLocksAttacked: 1 to this.
const attackedOrders = 40

// merchants are those whose permits are taken there: 0 to this, exclusively.
const merchants = 8

// attacked is a sort of locks that clients leave at every moment.
type attacked struct {
	name    string
	lock    string // keys of the example's lock
	permits string // of what free permits are in the end
	change  func(testing.TB) func(string) string
	request func() (path, body string)
}

func oneOrder() (path, body string) {
	return fmt.Sprintf("/orders/%d/settle", 1+rand.IntN(attackedOrders)), ""
}

func ofSomeMerchant() (path, body string) {
	path, _ = oneOrder()
	return path, fmt.Sprintf(`{"merchantId":%d}`, rand.IntN(merchants))
}

func someOrders() (path, body string) {
	ids := rand.Perm(attackedOrders)
	return "/batch", fmt.Sprintf(`{"ids":[%d,%d,%d]}`, 1+ids[0], 1+ids[1], 1+ids[2])
}

// soonOver are the times of all locks. A hold is far longer than the service is at work, and a
// lease that is left behind longer than this test waits.
const soonOver = "lease: 30s, wait: {up_to: 5s}, on_unknown_outcome: {hold: 3s}"

var attackedLocks = []attacked{
	{name: "exclusive", request: oneOrder},
	{name: "fair", lock: "kind: fair", request: oneOrder},
	{name: "string", lock: "format: string", request: oneOrder},
	{name: "quorum", change: onQuorum, request: oneOrder},
	{name: "write", lock: "kind: write", request: oneOrder},
	{name: "semaphore", lock: "kind: semaphore, permits: 2", permits: "order:lock:*", request: oneOrder},
	{name: "limit", change: ofMerchants, permits: "merchant:settling:*", request: ofSomeMerchant},
	{name: "batch", request: someOrders},
	{name: "batch of fair", lock: "kind: fair", request: someOrders},
}

// onQuorum has three servers of its own for the locks.
func onQuorum(t testing.TB) func(string) string {
	bed := bedtest.New(t)
	addresses := []string{bed.Redis().Addr(), bed.Redis().Addr(), bed.Redis().Addr()}
	return edit(t, soonOver, soonOver+", kind: quorum, quorum: {addresses: ["+strings.Join(addresses, ", ")+"]}")
}

// ofMerchants gives settlements a limit.
func ofMerchants(t testing.TB) func(string) string {
	return edit(t,
		"  settlement: {", "  merchants: {kind: semaphore, permits: 2, key: \"merchant:settling:{id}\", "+soonOver+"}\n  settlement: {",
		settleAction, "settle: {lock: settlement, limit: {lock: merchants, id: {json: merchantId, format: digits}}}")
}

// TestLocksAttacked has clients leave at every moment of a settlement, beside others who stay.
// No order is settled twice at a time, and in the end every lock is free, every permit is back
// and nobody counts as in flight or as waiting.
func TestLocksAttacked(t *testing.T) {
	t.Parallel()
	for _, tt := range attackedLocks {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			most := 1
			if strings.Contains(tt.lock, "permits") {
				most = 2
			}
			r := newRegister(t, most)
			s := newStack(t, settings{backend: r.addr(), orders: attackedOrders, envoy: patiently(t), gate: both(
				lockOf(t, tt.lock), func(yaml string) string {
					if tt.change != nil {
						yaml = tt.change(t)(yaml)
					}
					return withBatch(yaml)
				})})
			s.attackLocks(tt.request)
			s.wantAllFree(tt)
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.wrong) > 0 {
				t.Errorf("%d times an order was settled beside itself: %.200q", len(r.wrong), r.wrong)
			}
			t.Logf("%d settlements reached the service", r.served)
		})
	}
}

// lockOf replaces the example's lock by one on a line, with further keys.
func lockOf(t testing.TB, more string) func(string) string {
	t.Helper()
	if more != "" {
		more = ", " + more
	}
	return func(yaml string) string {
		before, rest, ok := strings.Cut(yaml, settlementLock)
		_, after, ends := strings.Cut(rest, "\n\n")
		if !ok || !ends {
			t.Fatal("the example has no lock")
		}
		return before + "  settlement: {key: \"order:lock:{id}\", " + soonOver + more + "}\n\n" + after
	}
}

// attackLocks has ten clients leave their settlements, and four who stay, for a while.
func (s *stack) attackLocks(request func() (path, body string)) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for ctx.Err() == nil {
				path, body := request()
				s.leaveAfter(path, body, time.Duration(rand.IntN(60_000))*time.Microsecond)
			}
		})
	}
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				path, body := request()
				if a := s.must("POST", path, body, "Content-Type", jsonBody); a.status != 200 && a.status != 409 && a.verdict != "overloaded" {
					s.t.Errorf("a client who stayed got %d %s", a.status, a.verdict)
				}
				time.Sleep(10 * time.Millisecond) // leaves the processors to those who leave
			}
		})
	}
	all.Wait()
}

// leaveAfter sends a settlement and closes the connection after a while.
func (s *stack) leaveAfter(path, body string, after time.Duration) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: shop\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", path, jsonBody, len(body), body)
	time.Sleep(after) // the moment is what is tried
}

// wantAllFree waits until nothing is left of any settlement.
func (s *stack) wantAllFree(tt attacked) {
	s.t.Helper()
	for _, gauge := range []string{
		"ordergate_settlements_in_flight", "ordergate_settlements_held", "ordergate_settlements_waiting",
		`ordergate_lock_waiters{lock="settlement"}`, `ordergate_lock_held{lock="settlement"}`,
	} {
		bedtest.Eventually(s.t, gauge+" is 0", func() bool { return s.metric(gauge) == "0" })
	}
	for order := 1; order <= attackedOrders; order++ {
		path := fmt.Sprintf("/orders/%d/settle", order)
		s.ofMerchant(fmt.Sprint(order%merchants), path).want(s.t, 200, "") // which also counts the permits of calls that were held
	}
	if lost := s.metric(`ordergate_lock_lost_total{lock="settlement"}`); lost != "0" {
		s.t.Errorf("%s leases were lost", lost)
	}
	if tt.permits != "" {
		bedtest.Eventually(s.t, "every permit is back", func() bool { return s.allPermits(tt.permits) })
	}
	if tt.permits != "order:lock:*" {
		s.wantGone("order:lock:*")
	}
}

// allPermits reports whether each semaphore has both of its permits.
func (s *stack) allPermits(pattern string) bool {
	for _, key := range s.redis.Keys(s.t.Context(), pattern).Val() {
		if s.redis.Get(s.t.Context(), key).Val() != "2" {
			return false
		}
	}
	return true
}
