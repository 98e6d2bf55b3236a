package testbed_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// database is what MariaDB and Postgres have in common.
type database interface {
	Addr() string
	DSN() string
	PID() int
	Pause() error
	Resume() error
	Kill()
	Stop() error
	Restart(ctx context.Context) error
	Output() string
}

// databases are the two of them, started with arguments of the test's.
var databases = []struct {
	name, driver string
	start        func(b *bedtest.Bed, args ...string) database
	args         []string // that the setting below shows
	setting      string   // a query
	value        string   // its answer with these arguments
	log          string   // a query on the log of changes that they ask for
	logged       string   // its answer when there is one
	denied       string   // what it says to a wrong password
}{
	{
		"mariadb", "mysql",
		func(b *bedtest.Bed, args ...string) database { return b.MariaDB(args...) },
		[]string{"--log-bin", "--binlog-format=ROW", "--server-id=7", "--gtid-domain-id=3", "--gtid-strict-mode"},
		"SELECT CONCAT_WS(' ', @@log_bin, @@binlog_format, @@gtid_strict_mode)", "ON ROW ON",
		"SELECT REGEXP_REPLACE(@@gtid_binlog_pos, '[0-9]+$', 'n')", "3-7-n",
		"Access denied",
	},
	{
		"postgres", "pgx",
		func(b *bedtest.Bed, args ...string) database { return b.Postgres(args...) },
		[]string{"-c", "wal_level=logical"},
		"SHOW wal_level", "logical",
		"SELECT slot_name FROM pg_create_logical_replication_slot('changes', 'pgoutput')", "changes",
		"password authentication failed",
	},
}

// TestDatabases has both databases do what a test asks of a server.
func TestDatabases(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			server, other := d.start(bed, d.args...), d.start(bed)
			if host, _, _ := net.SplitHostPort(server.Addr()); host != "127.0.0.1" || server.Addr() == other.Addr() {
				t.Errorf("the servers are on %s and %s", server.Addr(), other.Addr())
			}
			db := open(t, d.driver, server.DSN())
			if got := ask(t, db, d.setting); got != d.value {
				t.Errorf("with %q it says %q, want %q", d.args, got, d.value)
			}
			if got := ask(t, open(t, d.driver, other.DSN()), d.setting); got == d.value {
				t.Errorf("it says %q without arguments too", got)
			}
			wrong := strings.Replace(server.DSN(), "@", "x@", 1) // the password ends there
			if err := open(t, d.driver, wrong).PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), d.denied) {
				t.Errorf("a wrong password: %v, want %q", err, d.denied)
			}
			exec := func(query string) {
				t.Helper()
				if _, err := db.ExecContext(t.Context(), query); err != nil {
					t.Fatalf("%s: %v", query, err)
				}
			}
			exec("CREATE TABLE a (n INT)")
			exec("INSERT INTO a VALUES (42)")
			if got := ask(t, db, d.log); got != d.logged {
				t.Errorf("the log of changes: %q, want %q", got, d.logged)
			}

			// A pause, with a client on the line.
			if err := server.Pause(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if err := open(t, d.driver, server.DSN()).PingContext(ctx); err == nil {
				t.Error("a paused server takes a new client")
			}
			if err := server.Resume(); err != nil {
				t.Fatal(err)
			}
			if got := ask(t, db, "SELECT n FROM a"); got != "42" {
				t.Errorf("after the pause it says %q", got)
			}

			// A crash: what was committed is there, at the same address.
			addr := server.Addr()
			server.Kill()
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if server.Addr() != addr {
				t.Errorf("restarted on %s as %s", addr, server.Addr())
			}
			if got := ask(t, db, "SELECT n FROM a"); got != "42" {
				t.Errorf("after the crash it says %q", got)
			}
			// Stopping must not wait for the client.
			if err := server.Stop(); err != nil {
				t.Error(err)
			}
			eventually(t, func() error { return groupGone(server.PID()) })
		})
	}
}

// TestDatabasePortTaken restarts a database whose port somebody holds for a while.
func TestDatabasePortTaken(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			server := d.start(bedtest.New(t))
			restartOnATakenPort(t, server)
			ask(t, open(t, d.driver, server.DSN()), "SELECT 1")
		})
	}
}

func TestDatabaseRefusesItsArguments(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	tests := map[string]struct {
		start func() error
		want  string
	}{
		"mariadb": {func() error { _, err := bed.Bed.MariaDB(t.Context(), "--such-an-option"); return err }, "unknown option"},
		"postgres": {
			func() error { _, err := bed.Bed.Postgres(t.Context(), "-c", "port=many"); return err }, "invalid value",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.start()
			if missing := new(testbed.MissingError); errors.As(err, &missing) {
				bedtest.Check(t, err)
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with the exit status and %q", err, test.want)
			}
		})
	}
	if n := len(bed.Processes()); n != 0 {
		t.Errorf("the bed keeps %d processes of failed starts", n)
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// ask returns the first value that a query answers, on a connection that may have
// to be made anew.
func ask(t *testing.T, db *sql.DB, query string) (value string) {
	t.Helper()
	eventually(t, func() error { return db.QueryRowContext(t.Context(), query).Scan(&value) })
	return value
}

// TestMariaDBTemporaryTables starts a MariaDB while another has a temporary table
// on disk: the one that starts must leave it alone.
func TestMariaDBTemporaryTables(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	db := open(t, "mysql", bed.MariaDB().DSN())
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	exec := func(query string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), query); err != nil {
			t.Errorf("%s: %v", query, err)
		}
	}
	exec("CREATE TEMPORARY TABLE a (n INT) ENGINE=Aria")
	bed.MariaDB()
	exec("DROP TEMPORARY TABLE a")
}
