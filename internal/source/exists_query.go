package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ordergate/ordergate/internal/orderid"
	"github.com/ordergate/ordergate/internal/runbook"
)

var (
	errServerSilent = errors.New("the server does not answer")
	errStopped      = errors.New("the server has stopped a query that took too long")
)

// orderConn is a connection to look orders up. Closing it closes the connection.
type orderConn struct {
	conn
	kind   Kind
	table  string // quoted
	id     column
	opened time.Time
	// warnings are about the server: a replica may lack the newest orders.
	warnings []string
	// reads reports whether a statement would read more rows than it selects.
	reads func(ctx context.Context, s *statement) (all bool, err error)
}

// maxEqual is the number of rows that are compared with an ID. All of them are equal to it in the
// column's collation. Of a unique column there is one row for each spelling.
const maxEqual = 16

// exists looks up an ID. The ID column decides which rows come back, by its index. Then the texts
// of these rows are compared as a reader of the table compares them: a collation may take "a" and
// "A" for equal, and they are two orders.
func (o *orderConn) exists(ctx context.Context, c *Confirmer, id string) (found bool, err error) {
	s := o.lookup(c.spellings(id))
	if s == nil {
		return false, nil
	}
	rows := 0
	err = o.query(ctx, s, func(columns [][]byte) {
		rows++
		found = found || columns[0] != nil && orderid.Check(columns[0]) == "" && c.opts.Same(string(columns[0]), id)
	})
	switch {
	case isStopped(err):
		return false, errStopped
	case isNoValue(err): // the column cannot have the ID
		return false, nil
	case err == nil && !found && rows == maxEqual:
		err = fmt.Errorf("more than %d rows have an ID that the column takes for the same", maxEqual)
	}
	return found, err
}

// lookup returns the statement that selects the rows whose ID may have one of the spellings; nil:
// the column has no such value.
func (o *orderConn) lookup(spellings []string) *statement {
	s := &statement{kind: o.kind, prepared: true}
	var marks []string
	for _, one := range spellings {
		if o.id.number {
			if one = o.integer(one); one == "" {
				continue
			}
		}
		marks = append(marks, s.bind(&o.id, one))
	}
	if len(marks) == 0 {
		return nil
	}
	condition := o.id.sql + " = " + marks[0]
	if len(marks) > 1 {
		condition = o.id.sql + " IN (" + strings.Join(marks, ", ") + ")"
	}
	s.text = fmt.Sprintf("SELECT %s FROM %s WHERE %s LIMIT %d", o.id.out, o.table, condition, maxEqual)
	return s
}

// integer returns an ID as an integer that the column may have, "" if it cannot. A text in its
// place would be an error of PostgreSQL, and a comparison of floating-point numbers, without an
// index, of MySQL.
func (o *orderConn) integer(id string) string {
	if n, err := strconv.ParseInt(id, 10, 64); err == nil {
		bits := map[string]int{"smallint": 16, "integer": 32}[o.id.typ] // of PostgreSQL; MySQL compares with any
		if bits > 0 && (n < -1<<(bits-1) || n >= 1<<(bits-1)) {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	if n, err := strconv.ParseUint(id, 10, 64); err == nil && o.kind == MySQL {
		return strconv.FormatUint(n, 10)
	}
	return ""
}

// hasIndex reports whether a query reads the rows of its ID only. It also returns true for a type
// without a sample of its values, such as a date.
func (o *orderConn) hasIndex(ctx context.Context) (bool, error) {
	sample := "1"
	if o.id.typ == "uuid" {
		sample = "00000000-0000-0000-0000-000000000001"
	}
	all, err := o.reads(ctx, o.lookup([]string{sample}))
	if isNoValue(err) {
		return true, nil
	}
	return !all, err
}

func (o *orderConn) errNoIndex() error {
	return fmt.Errorf("%w begins with the ID column %s of type %s: each query for one order reads the whole table", ErrNoIndex, o.id.name, o.id.typ)
}

// ErrNoIndex is returned by [Confirmer.Check] if each question would read the whole table.
var ErrNoIndex = errors.New("no index")

// ready prepares a new connection for questions. The first time, it logs what is wrong with the
// table.
func (c *Confirmer) ready(ctx context.Context, o *orderConn, settings ...string) (*orderConn, error) {
	o.opened = time.Now()
	if !c.explained.Load() {
		if has, err := o.hasIndex(ctx); err == nil && !c.explained.Swap(true) {
			if !has {
				o.warnings = append(o.warnings, o.errNoIndex().Error())
			}
			for _, w := range o.warnings {
				c.opts.Logger.Warn("a source is not as it should be", "source", c.name, "reason", w,
					runbook.Confirming.Do("change the table as reason says: lookups of created orders read more of it until then"))
			}
		}
	}
	for _, set := range settings {
		if err := o.query(ctx, newStatement(o.kind, set), func([][]byte) {}); err != nil {
			o.close()
			return nil, fmt.Errorf("setting up the connection: %w", err)
		}
	}
	return o, nil
}

// mysqlOpener returns a function that connects to a table in MySQL or MariaDB.
func (c *Confirmer) mysqlOpener(opts TableOptions) (func(context.Context) (*orderConn, error), error) {
	config, schema, table, err := parseMySQLTable(opts)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*orderConn, error) {
		connected, err := connectMySQL(ctx, config)
		if err != nil {
			return nil, err
		}
		l, err := (&mysqlTable{conn: connected, opts: opts, schema: schema, table: table}).describeID(ctx)
		if err != nil {
			connected.close()
			return nil, err
		}
		o := &orderConn{conn: connected, kind: MySQL, table: l.table, id: l.id, warnings: l.warnings}
		o.reads = func(ctx context.Context, s *statement) (all bool, err error) {
			args, err := mysqlArgs(s.args)
			if err != nil {
				return false, err
			}
			plan, err := connected.byName(ctx, "EXPLAIN "+s.text, args...)
			return slices.ContainsFunc(plan, func(row map[string]string) bool { return row["type"] == "ALL" || row["type"] == "index" }), err
		}
		// A row that is not committed may never be, whatever the server's default level is.
		return c.ready(ctx, o, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET SESSION "+connected.limitOf(c.opts.Timeout))
	}, nil
}

// describeID returns a layout with the ID column, the table's name and warnings about the server.
func (m *mysqlTable) describeID(ctx context.Context) (l *layout, err error) {
	l = &layout{kind: MySQL, table: quoteMySQL(m.schema) + "." + quoteMySQL(m.table)}
	probe := fmt.Sprintf("SELECT %s FROM %s LIMIT 0", quoteMySQL(m.opts.IDColumn), l.table)
	if err := m.conn.query(ctx, newStatement(MySQL, probe), func([][]byte) {}); err != nil {
		return nil, fmt.Errorf("column %s: %w", m.opts.IDColumn, m.explain(ctx, err, l.table, []string{m.opts.IDColumn}))
	}
	if err := m.readColumns(ctx); err != nil {
		return nil, fmt.Errorf("asking for its columns: %w", err)
	}
	if l.id, err = m.text(m.opts.IDColumn); err != nil {
		return nil, err
	}
	if strings.HasPrefix(l.id.in, "UNHEX") { // of a cursor; an ID is the bytes themselves
		l.id.in = "%s"
	}
	return l, m.server(ctx, l)
}

// postgresOpener returns a function that connects to a table in PostgreSQL.
func (c *Confirmer) postgresOpener(opts TableOptions) (func(context.Context) (*orderConn, error), error) {
	config, err := parsePostgres(opts.DSN)
	if err != nil {
		return nil, err
	}
	// A table that is still small is read by its index, too.
	config.RuntimeParams["enable_seqscan"] = "off"
	return func(ctx context.Context) (*orderConn, error) {
		connected, err := connectPostgres(ctx, config, opts.RereadDSN)
		if err != nil {
			return nil, err
		}
		l, err := (&postgresTable{conn: connected, opts: opts}).describeID(ctx)
		if err != nil {
			connected.close()
			return nil, err
		}
		o := &orderConn{conn: connected, kind: Postgres, table: l.table, id: l.id, warnings: l.warnings}
		o.reads = func(ctx context.Context, s *statement) (all bool, err error) {
			plan := ""
			explain := &statement{kind: Postgres, text: "EXPLAIN " + s.text, args: s.args}
			err = connected.query(ctx, explain, func(columns [][]byte) { plan += string(columns[0]) + "\n" })
			return strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "Index Cond"), err
		}
		return c.ready(ctx, o, fmt.Sprintf("SET statement_timeout = %d", c.opts.Timeout.Milliseconds()))
	}, nil
}

// describeID returns a layout with the ID column, the table's name and warnings about the server.
func (p *postgresTable) describeID(ctx context.Context) (l *layout, err error) {
	l = p.emptyLayout()
	probe := fmt.Sprintf("SELECT %s FROM %s LIMIT 0", quotePostgres(p.opts.IDColumn), l.table)
	if err := p.conn.query(ctx, newStatement(Postgres, probe), func([][]byte) {}); err != nil {
		return nil, fmt.Errorf("column %s: %w", p.opts.IDColumn, p.explain(ctx, err, l.table, []string{p.opts.IDColumn}))
	}
	if err := p.status(ctx, l); err != nil {
		return nil, fmt.Errorf("asking for its size: %w", err)
	}
	if err := p.readColumns(ctx); err != nil {
		return nil, fmt.Errorf("asking for its columns: %w", err)
	}
	if l.id, err = p.column(p.opts.IDColumn); err != nil {
		return nil, fmt.Errorf("ID column %w", err)
	}
	l.id.number = slices.Contains([]string{"int2", "int4", "int8"}, p.columns[p.opts.IDColumn].base)
	return l, nil
}

// isStopped reports whether the server has stopped a statement since it took too long.
func isStopped(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == mysqlTimedOut || e.Number == mysqlMariaDBTimedOut
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == pgCanceled
}

// mysqlWrongValue is for a text that is no value of a column's type, such as a date.
const mysqlWrongValue = 1525

// pgNoValue are the codes for a text that is no value of a column's type.
var pgNoValue = []string{"22P02", "22003", "22007", "22008"}

// isNoValue reports whether a text is no value of a column's type.
func isNoValue(err error) bool {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number == mysqlWrongValue
	}
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && slices.Contains(pgNoValue, e.Code)
}
