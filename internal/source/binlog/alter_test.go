package binlog

import (
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// TestAltered changes the table while it is followed. The log names no columns, or
// does.
func TestAltered(t *testing.T) {
	server := startServer(t)
	for _, metadata := range []string{"NO_LOG", "MINIMAL", "FULL"} {
		t.Run(metadata, func(t *testing.T) {
			b := server.with("with_" + metadata)
			b.exec("SET GLOBAL binlog_row_metadata = " + metadata)
			f := start(t, b.options(), "")
			f.Fresh()
			b.exec("INSERT INTO orders (id, note) VALUES ('a', 'no ID')")
			b.exec("ALTER TABLE orders ADD COLUMN first VARCHAR(40) DEFAULT 'no ID' FIRST")
			b.exec("INSERT INTO orders (id) VALUES ('b')")
			f.Fresh()
			b.exec("ALTER TABLE orders MODIFY COLUMN note VARCHAR(40) FIRST, MODIFY COLUMN id VARCHAR(40) AFTER n")
			b.exec("INSERT INTO orders (id, note) VALUES ('c', 'no ID')")
			f.Fresh()
			b.exec("ALTER TABLE orders MODIFY COLUMN id VARCHAR(40) FIRST")
			b.exec("INSERT INTO orders (id, note) VALUES ('d', 'no ID')")
			f.Fresh()
			b.exec("ALTER TABLE orders DROP COLUMN note, RENAME COLUMN first TO last")
			b.exec("INSERT INTO orders (id) VALUES ('e')")
			f.Fresh()
			b.exec("DROP TABLE orders")
			f.Fresh()
			b.exec("CREATE TABLE orders (x INT, id BIGINT UNSIGNED)")
			b.exec("INSERT INTO orders VALUES (1, 18446744073709551615)")
			b.exec("INSERT INTO orders VALUES (1, 42)")
			f.Want("a", "b", "c", "d", "e", "18446744073709551615", "42")
		})
	}
}

// TestAlteredUnseen changes the table while nobody follows. What the columns were is
// known only if the log says so.
func TestAlteredUnseen(t *testing.T) {
	server := startServer(t)
	const swap = "ALTER TABLE orders MODIFY COLUMN extra VARCHAR(40) AFTER n"
	for _, test := range []struct {
		name, metadata string
		changes        []string
		want           []string // IDs; nil: it cannot be known
	}{
		{"before any row", "NO_LOG", []string{swap, "INSERT INTO orders (id, extra) VALUES ('b', 'no ID')"}, []string{"b"}},
		{"after a row", "NO_LOG", []string{"INSERT INTO orders (id, extra) VALUES ('b', 'no ID')", swap}, nil},
		{"between rows", "MINIMAL", []string{"INSERT INTO orders (id, extra) VALUES ('b', 'no ID')", swap, "INSERT INTO orders (id, extra) VALUES ('c', 'no ID')"}, nil},
		{"between rows, with names", "FULL", []string{"INSERT INTO orders (id, extra) VALUES ('b', 'no ID')", swap, "INSERT INTO orders (id, extra) VALUES ('c', 'no ID')"}, []string{"b", "c"}},
		{"more columns", "NO_LOG", []string{"INSERT INTO orders (id) VALUES ('b')", "ALTER TABLE orders ADD COLUMN x INT"}, nil},
		{"twice", "NO_LOG", []string{swap, "INSERT INTO orders (id, extra) VALUES ('b', 'no ID')", "ALTER TABLE orders ADD COLUMN x INT FIRST"}, nil},
		{"another table", "NO_LOG", []string{"INSERT INTO orders (id) VALUES ('b')", "CREATE TABLE orders_old LIKE orders", "ALTER TABLE orders_old ADD COLUMN x INT"}, []string{"b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := server.with(strings.Map(underscore, test.name))
			b.exec("SET GLOBAL binlog_row_metadata = " + test.metadata)
			b.exec("ALTER TABLE orders ADD COLUMN extra VARCHAR(40)")
			place := b.here()
			for _, change := range test.changes {
				b.exec(change)
			}
			f := start(t, b.options(), place)
			if test.want == nil {
				f.WantError(follow.ErrUnsure, "binlog_row_metadata=FULL", b.Config().Passwd)
				return
			}
			f.Want(test.want...)
		})
	}
}

// underscore makes text a name.
func underscore(r rune) rune {
	if r < 'a' || r > 'z' {
		return '_'
	}
	return r
}

// TestHidden brings rows into the table in ways that the log does not show.
func TestHidden(t *testing.T) {
	server := startServer(t)
	server.db.SetMaxOpenConns(1) // one session
	for name, changes := range map[string][]string{
		"statement":       {"SET SESSION binlog_format = STATEMENT", "INSERT INTO orders (id) VALUES ('a')"},
		"statement, load": {"SET SESSION binlog_format = STATEMENT", "UPDATE orders SET id = CONCAT(id, '-') WHERE n > 0"},
		"renamed":         {"CREATE TABLE orders_2 (n INT, id VARCHAR(40), note TEXT)", "RENAME TABLE orders TO orders_1, orders_2 TO orders"},
		"altered":         {"ALTER TABLE orders RENAME TO orders_1"},
		"exchanged": {
			"CREATE TABLE orders_p (n INT PRIMARY KEY, id VARCHAR(40), note TEXT)", "INSERT INTO orders_p VALUES (1, 'unseen', '')",
			"CREATE OR REPLACE TABLE orders (n INT PRIMARY KEY, id VARCHAR(40), note TEXT) PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (100))",
			"ALTER TABLE orders EXCHANGE PARTITION p0 WITH TABLE orders_p",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := server.with(strings.Map(underscore, name))
			b.exec("SET SESSION binlog_format = ROW")
			f := start(t, b.options(), "")
			f.Fresh()
			for _, change := range changes {
				b.exec(change)
			}
			f.WantError(follow.ErrUnsure, "a statement brought rows into the table", b.Config().Passwd)
		})
	}
}

// TestOthersStatements are no reason for doubt.
func TestOthersStatements(t *testing.T) {
	b := startServer(t)
	b.db.SetMaxOpenConns(1) // one session
	f := start(t, b.options(), "")
	f.Fresh()
	b.exec("CREATE TABLE checksums (id VARCHAR(40), n BIGINT)")
	b.exec("CREATE TABLE more (id VARCHAR(40))")
	b.exec("RENAME TABLE more TO less")
	b.exec("CREATE DATABASE shop")
	b.exec("CREATE TABLE shop.orders (id VARCHAR(40))")
	b.exec("CREATE INDEX i ON orders (id)")
	b.exec("ALTER TABLE orders RENAME INDEX i TO j")
	b.exec("SET SESSION binlog_format = STATEMENT")
	b.exec("INSERT INTO less VALUES ('x')")
	b.exec("REPLACE INTO checksums SELECT 'x', COUNT(*) FROM orders")
	b.exec("DELETE FROM orders WHERE id = 'orders'")
	b.exec("TRUNCATE orders")
	b.exec("SET SESSION binlog_format = ROW")
	b.exec("INSERT INTO shop.orders VALUES ('elsewhere')")
	b.exec("START TRANSACTION")
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	b.exec("SAVEPOINT s")
	b.exec("INSERT INTO orders (id) VALUES ('rolled back')")
	b.exec("ROLLBACK TO s")
	b.exec("INSERT INTO orders (id) VALUES ('b')")
	b.exec("COMMIT")
	b.exec("XA START 'x'")
	b.exec("INSERT INTO orders (id) VALUES ('c')")
	b.exec("XA END 'x'")
	b.exec("XA PREPARE 'x'")
	b.exec("XA COMMIT 'x'")
	b.exec("CREATE TABLE m (id VARCHAR(40)) ENGINE=MyISAM")
	b.exec("INSERT INTO m VALUES ('d')")
	b.exec("INSERT INTO orders (id) SELECT id FROM m")
	f.Want("a", "b", "c", "d")
}
