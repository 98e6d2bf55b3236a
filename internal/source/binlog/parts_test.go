package binlog

import (
	"testing"
)

// TestParts follows IDs with parts: rows that were inserted, and rows of which the ID or a part
// changed.
func TestParts(t *testing.T) {
	b := startServer(t)
	b.exec("DROP TABLE orders")
	b.exec("CREATE TABLE orders (note TEXT, order_no INT UNSIGNED NOT NULL, tenant VARCHAR(20), shop SMALLINT NOT NULL, PRIMARY KEY (order_no, shop))")
	var bad []string
	opts := b.options()
	opts.IDColumn, opts.PartColumns = "order_no", []string{"tenant", "SHOP"}
	opts.OnBadRow = func(reason string) { bad = append(bad, reason) }
	f := start(t, opts, "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO orders VALUES ('x', 1, 'acme', 1), ('x', 1, 'bolt', -2), ('x', 4000000000, 'acme', 1)")
	f.Want("acme/1/1", "bolt/-2/1", "acme/1/4000000000")
	b.exec("UPDATE orders SET note = 'y'") // no ID has changed
	b.exec("UPDATE orders SET tenant = 'cord' WHERE tenant = 'bolt'")
	b.exec("UPDATE orders SET order_no = 2 WHERE tenant = 'cord'")
	f.Want("acme/1/1", "bolt/-2/1", "acme/1/4000000000", "cord/-2/1", "cord/-2/2")
	b.exec("INSERT INTO orders VALUES ('x', 5, NULL, 1), ('x', 6, 'a/b', 1), ('x', 7, '', 1)")
	b.exec("DELETE FROM orders WHERE order_no = 1")
	// A row in the log may have only the key and the columns that were changed.
	b.exec("SET GLOBAL binlog_row_image = MINIMAL")
	b.db.SetMaxIdleConns(0) // a session keeps the setting that it began with
	b.exec("INSERT INTO orders VALUES ('x', 8, 'dart', 3)")
	b.exec("UPDATE orders SET order_no = 9 WHERE tenant = 'dart'") // the part is not in the log
	b.exec("UPDATE orders SET note = 'z'")
	b.exec("INSERT INTO orders VALUES ('x', 10, 'echo', 3)")
	f.Want("acme/1/1", "bolt/-2/1", "acme/1/4000000000", "cord/-2/1", "cord/-2/2", "dart/3/8", "echo/3/10")
	f.Stop()
	if len(bad) != 4 {
		t.Errorf("bad rows: %q", bad)
	}
}

// TestPartsWithoutColumn has a part whose column is missing, or cannot be read.
func TestPartsWithoutColumn(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE TABLE odd (id INT, d DATETIME)")
	for column, want := range map[string]string{"tenant": "table orders.odd has no column tenant", "d": "IDs of type datetime cannot be read"} {
		opts := b.options()
		opts.Table, opts.PartColumns = "odd", []string{column}
		start(t, opts, "").WantError(nil, want)
	}
}
