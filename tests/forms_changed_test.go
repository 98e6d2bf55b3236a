package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestFormsChanged starts an ordergate again with another form of IDs. What is in Redis was
// filled in the old one: no order is absent on account of that.
func TestFormsChanged(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	table := mariaTable(t, bed, 0)
	table.exec("CREATE TABLE texts (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(36) NOT NULL)")
	table.exec("INSERT INTO texts (id) VALUES ('" + textID(1) + "')")
	seed := filepath.Join(t.TempDir(), "seed.csv")
	must(t, os.WriteFile(seed, []byte(textID(1)+"\n"), 0o600))
	server := bed.Redis(bed.RedisBloomArgs()...).Addr()
	const config = `
listen: {authz: 127.0.0.1:0, proc: "", admin: 127.0.0.1:0}
redis: {addresses: [%s], member: one}
filters:
  %s: {kind: %s, capacity: 10_000, sources: [%s]}
sources:
  seed: {kind: csv, path: %s}
  table: {kind: mysql, dsn_env: ORDERS_DSN, table: texts, id_column: id, cursor_column: n, overlap: 1s}
rules:
  - {name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: %s}, lookup: {filter: %[2]s}}
`
	for _, kind := range []string{"redis-bitmap", "redis-bloom", "redisson", "layered"} {
		for _, source := range []string{"seed", "table"} {
			t.Run(kind+" from "+source, func(t *testing.T) {
				t.Parallel()
				name := kind + "-" + source
				start := func(format string) *tableGate {
					gate, err := bed.GateUnready(t.Context(), bed.Build("./cmd/sidecar", false), fmt.Sprintf(config, server, name, kind, source, seed, format), "ORDERS_DSN="+table.dsn)
					must(t, err)
					return asTableGate(t, bed, gate)
				}
				answer := func(g *tableGate, id string) string {
					var r struct{ Answer string }
					g.get("/filters/"+name+"/contains?id="+id, &r)
					return r.Answer
				}
				for _, change := range []struct{ format, id, unknown string }{
					{textPattern, textID(1), textID(2)},
					{"uuid", strings.ToLower(textID(1)), strings.ToLower(textID(2))},
					{textPattern, textID(1), textID(2)},
				} {
					gate := start(change.format)
					bedtest.Eventually(t, "an order that does not exist is absent", func() bool {
						if answer(gate, change.id) == "absent" {
							t.Fatalf("an order is absent with the format %s", change.format)
						}
						return answer(gate, change.unknown) == "absent"
					})
					must(t, gate.Stop())
				}
			})
		}
	}
}
