package logical

import (
	"testing"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// withTenants returns the bed with a table whose IDs have two parts.
func (b *bed) withTenants(table string) *bed {
	b.t.Helper()
	other := *b
	other.table = table
	other.exec("CREATE TABLE orders (note TEXT, order_no INT, tenant VARCHAR(20), shop CHAR(6), PRIMARY KEY (tenant, shop, order_no))")
	return &other
}

func (b *bed) tenantOptions() Options {
	opts := b.options()
	opts.IDColumn, opts.PartColumns = "order_no", []string{"tenant", "shop"}
	return opts
}

// TestComposedIDs follows IDs with parts: rows that were inserted, and rows of which the ID or a
// part changed.
func TestComposedIDs(t *testing.T) {
	b := startServer(t).withTenants("tenants")
	var bad []string
	opts := b.tenantOptions()
	opts.OnBadRow = func(reason string) { bad = append(bad, reason) }
	f := start(t, opts, "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO orders VALUES ('x', 1, 'acme', 's1'), ('x', 1, 'bolt', 's1')")
	f.Want("acme/s1/1", "bolt/s1/1")
	b.exec("UPDATE orders SET note = 'y'") // no ID has changed
	b.exec("UPDATE orders SET tenant = 'cord' WHERE tenant = 'bolt'", "UPDATE orders SET order_no = 2, note = 'z' WHERE tenant = 'cord'")
	f.Want("acme/s1/1", "bolt/s1/1", "cord/s1/1", "cord/s1/2")
	b.exec("INSERT INTO orders VALUES ('x', 3, 'a/b', 's1'), ('x', 4, '', 's1'), ('x', 5, 'dart', 's2')")
	f.Want("acme/s1/1", "bolt/s1/1", "cord/s1/1", "cord/s1/2", "dart/s2/5")
	last := f.Stop()
	if len(bad) != 2 {
		t.Errorf("bad rows: %q", bad)
	}
	b.waitSlotFree()
	// A checkpoint of other parts is none.
	opts.PartColumns = []string{"shop", "tenant"}
	start(t, opts, last).WantError(follow.ErrUnsure, "")
}

// TestComposedIDsOfAWholeRow has a table whose key lacks a part, and whose log has whole rows.
func TestComposedIDsOfAWholeRow(t *testing.T) {
	b := startServer(t).withTenants("tenants")
	b.exec("ALTER TABLE orders DROP CONSTRAINT tenants_pkey", "ALTER TABLE orders REPLICA IDENTITY FULL")
	f := start(t, b.tenantOptions(), "")
	f.WaitCaughtUp()
	b.exec("INSERT INTO orders VALUES ('x', 1, 'acme', 's1'), (repeat('x', 100000), 1, 'bolt', 's1')", "UPDATE orders SET order_no = order_no + 1", "UPDATE orders SET note = note || 'y'")
	b.exec("INSERT INTO orders VALUES ('x', 9, 'cord', 's1')")
	f.Want("acme/s1/1", "bolt/s1/1", "acme/s1/2", "bolt/s1/2", "cord/s1/9")
}

// TestComposedIDsAreRefused has columns that are not there, or not in the publication.
func TestComposedIDsAreRefused(t *testing.T) {
	b := startServer(t).withTenants("tenants")
	opts := b.tenantOptions()
	opts.PartColumns = []string{"merchant"}
	start(t, opts, "").WantError(nil, "the table has no column merchant")
	b.exec("CREATE PUBLICATION partial FOR TABLE orders (tenant, order_no, note) WITH (publish = 'insert')")
	opts = b.tenantOptions()
	opts.Publication = "partial"
	start(t, opts, "").WantError(nil, "leaves out rows, or the column tenant or shop or order_no")
}
