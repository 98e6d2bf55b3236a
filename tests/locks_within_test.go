package tests

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const leaseHeader = "x-ordergate-lease"

// TestWithinAnother has a backend settle the order that it is settling, through
// Envoy, with the lease that it was given.
func TestWithinAnother(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortLease})
	other := s.second(settings{backend: b.addr(), orders: 10, gate: shortLease})
	outer := s.hang(b, "POST", "/orders/1/settle", "")
	lease := outer.ours("lease")
	for _, via := range []*stack{s, other} {
		via.must("POST", "/orders/1/settle", "", leaseHeader, lease).want(t, 200, "")
		if got := b.last("lease"); got != lease {
			t.Errorf("lease within %q, want that of the outer call, %q", got, lease)
		}
		if got := b.last("fence"); got != outer.ours("fence") {
			t.Errorf("fence within %q, want that of the outer call, %q", got, outer.ours("fence"))
		}
	}
	bedtest.Eventually(t, "the outer call holds it alone", func() bool {
		return s.redis.HGet(t.Context(), "order:lock:1", lease).Val() == "1"
	})
	for name, forged := range map[string][]string{
		"none":         nil,
		"made up":      {leaseHeader, "00000000-0000-4000-8000-000000000000:1"},
		"another case": {leaseHeader, strings.ToUpper(lease)},
		"twice":        {leaseHeader, lease, leaseHeader, lease},
		"too long":     {leaseHeader, lease + strings.Repeat("0", 128)},
		"blank":        {leaseHeader, lease + " x"},
	} {
		if a := s.must("POST", "/orders/1/settle", "", forged...); a.status != 409 || a.verdict != "busy" {
			t.Errorf("lease %s: %d %s, want busy", name, a.status, a.verdict)
		}
	}
	b.goOn()
	outer.wantAnswer(t)
	s.wantFate("1", released)

	// It is nobody's now: an ordinary request, with a lease of its own.
	s.must("POST", "/orders/1/settle", "", leaseHeader, lease).want(t, 200, "")
	if got := b.last("lease"); got == lease || got == "" {
		t.Errorf("a stale lease came to the backend as %q", got)
	}
	s.wantFate("1", released)
	s.wantGone("*ordergate_entry*")
}

// TestForgedLeaseIsReplaced sends leases that are none, to every kind of rule. In
// particular, two of them: only one of each would be overwritten.
func TestForgedLeaseIsReplaced(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	forged := []string{leaseHeader, "somebody:1", leaseHeader, "somebody:2", "x-ordergate-fence", "99", "x-ordergate-fence", "98"}
	s.must("POST", "/orders/1/settle", "", forged...).want(t, 200, "")
	seen := b.seen()[0].Header
	for _, name := range []string{"X-Ordergate-Lease", "X-Ordergate-Fence", "X-Ordergate-Key"} {
		if v := seen.Values(name); len(v) != 1 || slices.Contains(forged, v[0]) {
			t.Errorf("%s came to the backend as %q", name, v)
		}
	}
	for _, request := range [][2]string{{"GET", "/orders/1"}, {"GET", "/elsewhere"}, {"POST", "/elsewhere"}, {"POST", "/orders?do=create&id=11"}} {
		s.must(request[0], request[1], "", forged...)
		if got := b.last("lease"); got != "" {
			t.Errorf("%s %s: lease %q came to the backend", request[0], request[1], got)
		}
	}
}

// TestLeaseOfAnotherService presents the name under which another service holds the
// lock, that of an ended lease of ordergate's included: it is busy, and not lengthened.
func TestLeaseOfAnotherService(t *testing.T) {
	t.Parallel()
	const key, left = "order:lock:1", 20 * time.Second
	for name, test := range map[string]struct {
		gate func(string) string
		hold func(s *stack, owner string) error
	}{
		"string": {ofKind(t, "format: string"), func(s *stack, owner string) error {
			return s.redis.Set(t.Context(), key, owner, left).Err()
		}},
		"redisson": {shortLease, func(s *stack, owner string) error {
			return errors.Join(s.redis.HSet(t.Context(), key, owner, 1).Err(), s.redis.PExpire(t.Context(), key, left).Err())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10, gate: test.gate})
			s.must("POST", "/orders/1/settle", "").want(t, 200, "")
			ended := b.last("lease")
			s.wantFate("1", released)
			for _, owner := range []string{"1", "0b0dd1f4-6d29-4d4b-8c7f-d5b8b1b8c7e1:52", ended} {
				must(t, test.hold(s, owner))
				if a := s.must("POST", "/orders/1/settle", "", leaseHeader, owner); a.status != 409 || a.verdict != "busy" {
					t.Errorf("presenting %s: %d %s, want busy", owner, a.status, a.verdict)
				}
				if ttl := s.redis.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > left {
					t.Errorf("the other's lock ends in %v, want %v at most", ttl, left)
				}
				must(t, s.redis.Del(t.Context(), key).Err())
			}
		})
	}
}

// note is what ordergate writes down about a lock.
type note struct{ Process, Request, Reason string }

// heldReason waits for the reason of a lock that is held, and returns all that is
// written down.
func (s *stack) heldReason(id, owner string) (h note) {
	s.t.Helper()
	key := "{order:lock:" + id + "}:ordergate_holders"
	bedtest.Eventually(s.t, "a reason at "+key, func() bool {
		text := s.redis.HGet(s.t.Context(), key, owner).Val()
		return json.Unmarshal([]byte(text), &h) == nil && h.Reason != ""
	})
	return h
}

// TestHeldForAReason reads in Redis why a lock is held, and for whom.
func TestHeldForAReason(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortLease, envoy: withTestRoutes})
	host, err := os.Hostname()
	must(t, err)
	want := func(id, reason string) {
		t.Helper()
		s.wantFate(id, held)
		seen := b.seen()[len(b.seen())-1].Header
		h := s.heldReason(id, seen.Get(leaseHeader))
		if h.Reason != reason {
			t.Errorf("order %s: reason %q, want %q", id, h.Reason, reason)
		}
		if request := "commission-settle " + seen.Get("X-Request-Id"); h.Request != request || h.Process != host {
			t.Errorf("order %s: for %q in %q, want %q in %q", id, h.Request, h.Process, request, host)
		}
	}
	s.must("POST", "/orders/1/settle?do=hang", "", "x-test-route", "timeout").want(t, 504, "")
	want("1", "outcome unknown: response_timeout")
	s.must("POST", "/orders/2/settle?do=hang-once", "", "x-test-route", "retry").want(t, 200, "")
	want("2", "outcome unknown: via_upstream after 2 attempts")
	s.must("POST", "/orders/3/settle?do=reset", "").want(t, 503, "")
	want("3", "outcome unknown: upstream_reset_before_response_started{connection_termination}")
	s.hang(b, "POST", "/orders/4/settle", "").leave()
	left := "the client or Envoy ended the call before an answer"
	if *attachment == asModule { // Envoy tells which
		left = "downstream_remote_disconnect"
	}
	want("4", "outcome unknown: "+left)
}

// TestLegacyHeldForAReason does the same behind services that are only slow.
func TestLegacyHeldForAReason(t *testing.T) {
	t.Parallel()
	change := settings{gate: shortLease, envoy: withTestRoutes}
	onEveryLegacy(t, change, func(t *testing.T, s *stack, _ *testbed.Orders) {
		s.must("POST", "/orders/1/settle?slow=1000", "", "x-test-route", "timeout").want(t, 504, "")
		s.wantFate("1", held)
		var owner string
		for o := range s.redis.HGetAll(context.WithoutCancel(t.Context()), "order:lock:1").Val() {
			if o != "ordergate_fence" {
				owner = o
			}
		}
		if h := s.heldReason("1", owner); h.Reason != "outcome unknown: response_timeout" || !strings.HasPrefix(h.Request, "commission-settle ") {
			t.Errorf("written down: %+v", h)
		}
	})
}
