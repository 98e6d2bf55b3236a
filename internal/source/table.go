package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/spelling"
)

// Kind is a kind of database.
type Kind string

// The kinds of database.
const (
	MySQL    Kind = "mysql" // and MariaDB
	Postgres Kind = "postgres"
)

// OnBad is the treatment of rows without a usable order ID.
type OnBad string

// The treatments.
const (
	FailOnBad OnBad = "fail" // the read fails: a lookup of these orders would be answered Absent
	SkipBad   OnBad = "skip" // they are counted and skipped
)

// DefaultBatch is the default number of rows in one SELECT. With a tenth of it, a nearby server is
// idle between batches for a third of the time.
const DefaultBatch = 10_000

const (
	maxBatch       = 100_000
	defaultOverlap = time.Minute
)

// TableOptions are the settings of a [Table].
type TableOptions struct {
	Kind Kind
	DSN  string // go-sql-driver/mysql's form or mysql://; for PostgreSQL a URL or key=value pairs; never logged
	// RereadDSN returns the DSN as it is now. Each new connection has its password. It is safe for
	// concurrent use; nil: the DSN stays.
	RereadDSN    func() string
	Table        string // or schema.table
	IDColumn     string
	PartColumns  []string // of the parts of an ID, in their order: the full ID is "part/id"
	CursorColumn string   // the column that the table is read in the order of; may be IDColumn

	Batch   int           // rows in one SELECT, at most 100,000; default [DefaultBatch]
	Pause   time.Duration // between two SELECTs
	MaxRate int           // rows a second; 0: no limit

	// Overlap must exceed the time from the choice of a row's cursor to its commit in any
	// transaction. It includes the differences between the clocks that choose times. Default: a
	// minute. See [Mark].
	Overlap time.Duration
	// Ascending means that new rows come at the end of the order, although the database itself does
	// not increment the cursor (AUTO_INCREMENT, an identity, a sequence). That holds for creation
	// times, ULIDs, UUIDs of version 7 and Snowflake IDs. Without it, catching up with such a table
	// reads all of it.
	Ascending bool

	OnBad OnBad // default FailOnBad
	// Check returns the reason why a text is no order ID, "" if it is one. The goroutine that reads
	// calls it. Default: [orderid.Check].
	Check func(id string) (reason string)
	// Wider reports whether rules accept a number above the largest one that the ID column can
	// hold, which is a warning; nil: they do not.
	Wider func(most string) bool
	// Twins returns what to warn of in what the columns of the ID take for the same; nil: nothing.
	Twins    func(columns []spelling.Column) (warnings []string, err error)
	Progress func(Step) // called after each batch, by the goroutine that reads
	// OnMarkDropped is called by [Table.Tail] when its mark no longer holds, before the whole table
	// is read again. Earlier rows may have come from another table. Nil: no call.
	OnMarkDropped func(reason string)
	Logger        *slog.Logger // default: none
}

// ensureDefaults sets the fields that are unset.
func (o *TableOptions) ensureDefaults() {
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	o.Overlap = cmp.Or(o.Overlap, defaultOverlap)
	o.OnBad = cmp.Or(o.OnBad, FailOnBad)
	if o.Check == nil {
		o.Check = orderid.Check[string]
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.MaxRate > 0 {
		o.Batch = min(o.Batch, o.MaxRate) // or rows would come in bursts
	}
}

// validate reports all violations in one line.
func (o *TableOptions) validate() error {
	var errs []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Sprintf(format, args...))
		}
	}
	check(o.Kind == MySQL || o.Kind == Postgres, "kind %q: use %s or %s", o.Kind, MySQL, Postgres)
	check(o.DSN != "", "no DSN")
	parts := strings.Split(o.Table, ".")
	check(len(parts) <= 2 && identifier(parts[0]) && identifier(parts[len(parts)-1]), "table %q: use a name, or schema.table", o.Table)
	check(identifier(o.IDColumn), "ID column %q: use a column's name", o.IDColumn)
	for _, name := range o.PartColumns {
		check(identifier(name), "part column %q: use a column's name", name)
	}
	check(identifier(o.CursorColumn), "cursor column %q: use a column's name", o.CursorColumn)
	check(o.Batch >= 1 && o.Batch <= maxBatch, "batch %d: use 1 to %d", o.Batch, maxBatch)
	check(o.Pause >= 0, "pause %v: use 0 or more", o.Pause)
	check(o.MaxRate >= 0, "maximal rate %d: use 0 or more", o.MaxRate)
	check(o.Overlap > 0, "overlap %v: use more than 0", o.Overlap)
	check(o.OnBad == FailOnBad || o.OnBad == SkipBad, "on bad rows %q: use %s or %s", o.OnBad, FailOnBad, SkipBad)
	if errs != nil {
		return errors.New(strings.Join(errs, "; "))
	}
	return nil
}

// identifier reports whether a name can be quoted.
func identifier(name string) bool { return name != "" && !strings.ContainsRune(name, 0) }

// Table is a table of orders, or a view of one, in a database. It is safe for concurrent use. It
// keeps no connection: each read opens one.
type Table struct {
	opts TableOptions
	open opener
	at   location
	name string // for errors and the log

	queries atomic.Int64
	asked   atomic.Bool // by warnTwins
	mu      sync.Mutex
	warned  map[string]bool
}

// location is where a table is: the servers by their addresses, and the database there.
type location struct{ servers, database string }

// NewTable returns a table. It does not connect yet: the first read, or [Table.Check], reports what
// is wrong with the database.
func NewTable(opts TableOptions) (*Table, error) {
	opts.ensureDefaults()
	t := &Table{opts: opts, name: fmt.Sprintf("%s table %s", opts.Kind, opts.Table), warned: map[string]bool{}}
	err := opts.validate()
	if err == nil {
		if opts.Kind == MySQL {
			t.open, t.at, err = newMySQL(opts)
		} else {
			t.open, t.at, err = newPostgres(opts)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return t, nil
}

// Location identifies the database and server of the table, by the DSN alone. It contains no
// password.
func (t *Table) Location() string { return t.at.servers + " " + t.at.database }

// Database is Location without the addresses, by which one server may have several names.
func (t *Table) Database() string { return t.at.database }

// Check connects and reports whether the table can be read. The error is the reason if not. The
// warnings name what will be slow or unsafe.
func (t *Table) Check(ctx context.Context) (warnings []string, err error) {
	err = t.withConn(ctx, func(_ conn, l *layout) error {
		warnings = l.warnings
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("checking %s: %w", t.name, err)
	}
	return warnings, nil
}

// opener connects to a database and reads the structure of the table.
type opener func(ctx context.Context) (conn, *layout, error)

// conn is a connection. Its errors are one line and contain no secret.
type conn interface {
	// query calls row with the columns of each row; NULL is nil. They are valid during the call. It
	// returns the cause at once when ctx ends.
	query(ctx context.Context, s *statement, row func(columns [][]byte)) error
	close()
}

// withConn calls do with a connection.
func (t *Table) withConn(ctx context.Context, do func(conn, *layout) error) error {
	t.queries.Add(openingQueries)
	c, l, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	counted := countingConn{c, &t.queries}
	l.warnNarrow(t.opts.Wider)
	t.warnTwins(ctx, counted, l)
	t.warn(l.warnings)
	return do(counted, l)
}

// openingQueries is the largest number of queries for connecting and reading the structure.
const openingQueries = 10

// Queries returns about how many queries were sent to the database so far. Each connection counts
// with its largest number.
func (t *Table) Queries() int64 { return t.queries.Load() }

// countingConn counts the queries on a connection.
type countingConn struct {
	conn
	queries *atomic.Int64
}

func (c countingConn) query(ctx context.Context, s *statement, row func([][]byte)) error {
	c.queries.Add(1)
	return c.conn.query(ctx, s, row)
}

// warn logs new warnings.
func (t *Table) warn(warnings []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range warnings {
		if !t.warned[w] {
			t.warned[w] = true
			t.opts.Logger.Warn("a source has a problem", "source", t.name, "reason", w,
				runbook.Tables.Do("change the table, or its keys in the configuration, as reason says"))
		}
	}
}
