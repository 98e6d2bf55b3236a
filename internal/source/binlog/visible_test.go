package binlog

import (
	"context"
	"sync"
	"testing"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// count returns the number of visible rows.
func (b *bed) count() (n int) {
	b.t.Helper()
	if err := b.db.QueryRowContext(b.t.Context(), "SELECT COUNT(*) FROM orders").Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// TestSemiSync has a row in the log that is not visible yet: its commit waits for a replica. Either
// the caller finds it in the table after the first checkpoint, or it is emitted.
func TestSemiSync(t *testing.T) {
	t.Parallel()
	b := startServer(t)
	for _, set := range []string{"timeout = 3600000", "wait_point = AFTER_SYNC", "wait_no_slave = ON", "enabled = ON"} {
		b.exec("SET GLOBAL rpl_semi_sync_master_" + set)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer b.exec("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
	wg.Go(func() {
		if _, err := b.db.ExecContext(context.WithoutCancel(t.Context()), "INSERT INTO orders (id) VALUES ('a')"); err != nil {
			t.Error(err)
		}
	})
	bedtest.Eventually(t, "the row waits", func() bool {
		var n int
		err := b.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for semi-sync%'").Scan(&n)
		return err == nil && n > 0
	})
	f := start(t, b.options(), "")
	bedtest.Eventually(t, "the first checkpoint", func() bool { return f.Last() != "" })
	if n := b.count(); n != 0 {
		t.Fatalf("%d rows are visible", n)
	}
	b.exec("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
	f.Want("a")
}

// TestPreparedBefore has an XA transaction that is prepared before the first checkpoint, and
// committed after it.
func TestPreparedBefore(t *testing.T) {
	t.Parallel()
	b := startServer(t)
	conn, err := b.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	do := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	prepare := func(xid string) {
		t.Helper()
		for _, statement := range []string{"XA START " + xid, "INSERT INTO orders (id) VALUES (" + xid[:3] + ")", "XA END " + xid, "XA PREPARE " + xid} {
			do(statement)
		}
	}
	b.exec("CREATE USER gate@'127.0.0.1' IDENTIFIED BY 'geheim'")
	b.exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO gate@'127.0.0.1'")
	b.exec("GRANT SELECT (id) ON orders.orders TO gate@'127.0.0.1'")
	opts := b.options()
	opts.DSN, opts.Table = "gate:geheim@tcp("+b.Addr()+")/", "orders.orders"
	prepare("'a','Z'")
	f := start(t, opts, "")
	f.WaitCaughtUp()
	first := f.Last()
	do("XA COMMIT 'a','Z'")
	f.WantError(follow.ErrUnsure, "prepared before the table was followed")
	start(t, opts, first).WantError(follow.ErrUnsure, "prepared before the table was followed")

	f = start(t, opts, "")
	f.WaitCaughtUp()
	prepare("'b','Z'")
	do("XA COMMIT 'b','Z'")
	f.Want("b")
}
