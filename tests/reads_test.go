package tests

import (
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestWritesByGet is an old service whose links create and settle orders. The example's Envoy
// leaves ext_proc out of reads, which has to be taken back then.
func TestWritesByGet(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: allThroughProc(t), gate: edit(t, "  - name: order-create\n", `  - name: create-by-link
    match: {methods: [GET], path: /new.php}
    create: {filter: orders, learn: {response_json: orderId}}
  - name: settle-by-link
    match: {methods: [GET, POST], path: /settle.php}
    id: {query: id}
    settle: {lock: settlement}
  - name: pay-by-link
    match: {methods: [GET], path: /pay.php}
    once: {by: [{header: x-user}]}
  - name: order-create
`)})
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	s.must("GET", "/new.php?do=create&id=77", "").want(t, 201, "")
	s.must("GET", "/orders/77", "").want(t, 200, "")
	s.must("GET", "/settle.php?id=5", "").want(t, 200, "")
	if key := b.last("key"); key != "order:lock:5" {
		t.Errorf("settled under the lock %q", key)
	}
	for _, verdict := range []string{"", "replayed"} {
		s.must("GET", "/pay.php", "", "x-user", "7").want(t, 200, verdict)
	}
}

// TestWritesPastExtProc leaves ext_proc out of links that settle and create: ordergate names that,
// is not ready, refuses settlements, and lets no order that was created be absent.
func TestWritesPastExtProc(t *testing.T) {
	t.Parallel()
	if *attachment == asModule {
		t.Skip("inside Envoy there is one filter")
	}
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: unhurried(t), gate: edit(t, "  - name: order-create\n", `  - name: create-by-link
    match: {methods: [GET], path: /new.php}
    create: {filter: orders, learn: {response_json: orderId}}
  - name: settle-by-link
    match: {methods: [GET, POST], path: /settle.php}
    id: {query: id}
    settle: {lock: settlement}
  - name: order-create
`)})
	s.must("POST", "/settle.php?id=6", "").want(t, 200, "") // by its route, it reaches ext_proc
	begin := time.Now()
	bedtest.Eventually(t, "a settlement is refused", func() bool {
		return s.must("GET", "/settle.php?id=5", "").verdict == "unavailable"
	})
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	s.wantLogged("ERROR", "none reaches ext_proc", "settle-by-link")
	if status, reasons := s.readiness(); status != 503 || !strings.Contains(reasons["ext_proc"], "none reaches it") {
		t.Errorf("readiness %d, %q", status, reasons)
	}
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	bedtest.Eventually(t, "an order that was created is not absent", func() bool {
		s.must("GET", "/new.php?do=create&id=77", "")
		return s.must("GET", "/orders/77", "").status == 200
	})
	s.must("POST", "/settle.php?id=6", "").want(t, 200, "")
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
}

// TestSwappedListeners has Envoy ask each of ordergate's gRPC services at the listener of the
// other.
func TestSwappedListeners(t *testing.T) {
	t.Parallel()
	if *attachment == asModule {
		t.Skip("inside Envoy there are no listeners")
	}
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: func(yaml string) string {
		return strings.NewReplacer("cluster_name: ordergate-authz", "cluster_name: ordergate-proc", "cluster_name: ordergate-proc", "cluster_name: ordergate-authz").Replace(yaml)
	}})
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
	if key := b.last("key"); key != "order:lock:5" {
		t.Errorf("settled under the lock %q", key)
	}
}

// allThroughProc takes the setting of the example's route of reads away.
func allThroughProc(t testing.TB) func(string) string {
	if *attachment == asModule {
		return nil
	}
	return both(unhurried(t), func(yaml string) string {
		before, after, found := strings.Cut(yaml, "                typed_per_filter_config:\n                  envoy.filters.http.ext_proc:\n")
		rest := strings.SplitN(after, "\n", 3) // its type, and that it is disabled
		if !found || !strings.Contains(rest[1], "disabled: true") {
			t.Fatal("the example does not leave ext_proc out of reads")
		}
		return before + rest[2]
	})
}
