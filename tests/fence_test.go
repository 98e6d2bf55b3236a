package tests

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// fenceCases are the examples of examples/fence: what makes the tables ready, and
// what a settlement writes, by the names that the files give.
var fenceCases = []struct {
	name          string
	schema, write []string
	databases     string
	refused       string // the error, where it is not just that no row changes
}{
	{"one write", []string{"column"}, []string{"one write"}, "mysql postgres", ""},
	{"hidden column", []string{"hidden column"}, []string{"one write"}, "mysql", ""},
	{"read first", []string{"column"}, []string{"read first", "one write"}, "mysql postgres", ""},
	{"several rows", []string{"column"}, []string{"several rows"}, "mysql postgres", ""},
	{"table", []string{"table"}, []string{"write with table"}, "mysql postgres", ""},
	{"trigger", []string{"column", "trigger"}, []string{"transaction with trigger", unfenced}, "postgres", "is stale"},
}

// unfenced stands for the write without any condition.
const unfenced = ""

// TestFence runs what examples/fence says on MariaDB and on PostgreSQL.
func TestFence(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mysql", "postgres"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &fenceDatabase{Bed: bedtest.New(t), name: name}
			switch name {
			case "mysql":
				config := d.MariaDB().Config()
				config.ClientFoundRows = true // as the README has it
				d.driver, d.dsn = "mysql", config.FormatDSN()
			case "postgres":
				d.driver, d.dsn = "pgx", d.Postgres().DSN()
			}
			d.redis = d.Redis()
			d.holder = d.Build("./tests/holder", false) // with the race detector each would take a second to end
			d.examples = readFenceCases(t, filepath.Join(d.Root(), "examples", "fence", name+".sql"))
			db, err := sql.Open(d.driver, d.dsn)
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			d.db = db
			t.Run("late", d.testLate)
			t.Run("late, in an old transaction", d.testOldTransaction)
			t.Run("raised before reading", d.testRaisedBeforeReading)
			t.Run("why", d.testWhy)
			if name == "mysql" {
				t.Run("hidden column", d.testHiddenColumn)
			}
		})
	}
}

// testLate stops a holder past its lease, has the next one settle, and wakes the
// first: what it writes then must change nothing, in each case of examples/fence.
func (d *fenceDatabase) testLate(t *testing.T) {
	seen := map[string]bool{"why": true}
	for _, c := range fenceCases {
		if !strings.Contains(c.databases, d.name) {
			continue
		}
		for _, name := range append(c.schema, c.write...) {
			seen[name] = true
		}
		t.Run(c.name, func(t *testing.T) {
			d.fresh(t, c.schema)
			write := d.statements(t, c.write...)
			d.overlap(t, write).wantRefused(t, len(write), c.refused)
			if got := d.value(t, "SELECT commission FROM orders WHERE id = 1001"); got != "200" {
				t.Errorf("the commission is %s, want that of the later holder, 200", got)
			}
			if n := d.value(t, "SELECT COUNT(*) FROM payouts WHERE amount = 100"); n != "0" {
				t.Errorf("the late holder made %s payouts", n)
			}
		})
	}
	for name := range d.examples {
		if !seen[name] {
			t.Errorf("no test runs the case %q", name)
		}
	}
	// The same without the condition, so that the above proves something.
	t.Run("without the condition", func(t *testing.T) {
		d.fresh(t, nil)
		late := d.overlap(t, d.statements(t, unfenced))
		if got := d.value(t, "SELECT commission FROM orders WHERE id = 1001"); got != "100" || len(late.Rows) != 1 {
			t.Errorf("the commission is %s after %+v: the late write did not get through", got, late)
		}
	})
}

// overlap has two holders of one order's lock write, the earlier one too late, and
// returns what became of that. In between the later one writes again, and to an
// order that does not exist.
func (d *fenceDatabase) overlap(t *testing.T, write []string) fenceResult {
	t.Helper()
	first := d.hold(t)
	must(t, first.Pause())
	second := d.hold(t)
	if a, b := first.fence, second.fence; a >= b {
		t.Fatalf("the fences are %d and then %d", a, b)
	}
	for _, what := range []string{"first", "second"} {
		if done := second.write(write, "1001", "200"); done.Error != "" || len(done.Rows) != len(write) {
			t.Errorf("the %s write of the later holder ended with %+v", what, done)
		}
	}
	second.write(write, "1002", "200").wantRefused(t, len(write), "")

	// The write is under way when the first holder wakes up.
	answered := make(chan fenceResult, 1)
	go func() { answered <- first.write(write, "1001", "100") }()
	must(t, first.Resume())
	return <-answered
}

// testRaisedBeforeReading has the earlier holder write while the later one has
// read, and not written yet: with the case "read first" that is too late already.
func (d *fenceDatabase) testRaisedBeforeReading(t *testing.T) {
	for _, raised := range []bool{false, true} {
		t.Run(fmt.Sprintf("raised %v", raised), func(t *testing.T) {
			d.fresh(t, []string{"column"})
			first := d.hold(t)
			must(t, first.Pause())
			second := d.hold(t)
			if raised {
				if done := second.write(d.statements(t, "read first"), "1001", ""); len(done.Rows) != 1 {
					t.Fatalf("the later holder could not raise the fence: %+v", done)
				}
			}
			must(t, first.Resume())
			late := first.write(d.statements(t, "one write"), "1001", "100")
			if through := len(late.Rows) == 1; through == raised {
				t.Errorf("the earlier holder's write ended with %+v", late)
			}
		})
	}
}

// testOldTransaction has the earlier holder begin a transaction and read
// before it falls asleep, so that it sees the database as it was then.
func (d *fenceDatabase) testOldTransaction(t *testing.T) {
	for _, c := range fenceCases {
		if !strings.Contains(c.databases, d.name) {
			continue
		}
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			t.Run(c.name+" "+level.String(), func(t *testing.T) {
				d.fresh(t, c.schema)
				write := d.statements(t, c.write...)
				first := d.hold(t)
				read := fenceRequest{SQL: []string{"SELECT COUNT(*) FROM orders"}, Isolation: level}
				if begun := first.post("/begin", read); begun.Error != "" {
					t.Fatal(begun.Error)
				}
				must(t, first.Pause())
				second := d.hold(t)
				if done := second.write(write, "1001", "200"); len(done.Rows) != len(write) {
					t.Fatalf("the later holder's write ended with %+v", done)
				}
				must(t, first.Resume())
				refusal := c.refused
				if level == sql.LevelRepeatableRead && d.name == "postgres" {
					refusal = "could not serialize access"
				}
				first.write(write, "1001", "100").wantRefused(t, len(write), refusal)
				if got := d.value(t, "SELECT commission FROM orders WHERE id = 1001"); got != "200" {
					t.Errorf("the commission is %s, want 200", got)
				}
			})
		}
	}
}

// testWhy is how a caller tells why no row changed, and what the count of rows
// is with and without the setting that the README asks for.
func (d *fenceDatabase) testWhy(t *testing.T) {
	d.fresh(t, []string{"column"})
	why := strings.ReplaceAll(d.statements(t, "why")[0], ":id", "1001")
	bind := strings.NewReplacer(":id", "1001", ":commission", "200", ":fence", "7")
	write := bind.Replace(d.statements(t, "one write")[0])
	if n := d.exec(t, write); n != 1 {
		t.Errorf("the first write changed %d rows", n)
	}
	if n := d.exec(t, write); n != 1 {
		t.Errorf("the second write with the same fence changed %d rows", n)
	}
	if n := d.exec(t, strings.ReplaceAll(write, "<= 7", "<= 6")); n != 0 {
		t.Errorf("a write with a smaller fence changed %d rows", n)
	}
	if got := d.value(t, why); got != "7" {
		t.Errorf("why answers %s, want the greater fence, 7", got)
	}
	if n := d.exec(t, strings.ReplaceAll(write, "<= 7", "<= NULL")); n != 0 {
		t.Errorf("a write without a fence changed %d rows", n)
	}
	if d.name == "mysql" {
		other, err := sql.Open(d.driver, bedtest.Replace(d.dsn, "clientFoundRows=true", "clientFoundRows=false"))
		must(t, err)
		defer func() { _ = other.Close() }()
		done, err := other.ExecContext(t.Context(), write)
		must(t, err)
		if n, _ := done.RowsAffected(); n != 0 {
			t.Errorf("without clientFoundRows an equal write counts %d rows: the README says 0", n)
		}
	}
}

// testHiddenColumn has old code meet the hidden column, or rather not.
func (d *fenceDatabase) testHiddenColumn(t *testing.T) {
	d.fresh(t, []string{"hidden column"})
	d.exec(t, "INSERT INTO orders VALUES (1003, 5)")
	rows, err := d.db.QueryContext(t.Context(), "SELECT * FROM orders")
	must(t, err)
	columns, err := rows.Columns()
	must(t, err)
	must(t, rows.Close())
	must(t, rows.Err())
	if len(columns) != 2 {
		t.Errorf("SELECT * shows %q", columns)
	}
}
