package tests

import (
	"fmt"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestCreatedAfterKill kills an ordergate under a create. The backend commits that when the
// doubt about the kill has been cleared: all have read the table by then, and find the order
// when they read it once more.
func TestCreatedAfterKill(t *testing.T) {
	needsSidecar(t, "the module ends with its Envoy, which the client sees")
	t.Parallel()
	for _, kind := range []string{"local", "redis-bitmap"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t)
			table := mariaTable(t, bedtest.New(t), 10)
			at := func(member string) settings {
				return settings{backend: b.addr(), orders: 10, gate: both(table.fromTable(), edit(t,
					"overlap: 1s", "overlap: 10s", "redis:\n", "redis:\n  member: "+member+"\n",
					"    capacity: 1_000_000", fmt.Sprintf("    kind: %s\n    capacity: 1_000_000", kind)))}
			}
			one := newStack(t, at("one"))
			other := one.second(at("other"))
			certain := func(all ...*stack) {
				t.Helper()
				for _, s := range all {
					bedtest.Eventually(t, "the filter is certain", s.certainlyAbsent)
				}
			}
			certain(one, other)
			done := one.inBackground(t.Context(), "/orders?first=hangs")
			bedtest.Eventually(t, "the backend has it", func() bool { return b.arrived("/orders") == 1 })
			one.gate.Kill()
			<-done
			one = one.second(at("one"))
			certain(one, other)
			if doubts := other.metric(`ordergate_filter_doubts_total{filter="orders",kind="crash"}`); doubts != "1" {
				t.Fatalf("%s doubts about the kill", doubts)
			}
			table.insert(3000)
			for _, s := range []*stack{one, other} {
				bedtest.Eventually(t, "the order is found", func() bool { return s.must("GET", "/orders/3000", "").status == 200 })
			}
			certain(one, other)
		})
	}
}
