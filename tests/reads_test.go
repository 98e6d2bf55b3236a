package tests

import (
	"strings"
	"testing"
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
	if *attachment == asSidecar {
		s.wantLogged("WARN", "the rule creates or settles by GET or HEAD", "create-by-link")
		s.wantLogged("WARN", "the rule creates or settles by GET or HEAD", "settle-by-link")
		s.wantLogged("WARN", "the rule stores the answers to GET or HEAD", "pay-by-link")
	}
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
