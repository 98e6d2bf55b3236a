package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const creates = `  - {name: create, match: {methods: [POST], path: /orders}, id: {format: digits}, create: {filter: orders, learn: {response_json: id}}}
`

// setsBed is a set in Redis that is filled from a table of 1,000 rows.
func setsBed(t *testing.T) (table *orderTable, start func(change ...string) *tableGate, certain func(g *tableGate, ids ...int)) {
	bed := bedtest.New(t)
	table = mariaTable(t, bed, 1000)
	redis := bed.Redis()
	start = func(change ...string) *tableGate {
		t.Helper()
		config := table.config(redis.Addr(), tableSettings{member: "one", kind: "redis-bitmap"}) + creates
		config = strings.NewReplacer(append(change, `proc: ""`, "proc: 127.0.0.1:0")...).Replace(config)
		process, err := bed.GateUnready(t.Context(), bed.Build("./cmd/sidecar", false), config, "ORDERS_DSN="+table.dsn)
		must(t, err)
		return asTableGate(t, bed, process)
	}
	certain = func(g *tableGate, ids ...int) {
		t.Helper()
		bedtest.Eventually(t, "an order that does not exist is absent", func() bool {
			for _, id := range ids {
				if g.answer(id) == "absent" {
					t.Fatalf("order %d is absent", id)
				}
			}
			return g.answer(9999) == "absent"
		})
	}
	return table, start, certain
}

// TestKilledAlone kills the only ordergate, when an order was created through it that it has
// told nobody of. The next one finds that its lease is over.
func TestKilledAlone(t *testing.T) {
	t.Parallel()
	table, start, certain := setsBed(t)
	change := []string{"sources: [orders-db]", "sources: [orders-db], change_log: {lease: 200ms}"}
	gate := start(change...)
	certain(gate, 1000)
	gate.Kill()
	table.insert(2000)
	<-time.After(2 * time.Second)
	gate = start(change...)
	certain(gate, 1000, 2000)
}

// TestSetBefore goes back to the set in Redis that was used before.
func TestSetBefore(t *testing.T) {
	t.Parallel()
	table, start, certain := setsBed(t)
	gate := start()
	certain(gate, 1000)
	must(t, gate.Stop())
	table.insert(2000)
	change := []string{"kind: redis-bitmap", "kind: redis-bitmap, key_prefix: next"}
	gate = start(change...)
	certain(gate, 1000, 2000)
	must(t, gate.Stop())
	gate = start()
	certain(gate, 1000, 2000)
}

// TestFileOfASet has a file change that a set in Redis was filled from. The next start reads it into
// the set: it may be that Redis has lost its load.
func TestFileOfASet(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	path, redis := idFile(t, 100), bed.Redis()
	config := fmt.Sprintf(`
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
redis: {addresses: [%s], member: one}
filters: {orders: {kind: redis-bitmap, capacity: 1000, sources: [seed]}}
sources: {seed: {kind: csv, path: %s}}
rules: [{name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}]
`, redis.Addr(), path)
	start := func() *tableGate {
		g := asTableGate(t, bed, bed.Gate(bed.Build("./cmd/sidecar", false), config))
		g.becomes(9999, "absent")
		g.becomes(100, "maybe")
		return g
	}
	gate := start()
	must(t, gate.Stop())
	must(t, os.Rename(idFile(t, 200), path))
	gate = start()
	gate.becomes(200, "maybe")
}
