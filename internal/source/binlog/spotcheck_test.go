package binlog

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

// startImpatient follows, and looks up nearly every ID, and takes it for missing after 100 ms.
func startImpatient(t *testing.T, opts Options) *followtest.Run {
	t.Helper()
	f, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	f.spotEvery, f.spotPatience = time.Millisecond, 100*time.Millisecond
	return followtest.Start(t, f, "")
}

// TestWrongIDs has IDs in the log that the table does not have, as a decoder would yield that reads
// the rows wrongly.
func TestWrongIDs(t *testing.T) {
	server := startServer(t)
	server.exec("CREATE USER gate@'127.0.0.1' IDENTIFIED BY 'geheim'")
	server.exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO gate@'127.0.0.1'")
	for name, column := range map[string]string{"t_text": "VARCHAR(40)", "t_integer": "BIGINT UNSIGNED", "t_decimal": "DECIMAL(20,0)"} {
		t.Run(name, func(t *testing.T) {
			b := server.withTable(name)
			b.exec("CREATE OR REPLACE TABLE orders (id " + column + " PRIMARY KEY, note TEXT)")
			b.exec("GRANT SELECT (id) ON orders TO gate@'127.0.0.1'")
			var mu sync.Mutex
			var reasons []string
			opts := b.options()
			opts.DSN = "gate:geheim@tcp(" + b.Addr() + ")/orders"
			opts.OnBusy = func(err error) {
				mu.Lock()
				defer mu.Unlock()
				reasons = append(reasons, err.Error())
			}
			f := startImpatient(t, opts)
			f.WaitCaughtUp()
			conn, err := b.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			insert := func(id int) {
				// Together, or the check may find the ID.
				for _, s := range []string{"LOCK TABLES " + b.table + " WRITE", "INSERT INTO " + b.table + fmt.Sprintf(" (id) VALUES (%d)", id),
					"SET sql_log_bin = 0", "UPDATE " + b.table + " SET id = id + 1000", "SET sql_log_bin = 1", "UNLOCK TABLES"} {
					if _, err := conn.ExecContext(t.Context(), s); err != nil {
						t.Fatal(s, err)
					}
				}
			}
			insert(1)
			bedtest.Eventually(t, "the check has a reason", func() bool { mu.Lock(); defer mu.Unlock(); return len(reasons) > 0 })
			wrong := time.Now()
			n := 1
			bedtest.Eventually(t, "it ends", func() bool { n++; insert(n); return f.Ended() })
			f.WantError(follow.ErrWrong, "of the last 3 that were looked up: column id", b.Config().Passwd)
			if f.CaughtUpSince(wrong) {
				t.Error("it was caught up although no ID of the log is in the table")
			}
		})
	}
}

// TestRowsThatGoAtOnce deletes and updates rows as soon as they are inserted, or never commits them.
func TestRowsThatGoAtOnce(t *testing.T) {
	b := startServer(t)
	b.db.SetMaxOpenConns(1) // one session
	b.exec("CREATE OR REPLACE TABLE orders (id BIGINT PRIMARY KEY)")
	f := startImpatient(t, b.options())
	const insert = "INSERT INTO orders VALUES (UUID_SHORT())"
	for _, changes := range [][]string{
		{insert, "DELETE FROM orders"},
		{insert, "UPDATE orders SET id = -id"},
		{insert, "TRUNCATE orders"},
		{insert, "REPLACE INTO orders VALUES (1)", "DELETE FROM orders"},
		{"XA START 'x'", insert, "XA END 'x'", "XA PREPARE 'x'", "XA ROLLBACK 'x'"},
	} {
		for range spotMissing + 1 {
			for _, change := range changes {
				b.exec(change)
			}
			f.WaitCaughtUp()
			since := time.Now()
			bedtest.Eventually(t, "an ID would be missing", func() bool { return time.Since(since) > 120*time.Millisecond })
		}
	}
	// The log does not show what the cascade of a foreign key deletes.
	unlogged := func() {
		for _, change := range []string{insert, "SET sql_log_bin = 0", "DELETE FROM orders", "SET sql_log_bin = 1"} {
			b.exec(change)
		}
	}
	unlogged()
	b.exec("INSERT INTO orders VALUES (2)")
	f.WaitCaughtUp()
	unlogged()
	f.WaitCaughtUp()
}

// TestSpotCheckFindsIDs looks up IDs of all types, with connections in another character set.
func TestSpotCheckFindsIDs(t *testing.T) {
	b := startServer(t)
	for _, typ := range types {
		b.exec("CREATE OR REPLACE TABLE orders (id " + typ.column + " PRIMARY KEY)")
		b.exec("INSERT INTO orders VALUES (" + strings.Join(typ.values, "), (") + ")")
		opts := b.options()
		opts.DSN += "?charset=latin1"
		f, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		client, err := f.newSpotClient()
		if err != nil {
			t.Fatal(err)
		}
		defer client.close()
		s, err := client.describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		l, err := client.describeTable(t.Context(), f.table, []string{"id"}, s)
		if err != nil || !l.indexed {
			t.Fatal(typ.column, l.indexed, err)
		}
		rows, err := b.db.QueryContext(t.Context(), "SELECT id FROM orders")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if found, err := client.has(t.Context(), &l, s, []string{id}); err != nil || !found {
				t.Errorf("%s: %q is found: %v, %v", typ.column, id, found, err)
			}
		}
		if found, err := client.has(t.Context(), &l, s, []string{"99"}); err != nil || found {
			t.Errorf("%s: 99 is found: %v, %v", typ.column, found, err)
		}
	}
}
