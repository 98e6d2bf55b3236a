package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestMovedTable has an ordergate start again, with the same configuration and all that
// was kept, when its data source name leads to another database: a table of the same
// name, with other orders. None of those is absent, at any moment.
func TestMovedTable(t *testing.T) {
	t.Parallel()
	database := func(t *testing.T, bed *bedtest.Bed) (before, after *orderTable) {
		before = mariaTable(t, bed, 1000)
		before.exec("CREATE DATABASE other")
		before.exec("CREATE TABLE other.orders LIKE orders.orders")
		before.exec("ALTER TABLE other.orders MODIFY id BIGINT") // clients choose it
		before.exec("INSERT INTO other.orders SELECT id + 2000, what FROM orders.orders")
		moved := *before
		moved.dsn = bedtest.Replace(before.dsn, ")/orders", ")/other")
		return before, &moved
	}
	server := func(t *testing.T, bed *bedtest.Bed) (before, after *orderTable) {
		before, after = postgresTable(t, bed, 1000), postgresTable(t, bed, 0)
		after.exec("INSERT INTO orders SELECT n + 2000, 'x' FROM generate_series(1, 1000) n")
		return before, after
	}
	for _, tc := range []struct {
		name     string
		tables   func(*testing.T, *bedtest.Bed) (before, after *orderTable)
		settings tableSettings
		says     string // at the third start, though nobody reads the table then
	}{
		{"snapshot in a file, another database", database, tableSettings{filter: ", share_load: false, snapshot: {path: %q}"}, "set ascending: true"},
		{"set in Redis, another server", server, tableSettings{kind: "redis-bitmap", source: ", follow: poll, every: 100ms"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			redis := bed.Redis()
			before, after := tc.tables(t, bed)
			s := tc.settings
			s.member = "one"
			if strings.Contains(s.filter, "%q") {
				s.filter = fmt.Sprintf(s.filter, filepath.Join(t.TempDir(), "orders.snap"))
			}
			gate := before.gate(bed, redis.Addr(), s)
			gate.becomes(5000, "absent")
			if got := gate.answer(1000); got != "maybe" {
				t.Errorf("a row that was there: %s", got)
			}
			must(t, gate.Stop())
			s.unready = true
			gate = after.gate(bed, redis.Addr(), s)
			bedtest.Eventually(t, "an order that does not exist is absent", func() bool {
				for _, id := range []int{2001, 2500, 3000} {
					if got := gate.answer(id); got == "absent" {
						t.Fatalf("order %d of the other table is absent", id)
					}
				}
				return gate.answer(5000) == "absent"
			})
			for _, id := range []int{2001, 2500, 3000} {
				if got := gate.answer(id); got != "maybe" {
					t.Errorf("order %d of the other table: %s", id, got)
				}
			}
			must(t, gate.Stop())
			gate = after.gate(bed, redis.Addr(), s)
			gate.becomes(5000, "absent")
			if gate.said("lacks what was loaded from a source") {
				t.Error("it was read again as a whole at each start")
			}
			bedtest.Eventually(t, "what is wrong with the table is told", func() bool { return gate.said(tc.says) })
		})
	}
}

// TestTableBecomesASource has a set in Redis that was filled before one of the tables was
// a source of it.
func TestTableBecomesASource(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	redis := bed.Redis()
	table := mariaTable(t, bed, 1000)
	s := tableSettings{member: "one", kind: "redis-bitmap"}
	gate := table.gate(bed, redis.Addr(), s)
	gate.becomes(5000, "absent")
	must(t, gate.Stop())
	table.exec("CREATE TABLE more LIKE orders")
	table.exec("INSERT INTO more SELECT id + 2000, what FROM orders")
	const source = "  orders-db: {kind: mysql, dsn_env: ORDERS_DSN, table: "
	config := bedtest.Replace(table.config(redis.Addr(), s), "[orders-db]", "[orders-db, more-db]")
	config = bedtest.Replace(config, source, bedtest.Replace(source, "orders-db", "more-db")+"more, id_column: id}\n"+source)
	process, err := bed.GateUnready(t.Context(), bed.Build("./cmd/sidecar", false), config, "ORDERS_DSN="+table.dsn)
	must(t, err)
	gate = asTableGate(t, bed, process)
	bedtest.Eventually(t, "an order that does not exist is absent", func() bool {
		if got := gate.answer(2500); got == "absent" {
			t.Fatal("an order of the new table is absent")
		}
		return gate.answer(5000) == "absent"
	})
	if a, b := gate.answer(2001), gate.answer(1000); a != "maybe" || b != "maybe" {
		t.Errorf("%s and %s", a, b)
	}
}
