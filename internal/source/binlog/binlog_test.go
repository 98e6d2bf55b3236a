package binlog

import (
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/source/follow"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
	"github.com/ordergate/ordergate/tests/testbed/followtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logArgs make MariaDB write the log that a follower needs.
var logArgs = []string{"--log-bin", "--binlog-format=ROW", "--server-id=7"}

// startServer starts a MariaDB with a table of orders.
func startServer(t *testing.T, args ...string) *bed {
	t.Helper()
	server := bedtest.New(t).MariaDB(append(logArgs, args...)...)
	db, err := sql.Open("mysql", server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return (&bed{t: t, MariaDB: server, db: db}).withTable("orders")
}

type bed struct {
	t *testing.T
	*testbed.MariaDB
	db    *sql.DB
	table string // what the tests' statements call orders
	since string // a time by its clock
}

// withTable returns the bed with a table of orders of that name, for another test.
func (b *bed) withTable(table string) *bed {
	b.t.Helper()
	other := *b
	other.table = table
	other.exec("CREATE TABLE orders (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARCHAR(40), note TEXT)")
	return &other
}

func (b *bed) exec(query string) {
	b.t.Helper()
	query = strings.ReplaceAll(query, "orders", b.table)
	if _, err := b.db.ExecContext(b.t.Context(), query); err != nil {
		b.t.Fatalf("%.200s: %v", query, err)
	}
}

// options are those of a follower of the table orders.
func (b *bed) options() Options {
	return Options{Options: follow.Options{
		DSN: b.DSN(), Table: b.table, IDColumn: "id", PollEvery: 20 * time.Millisecond, Advance: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(b.t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}}
}

// start follows from a checkpoint.
func start(t *testing.T, opts Options, from string) *followtest.Run {
	t.Helper()
	f, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return followtest.Start(t, f, from)
}

// collect collects the reasons of bad rows. They may be read when the run has ended.
func collect(opts *Options) *[]string {
	var bad []string
	opts.OnBadRow = func(reason string) { bad = append(bad, reason) }
	return &bad
}

func TestInserts(t *testing.T) {
	b := startServer(t)
	b.exec("INSERT INTO orders (id) VALUES ('before')")
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	if f.Last() == "" {
		t.Fatal("no checkpoint")
	}
	b.exec("INSERT INTO orders (id) VALUES ('a')")
	b.exec("INSERT INTO orders (id) VALUES ('b'), ('c')")
	b.exec("INSERT INTO orders (id) SELECT CONCAT(id, id) FROM orders WHERE id IN ('b', 'c') ORDER BY id")
	b.exec("CREATE TABLE other (id VARCHAR(40))")
	b.exec("INSERT INTO other VALUES ('z')")
	tx, err := b.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"rolled", "back"} {
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders (id) VALUES (?)", id); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	b.exec("UPDATE orders SET id = 'd' WHERE id = 'a'")
	b.exec("UPDATE orders SET note = 'x'")
	b.exec("DELETE FROM orders WHERE id = 'b'")
	b.exec("TRUNCATE orders")
	b.exec("REPLACE INTO orders (n, id) VALUES (1, 'e')")
	f.Want("a", "b", "c", "bb", "cc", "d", "e")

	// Another run from the checkpoint emits nothing; one from the first emits everything.
	again := start(t, b.options(), f.Stop())
	again.Want()
	start(t, b.options(), f.Chunks()[0].Checkpoint).Want("a", "b", "c", "bb", "cc", "d", "e")
}

func TestManyRows(t *testing.T) {
	b := startServer(t)
	f := start(t, b.options(), "")
	f.WaitCaughtUp()
	const n = 100_000
	first := f.Last()
	b.exec("INSERT INTO orders (id) SELECT seq FROM seq_1_to_100000")
	f.WaitCaughtUp()
	ids := f.IDs()
	if len(ids) != n || ids[0] != "1" || ids[n-1] != fmt.Sprint(n) {
		t.Errorf("%d IDs", len(ids))
	}
	f.Stop()
	for i, chunk := range f.Chunks() {
		if chunk.IDs > follow.MaxChunk {
			t.Errorf("a chunk of %d", chunk.IDs)
		}
		// Only the end of the transaction moves the checkpoint.
		if i < 99 && chunk.Checkpoint != first {
			t.Errorf("chunk %d is emitted with checkpoint %s, want %s", i, chunk.Checkpoint, first)
		}
	}
	if f.Last() == first {
		t.Error("the checkpoint did not move")
	}
}
