package tests

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// breakable is a stack whose Redis can be out of reach. The test itself still reaches it.
func breakable(t *testing.T, change settings) (*stack, *wire) {
	t.Helper()
	bed := bedtest.New(t)
	server := bed.Redis()
	w := newWire(t, server.Addr())
	s := stackOn(t, bed, server, fmt.Sprintf("addresses: [%s]", w.addr()), change)
	s.redis = redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = s.redis.Close() })
	return s, w
}

// abandonedCut has the client of a running settlement leave while Redis is out of reach,
// and waits until that was noticed. The lease is the one that the client presents.
func (s *stack) abandonedCut(b *backend, path, body, lease string, wires ...*wire) {
	s.t.Helper()
	h := s.hang(b, "POST", path, body, "Content-Type", jsonBody, leaseHeader, lease)
	for _, w := range wires { // of a quorum, one may have the lock after most have granted it
		c := redis.NewClient(&redis.Options{Addr: w.upstream})
		bedtest.Eventually(s.t, "the lock is taken", func() bool { return c.Exists(s.t.Context(), "order:lock:1").Val() == 1 })
		must(s.t, c.Close())
	}
	for _, w := range wires {
		w.set(cut)
	}
	h.leave()
	<-h.done
	s.wantLogged(`"lock not released as planned"`, "holding lock")
}

// TestHoldIsRepeated has Redis out of reach at the moment when locks are to be held. Once
// it is back they are, for as long as the configuration says.
func TestHoldIsRepeated(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name       string
		gate       func(testing.TB) func(string) string
		path, body string
		orders     []string
	}{
		{"exclusive", nil, "/orders/1/settle", "", []string{"1"}},
		{"several orders", func(testing.TB) func(string) string { return withBatch }, "/batch", `{"ids":[1,2,3]}`, []string{"1", "2", "3"}},
		{"string", func(t testing.TB) func(string) string { return ofKind(t, "format: string") }, "/orders/1/settle", "", []string{"1"}},
		{"fair", func(t testing.TB) func(string) string { return ofKind(t, "kind: fair") }, "/orders/1/settle", "", []string{"1"}},
		{"read", func(t testing.TB) func(string) string { return ofKind(t, "kind: read") }, "/orders/1/settle", "", []string{"1"}},
		{"write", func(t testing.TB) func(string) string { return ofKind(t, "kind: write") }, "/orders/1/settle", "", []string{"1"}},
		{"with a permit", func(t testing.TB) func(string) string { return limited(t, 1) }, "/orders/1/settle", `{"merchantId":7}`, []string{"1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			gate := shortLease
			if tt.gate != nil {
				gate = both(tt.gate(t), shortLease)
			}
			b := newBackend(t)
			s, w := breakable(t, settings{backend: b.addr(), orders: 10, gate: gate})
			s.abandonedCut(b, tt.path, tt.body, "", w)
			w.set(whole)
			for _, id := range tt.orders {
				s.wantFate(id, held)
			}
			if tt.name == "with a permit" {
				s.ofMerchant("7", "/orders/2/settle").want(t, 409, "busy")
			}
			s.wantLogged(`"locks are held that Redis did not take at first"`)
			if n := s.metric(`ordergate_lock_lost_total{lock="settlement"}`); n != "0" {
				t.Errorf("%s leases are counted as lost", n)
			}
		})
	}
}

// TestHoldIsRepeatedOnAQuorum has most of the servers out of reach.
func TestHoldIsRepeatedOnAQuorum(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	var addrs []string
	var wires []*wire
	for range 3 {
		wires = append(wires, newWire(t, bed.Redis().Addr()))
		addrs = append(addrs, wires[len(wires)-1].addr())
	}
	b, server := newBackend(t), bed.Redis()
	quorum := ofKind(t, "kind: quorum\n    quorum: {addresses: ["+strings.Join(addrs, ", ")+"]}")
	s := stackOn(t, bed, server, "addresses: ["+server.Addr()+"]", settings{backend: b.addr(), orders: 10, gate: quorum})
	s.redis = redis.NewClient(&redis.Options{Addr: wires[0].upstream})
	t.Cleanup(func() { _ = s.redis.Close() })
	s.abandonedCut(b, "/orders/1/settle", "", "", wires[:2]...)
	wires[0].set(whole)
	wires[1].set(whole)
	s.wantFate("1", held)
}

// TestHoldOfANestedCallIsRepeated has the client of a call within a call leave.
func TestHoldOfANestedCallIsRepeated(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s, w := breakable(t, settings{backend: b.addr(), orders: 10, gate: shortLease})
	outer := s.hang(b, "POST", "/orders/1/settle", "")
	s.abandonedCut(b, "/orders/1/settle", "", outer.ours("lease"), w)
	w.set(whole)
	s.wantLogged(`"locks are held that Redis did not take at first"`)
	b.goOn()
	outer.wantAnswer(t)
	s.wantFate("1", held)
}

// TestHoldIsRepeatedUntilTheLeaseEnds has Redis out of reach for longer than the lease.
func TestHoldIsRepeatedUntilTheLeaseEnds(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s, w := breakable(t, settings{backend: b.addr(), orders: 10, gate: edit(t, "lease: 90s", "lease: 2s")})
	s.abandonedCut(b, "/orders/1/settle", "", "", w)
	s.wantLogged(`"a lock ended before it was held`, "order:lock:1")
	if n := s.metric(`ordergate_lock_lost_total{lock="settlement"}`); n != "1" {
		t.Errorf("%s leases are counted as lost, want 1", n)
	}
	w.set(whole)
	bedtest.Eventually(t, "the order can be settled", func() bool {
		return s.must("POST", "/orders/1/settle", "").status == http.StatusOK
	})
}

// TestStoppingWaitsForHolds ends ordergate while Redis is out of reach.
func TestStoppingWaitsForHolds(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s, w := breakable(t, settings{backend: b.addr(), orders: 10, gate: shortLease})
	s.abandonedCut(b, "/orders/1/settle", "", "", w)
	must(t, s.gate.Signal(syscall.SIGTERM))
	admin := s.GateAddr(s.gate, "admin")
	bedtest.Eventually(t, "all that is left is the hold", func() bool {
		conn, err := net.Dial("tcp", admin)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	w.set(whole)
	must(t, s.gate.Wait(t.Context()))
	s.wantFate("1", held)
}
