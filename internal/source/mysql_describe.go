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
)

// mysqlTable reads the structure of a table.
type mysqlTable struct {
	conn          *mysqlConn
	opts          TableOptions
	schema, table string
	columns       map[string]mysqlColumn // by name in lower case, since names are compared so
}

// explain adds to an error that a table, a column or a right is missing what the user can do.
func (m *mysqlTable) explain(ctx context.Context, err error, table string, columns []string) error {
	e, ok := errors.AsType[*mysql.MySQLError](err)
	denied := ok && slices.Contains([]uint16{mysqlDatabaseDenied, mysqlTableDenied, mysqlColumnDenied}, e.Number)
	if !denied && (!ok || e.Number != mysqlNoTable && e.Number != mysqlNoColumn) {
		return err
	}
	const tables = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? LIMIT 1000"
	const named = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?"
	help := missing{
		table: m.table, columns: columns,
		tables: readNames(ctx, m.conn, newStatement(MySQL, tables, m.schema)),
		named:  readNames(ctx, m.conn, newStatement(MySQL, named, m.schema, m.table)),
	}
	if denied {
		help.grant = "GRANT SELECT ON " + table
	}
	return help.explain(err)
}

// mysqlColumn is a column in information_schema.
type mysqlColumn struct {
	name, dataType, columnType string
	ordinal                    string // in the table
	nullable                   bool
	autoIncrement              bool   // AUTO_INCREMENT
	digits                     string // (precision,scale) of a decimal
	fraction                   int    // decimal places of a second
	charset, collation         string // of a text
}

func (m *mysqlTable) describe(ctx context.Context) (*layout, error) {
	l := &layout{kind: MySQL, table: quoteMySQL(m.schema) + "." + quoteMySQL(m.table)}
	// The catalogue does not show a missing right or column. This does.
	probed := append([]string{m.opts.IDColumn, m.opts.CursorColumn}, m.opts.PartColumns...)
	quoted := make([]string, len(probed))
	for i, name := range probed {
		quoted[i] = quoteMySQL(name)
	}
	probe := fmt.Sprintf("SELECT %s FROM %s LIMIT 0", strings.Join(quoted, ", "), l.table)
	if err := m.conn.query(ctx, newStatement(MySQL, probe), func([][]byte) {}); err != nil {
		return nil, fmt.Errorf("columns %s: %w", strings.Join(probed, " and "), m.explain(ctx, err, l.table, probed))
	}
	if err := m.readColumns(ctx); err != nil {
		return nil, fmt.Errorf("asking for its columns: %w", err)
	}
	id, err := m.text(m.opts.IDColumn)
	if err != nil {
		return nil, err
	}
	for _, name := range m.opts.PartColumns {
		part, err := m.text(name)
		if err != nil {
			return nil, err
		}
		l.parts = append(l.parts, part)
	}
	cursor, err := m.cursor(m.opts.CursorColumn)
	if err != nil {
		return nil, err
	}
	l.id, l.cursor = id, cursor
	x, err := m.indexes(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for its indexes: %w", err)
	}
	view, err := m.status(ctx, l, &x)
	if err != nil {
		return nil, fmt.Errorf("asking for its size: %w", err)
	}
	m.order(l, x, view)
	// MyISAM numbers rows anew for each value of the columns before this one, unless an index
	// begins with it.
	l.autoIncrement = m.columns[strings.ToLower(cursor.name)].autoIncrement && x.on(cursor.name) != nil
	l.derive(m.opts.Ascending)
	return l, m.server(ctx, l)
}

// order chooses the tie and the index.
func (m *mysqlTable) order(l *layout, x indexes, view bool) {
	var primary *column
	if key := x.primaryKey(); key != "" {
		if c, err := m.cursor(key); err == nil {
			primary = &c
		}
	}
	l.ordered = l.table
	chosen := l.chooseOrder(x, primary, bytewiseMySQL)
	if view {
		l.warn("it is a view: whether its cursor column %s has an index, and is unique, cannot be seen", l.cursor.name)
		return
	}
	if chosen != nil {
		// The optimizer itself may sort because of a large LIMIT.
		l.ordered += " FORCE INDEX (" + quoteMySQL(chosen.name) + ")"
	}
	l.warnMissingIndex(x, chosen)
}

// readColumns reads the columns that the user may read. The catalogue shows no others.
func (m *mysqlTable) readColumns(ctx context.Context) error {
	m.columns = map[string]mysqlColumn{}
	const text = `SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, ORDINAL_POSITION, EXTRA,
			CHARACTER_SET_NAME, COLLATION_NAME
		FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?`
	return m.conn.query(ctx, newStatement(MySQL, text, m.schema, m.table), func(c [][]byte) {
		one := mysqlColumn{
			name: string(c[0]), dataType: strings.ToLower(string(c[1])), columnType: strings.ToLower(string(c[2])),
			nullable: string(c[3]) != "NO", digits: fmt.Sprintf("(%s,%s)", c[4], c[5]), ordinal: string(c[7]),
			autoIncrement: strings.Contains(strings.ToLower(string(c[8])), "auto_increment"), charset: string(c[9]), collation: string(c[10]),
		}
		one.fraction, _ = strconv.Atoi(string(c[6])) // NULL: 0
		m.columns[strings.ToLower(one.name)] = one
	})
}

// text returns a column of the IDs. Any text is valid.
func (m *mysqlTable) text(name string) (column, error) {
	c, err := m.textAlone(name)
	d := m.columns[strings.ToLower(name)]
	switch {
	case slices.Contains([]string{"tinyint", "smallint", "mediumint", "int", "bigint", "decimal"}, d.dataType):
		c.family, c.value = familyNumber, "(%s + 0)"
	case d.dataType == "uuid":
		c.family, c.value = familyUUID, "CAST(%s AS UUID)"
	case d.collation != "":
		c.family, c.value = familyText, "CONVERT(%s USING "+d.charset+") COLLATE "+d.collation
		c.collation = d.collation
	}
	return c, err
}

func (m *mysqlTable) textAlone(name string) (column, error) {
	c, err := m.cursor(name)
	if err == nil {
		// As a cursor, a column may be selected by another expression.
		c.out = quoteMySQL(c.name)
		return c, nil
	}
	d, ok := m.columns[strings.ToLower(name)]
	switch d.dataType {
	case "float", "double":
		return column{}, fmt.Errorf("ID column %s is of type %s, which has no exact text", name, d.columnType)
	}
	if !ok {
		return column{}, err
	}
	quoted := quoteMySQL(d.name)
	return column{name: d.name, typ: d.columnType, ordinal: d.ordinal, sql: quoted, out: quoted, in: "%s", nullable: d.nullable}, nil
}

// cursor returns a column as a cursor. Its values can be passed back as they were read, and they
// compare in the order of the column. (An ENUM is ordered by number and compared by name.)
func (m *mysqlTable) cursor(name string) (column, error) {
	d, ok := m.columns[strings.ToLower(name)]
	if !ok {
		return column{}, fmt.Errorf("the catalogue does not show column %s: is there a right to read it?", name)
	}
	quoted := quoteMySQL(d.name)
	c := column{name: d.name, typ: d.columnType, ordinal: d.ordinal, sql: quoted, out: quoted, in: "%s", nullable: d.nullable}
	switch d.dataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		c.number, c.exact = true, true
	case "decimal":
		c.in = "CAST(%s AS DECIMAL" + d.digits + ")"
		c.exact = true
	case "datetime", "timestamp":
		c.exact = true
		c.resolution = fractionOf(d.fraction)
	case "date":
		c.exact = true
		c.resolution = dateResolution
	case "char", "varchar":
	case "uuid":
		c.exact = true
	case "binary", "varbinary":
		c.out, c.in = "HEX("+quoted+")", "UNHEX(%s)"
		c.exact = true
	default:
		return column{}, fmt.Errorf("cursor column %s is of type %s, which has no order to read by: use a number, a time or a short text", name, d.columnType)
	}
	return c, nil
}

// dateResolution is that of dates: the next date may have begun in another time zone.
const dateResolution = 48 * time.Hour

// fractionOf returns the unit of times with a number of decimal places.
func fractionOf(digits int) time.Duration {
	unit := time.Second
	for range digits {
		unit /= 10
	}
	return unit
}

// bytewiseMySQL returns a column ordered by its bytes. Its collation may take "a" and "A" for
// equal.
func bytewiseMySQL(c column) column {
	c.sql = "CAST(" + quoteMySQL(c.name) + " AS BINARY)"
	c.out, c.in, c.exact = "HEX("+c.sql+")", "UNHEX(%s)", true
	return c
}

func (m *mysqlTable) indexes(ctx context.Context) (x indexes, err error) {
	names, err := m.conn.byName(ctx, "SHOW INDEX FROM "+quoteMySQL(m.schema)+"."+quoteMySQL(m.table))
	if err != nil {
		return x, err
	}
	broken := "" // an index whose other columns cannot be used
	for _, row := range names {
		name := row["key_name"]
		fit := row["index_type"] == "BTREE" && row["sub_part"] == "" && row["collation"] == "A" && row["column_name"] != "" &&
			row["visible"] != "NO" && row["ignored"] != "YES"
		n := len(x.all)
		switch {
		case name == broken:
		case fit && (n == 0 || x.all[n-1].name != name):
			x.all = append(x.all, index{name: name, columns: []string{row["column_name"]}, unique: row["non_unique"] == "0", primary: name == "PRIMARY"})
		case fit:
			x.all[n-1].columns = append(x.all[n-1].columns, row["column_name"])
		default:
			broken = name
			if n > 0 && x.all[n-1].name == name { // some of its columns are unknown
				x.all[n-1].unique, x.all[n-1].primary = false, false
			}
		}
	}
	return x, nil
}

// byName returns rows by column name in lower case. The columns of SHOW INDEX and EXPLAIN differ
// between MariaDB and versions of MySQL.
func (c *mysqlConn) byName(ctx context.Context, text string, args ...any) (all []map[string]string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerLimit, errNoAnswer)
	defer cancel()
	rows, err := c.conn.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, mysqlError(ctx, err)
	}
	defer func() { _ = rows.Close() }() // Err reports errors
	names, err := rows.Columns()
	if err != nil {
		return nil, mysqlError(ctx, err)
	}
	for rows.Next() {
		values := make([][]byte, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, mysqlError(ctx, err)
		}
		row := map[string]string{}
		for i, name := range names {
			row[strings.ToLower(name)] = string(values[i])
		}
		all = append(all, row)
	}
	return all, mysqlError(ctx, rows.Err())
}

// status reads the estimated number of rows, and the kind of table.
func (m *mysqlTable) status(ctx context.Context, l *layout, x *indexes) (view bool, err error) {
	const text = "SELECT TABLE_ROWS, ENGINE, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?"
	err = m.conn.query(ctx, newStatement(MySQL, text, m.schema, m.table), func(c [][]byte) {
		l.estimate, _ = strconv.ParseInt(string(c[0]), 10, 64) // NULL: unknown
		x.appended = strings.EqualFold(string(c[1]), "InnoDB")
		view = strings.Contains(strings.ToUpper(string(c[2])), "VIEW")
	})
	return view, err
}

// server checks for settings that make a server unfit to read from.
func (m *mysqlTable) server(ctx context.Context, l *layout) error {
	const text = "SELECT @@global.read_only, @@auto_increment_increment"
	err := m.conn.query(ctx, newStatement(MySQL, text), func(c [][]byte) {
		if string(c[0]) != "0" {
			l.warn("the server is read-only: if it is a replica, it may lack orders that its primary has")
		}
		if string(c[1]) != "1" && l.cursor.number {
			l.warn("auto_increment_increment is %s: if several servers take writes, rows do not come in the order of %s", c[1], l.cursor.name)
		}
	})
	if err != nil {
		return fmt.Errorf("asking for its settings: %w", err)
	}
	return nil
}

// quoteMySQL quotes an identifier.
func quoteMySQL(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
