package loader

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/presence"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestReconcileForms compares a table of UUIDs in upper case with a filter that rules ask
// for them in lower case.
func TestReconcileForms(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server, maria := bed.Redis(), bed.MariaDB()
	db, err := sql.Open("mysql", maria.DSN())
	bedtest.Check(t, err)
	t.Cleanup(func() { bedtest.Check(t, db.Close()) })
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		bedtest.Check(t, err)
	}
	id := func(n int) string { return fmt.Sprintf("ABCDEF00-0000-4000-8000-%012d", n) }
	exec("CREATE TABLE orders (n BIGINT AUTO_INCREMENT PRIMARY KEY, id CHAR(36) NOT NULL)")
	exec("INSERT INTO orders (id) VALUES ('" + id(1) + "'), ('" + id(2) + "')")
	file := writeConfig(t, `
listen: {authz: 127.0.0.1:0, proc: "", admin: ""}
redis: {addresses: [`+server.Addr()+`]}
filters:
  orders: {capacity: 1000, sources: [table], reconcile: {}}
sources:
  table: {kind: mysql, dsn_env: DSN, table: orders, id_column: id, cursor_column: n, overlap: 1s}
rules:
  - {name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: uuid}, lookup: {filter: orders}}
`)
	c, err := config.Load(file, func(name string) string { return map[string]string{"DSN": maria.DSN()}[name] })
	bedtest.Check(t, err)
	m, err := build(t.Context(), c, slog.New(slog.NewTextHandler(t.Output(), nil)))
	bedtest.Check(t, err)
	t.Cleanup(m.Close)
	loader := m.filters["orders"]
	bedtest.Eventually(t, "the filter is certain", func() bool { return loader.filter.IsAbsent(t.Context(), id(3)) })

	compare := func(missing uint64) {
		t.Helper()
		_, err := loader.reconcile.compare(t.Context(), loader.reconcile.tables[0], source.Position{}, 0)
		bedtest.Check(t, err)
		if got := loader.reconcile.missing.Load(); got != missing {
			t.Errorf("%d orders were missing, want %d", got, missing)
		}
	}
	compare(0)
	exec("INSERT INTO orders (id) VALUES ('" + id(3) + "')")
	compare(1)
	if a := loader.filter.MayContain(strings.ToLower(id(3))); a != presence.Maybe {
		t.Errorf("an order that was missing is %v", a)
	}
}
