package binlog

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

// startImpatient follows, and takes an ID for missing after 100 ms.
func startImpatient(t *testing.T, opts Options) *followtest.Run {
	t.Helper()
	f, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	f.spotPatience = 100 * time.Millisecond
	return followtest.Start(t, f, "")
}

// TestWrongIDs has IDs in the log that the table does not have, as a decoder would yield that reads
// the rows wrongly.
func TestWrongIDs(t *testing.T) {
	server := startServer(t)
	for name, column := range map[string]string{"t_text": "VARCHAR(40)", "t_integer": "BIGINT UNSIGNED", "t_decimal": "DECIMAL(20,0)"} {
		t.Run(name, func(t *testing.T) {
			b := server.withTable(name)
			b.exec("CREATE OR REPLACE TABLE orders (id " + column + " PRIMARY KEY)")
			var mu sync.Mutex
			var reasons []string
			opts := b.options()
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
				for _, s := range []string{"LOCK TABLES " + b.table + " WRITE", "INSERT INTO " + b.table + fmt.Sprintf(" VALUES (%d)", id),
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
			f.WantError(follow.ErrUnsure, "the table does not have the last 3 IDs", b.Config().Passwd)
			if f.CaughtUpSince(wrong) {
				t.Error("it was caught up although no ID of the log is in the table")
			}
		})
	}
}

// TestRowsThatGoAtOnce deletes and updates rows as soon as they are inserted.
func TestRowsThatGoAtOnce(t *testing.T) {
	b := startServer(t)
	b.exec("CREATE OR REPLACE TABLE orders (id BIGINT PRIMARY KEY)")
	f := startImpatient(t, b.options())
	began := time.Now()
	for _, change := range []string{"DELETE FROM orders", "UPDATE orders SET id = -id", "TRUNCATE orders", "REPLACE INTO orders VALUES (1)"} {
		for range 3 {
			b.exec("INSERT INTO orders VALUES (UUID_SHORT())")
			b.exec(change)
			f.WaitCaughtUp()
		}
	}
	bedtest.Eventually(t, "an ID would be missing", func() bool { return time.Since(began) > time.Second })
	f.WaitCaughtUp()
}
