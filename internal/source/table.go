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
)

// Kind is a kind of database.
type Kind string

// The kinds.
const (
	MySQL    Kind = "mysql" // and MariaDB
	Postgres Kind = "postgres"
)

// OnBad says what becomes of rows without an ID that an order can have.
type OnBad string

// What may become of them.
const (
	FailOnBad OnBad = "fail" // the read fails: the orders that they stand for would count as absent
	SkipBad   OnBad = "skip" // they are counted and passed over
)

// DefaultBatch is how many rows are asked for at a time: with a tenth of that, a
// server that is near stands idle between batches for a third of the time.
const DefaultBatch = 10_000

const (
	maxBatch       = 100_000
	defaultOverlap = time.Minute
)

// TableOptions are the settings of a [Table].
type TableOptions struct {
	Kind         Kind
	DSN          string // go-sql-driver/mysql's form or mysql://; for PostgreSQL a URL or key=value pairs. It is never told
	Table        string // or schema.table
	IDColumn     string
	CursorColumn string // in the order of which it is read; may be IDColumn

	Batch   int           // rows of one SELECT, at most 100,000; default [DefaultBatch]
	Pause   time.Duration // between two SELECTs
	MaxRate int           // rows a second; 0: as fast as it goes

	// Overlap is longer than any transaction takes from the moment that it chose a
	// row's cursor to its commit, and includes what the clocks of those who choose
	// times are apart; default a minute. See [Mark].
	Overlap time.Duration
	// Ascending says that new rows come at the end of the order though it is not the
	// database itself that counts the cursor up (AUTO_INCREMENT, an identity, a
	// sequence): times of creation do, ULIDs, UUIDs of version 7, Snowflakes. Without it
	// such a table is read as a whole to catch up with it.
	Ascending bool

	OnBad OnBad // default FailOnBad
	// Valid refuses IDs beyond those that no order can have; nil refuses none. It
	// is called by the goroutine that reads.
	Valid    func(id string) bool
	Progress func(Step) // told after each batch, by the goroutine that reads
	// Dropped is called by [Table.Tail] when its mark does not hold any more, before all is
	// read again: what was read of the table may be that of another one. Nil: nobody is.
	OnMarkDropped func(reason string)
	Logger        *slog.Logger // default: none
}

// ensureDefaults fills in what was left open.
func (o *TableOptions) ensureDefaults() {
	o.Batch = cmp.Or(o.Batch, DefaultBatch)
	o.Overlap = cmp.Or(o.Overlap, defaultOverlap)
	o.OnBad = cmp.Or(o.OnBad, FailOnBad)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.MaxRate > 0 {
		o.Batch = min(o.Batch, o.MaxRate) // or it would come in gusts
	}
}

// validate reports all that is wrong, in one line.
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

// Table is a table of orders, or a view of one, in a database. It may be used by
// several goroutines. It keeps no connection: each read makes one, and one only.
type Table struct {
	opts     TableOptions
	open     opener
	location string
	name     string // for errors and the log

	queries atomic.Int64
	mu      sync.Mutex
	warned  map[string]bool
}

// NewTable returns a table that can be read. It connects to nothing yet: what is
// wrong with the database is told by the first read, or by [Table.Check].
func NewTable(opts TableOptions) (*Table, error) {
	opts.ensureDefaults()
	t := &Table{opts: opts, name: fmt.Sprintf("%s table %s", opts.Kind, opts.Table), warned: map[string]bool{}}
	err := opts.validate()
	if err == nil {
		if opts.Kind == MySQL {
			t.open, t.location, err = newMySQL(opts)
		} else {
			t.open, t.location, err = newPostgres(opts)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	return t, nil
}

// Where tells the table from one of the same name in another database or on another
// server, by what the DSN says of them: nobody is asked. It has no password in it.
func (t *Table) Location() string { return t.location }

// Check connects and reports whether the table can be read: the error says why not,
// the warnings what will be slow or is not safe.
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

// opener connects to a database and finds out about the table.
type opener func(ctx context.Context) (conn, *layout, error)

// conn is a connection. Its errors are one line and hold no secret.
type conn interface {
	// query calls row with the columns of each row, nil where one is NULL. They are
	// valid during the call. When ctx ends it returns the cause, at once.
	query(ctx context.Context, s *statement, row func(columns [][]byte)) error
	close()
}

// connected calls do with a connection.
func (t *Table) withConn(ctx context.Context, do func(conn, *layout) error) error {
	t.queries.Add(openingQueries)
	c, l, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	t.warn(l.warnings)
	return do(countingConn{c, &t.queries}, l)
}

// opening is how many queries it takes at most to connect and to find out about a table.
const openingQueries = 10

// Queries returns how many queries the database was asked so far, about: of connecting it
// counts the most that it takes.
func (t *Table) Queries() int64 { return t.queries.Load() }

// counting is a connection whose queries are counted.
type countingConn struct {
	conn
	queries *atomic.Int64
}

func (c countingConn) query(ctx context.Context, s *statement, row func([][]byte)) error {
	c.queries.Add(1)
	return c.conn.query(ctx, s, row)
}

// warn logs what was not logged before.
func (t *Table) warn(warnings []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, w := range warnings {
		if !t.warned[w] {
			t.warned[w] = true
			t.opts.Logger.Warn("a source is not as it should be", "source", t.name, "reason", w)
		}
	}
}
