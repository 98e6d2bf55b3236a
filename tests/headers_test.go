package tests

import (
	"strconv"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestHeadersToTheBackend checks what the backend is told, and that nobody else
// can tell it.
func TestHeadersToTheBackend(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	forged := []string{
		"x-ordergate-key", "order:lock:1", "x-ordergate-fence", "9999999999999999",
		"x-ordergate-lease", "somebody:1", "x-ordergate-verdict", "acquired",
	}
	last := int64(0)
	for range 3 {
		s.must("POST", "/orders/5/settle", "", forged...).want(t, 200, "")
		got := b.seen()[len(b.seen())-1].Header
		fence, err := strconv.ParseInt(got.Get("x-ordergate-fence"), 10, 64)
		if err != nil || fence <= last || fence == 9999999999999999 {
			t.Errorf("fence %q after %d", got.Get("x-ordergate-fence"), last)
		}
		last = fence
		if key := got.Get("x-ordergate-key"); key != "order:lock:5" {
			t.Errorf("key %q", key)
		}
		if v := got.Get("x-ordergate-verdict"); v != "acquired" {
			t.Errorf("verdict %q", v)
		}
		if owner := got.Get("x-ordergate-lease"); owner == "somebody:1" || strings.Count(owner, "-") != 4 {
			t.Errorf("lease %q", owner)
		}
	}
	for _, request := range []struct{ method, path, verdict string }{
		{"GET", "/orders/5", "maybe"},
		{"GET", "/elsewhere", ""},
		{"POST", "/elsewhere", ""},
		{"POST", "/orders?do=create&id=11", ""},
	} {
		s.must(request.method, request.path, "", forged...)
		got := b.seen()[len(b.seen())-1].Header
		for _, h := range []string{"key", "fence", "lease"} {
			if v := got.Values("x-ordergate-" + h); v != nil {
				t.Errorf("%s %s: the client's x-ordergate-%s %q arrived", request.method, request.path, h, v)
			}
		}
		if v := got.Get("x-ordergate-verdict"); v != request.verdict {
			t.Errorf("%s %s: verdict %q, want %q", request.method, request.path, v, request.verdict)
		}
	}
}

func TestInvalidIDs(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	for _, path := range []string{"/orders/042", "/orders/42;x=1", "/orders/+5", "/orders/5%20", "/orders/99999999999999999999"} {
		s.must("GET", path, "").want(t, 400, "invalid")
		s.must("POST", path+"/settle", "").want(t, 400, "invalid")
	}
	if n := len(b.seen()); n != 0 {
		t.Errorf("%d of them reached the backend", n)
	}
}

// TestBracesInIDs sends IDs of which a lock would make the key of another order's record, or
// keys that lie in several slots of a cluster.
func TestBracesInIDs(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: func(yaml string) string {
		return shortLease(yaml) + `
  - name: by-header
    match: {methods: [POST], path: /settle}
    id: {header: x-order-id, format: pattern, pattern: ".+"}
    settle: {lock: settlement}
`
	}})
	for _, id := range []string{"{1}", "1}", "{", "{1}:ordergate_holders"} {
		s.must("POST", "/settle", "", "x-order-id", id).want(t, 400, "invalid")
	}
	if n := b.arrived("/settle"); n != 0 {
		t.Errorf("%d of them reached the backend", n)
	}
	s.must("POST", "/settle", "", "x-order-id", "1:ordergate_holders").want(t, 200, "")
	s.wantGone("order:lock:*")
}

// TestObserveMode decides and counts, and changes nothing.
func TestObserveMode(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	observe := func(yaml string) string {
		return strings.ReplaceAll(shortLease(yaml), "\n    match:", "\n    mode: observe\n    match:")
	}
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: observe})
	s.must("GET", "/orders/77", "").want(t, 200, "")
	s.must("GET", "/orders/x", "").want(t, 200, "")
	done := s.inBackground(t.Context(), "/orders/5/settle?do=hang")
	bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders/5/settle") == 1 })
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
	s.must("POST", "/orders/05/settle", "").want(t, 200, "")
	for _, r := range b.seen() {
		if r.Header.Get("x-ordergate-fence") != "" {
			t.Error("an observed settlement carries a fence")
		}
	}
	b.goOn()
	<-done
	for _, line := range []string{
		`ordergate_decisions_total{action="lookup",mode="observe",rule="order-lookup",verdict="absent"}`,
		`ordergate_decisions_total{action="lookup",mode="observe",rule="order-lookup",verdict="invalid"}`,
		`ordergate_decisions_total{action="settle",mode="observe",rule="commission-settle",verdict="acquired"}`,
		`ordergate_decisions_total{action="settle",mode="observe",rule="commission-settle",verdict="busy"}`,
		`ordergate_decisions_total{action="lookup",mode="observe",rule="commission-settle",verdict="invalid"}`,
		`ordergate_refused_total{reason="malformed_id",rule="commission-settle"}`,
		`ordergate_refused_total{reason="malformed_id",rule="order-lookup"}`,
	} {
		if n := s.metric(line); n != "1" {
			t.Errorf("%s is %s, want 1", line, n)
		}
	}
	if n := s.redis.Exists(t.Context(), "order:lock:5").Val(); n != 0 {
		t.Error("an observed settlement took the lock that others rely on")
	}
}
