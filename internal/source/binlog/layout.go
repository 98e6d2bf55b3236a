package binlog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// layout is how the log has the rows of the table, as of the last query. A value that is decoded
// wrongly makes those behind it wrong, in the same row and in the next ones. So rows are decoded only
// if the types of all of their columns are known.
type layout struct {
	table      tableName // as the log has it, which may differ in case
	ids        []column  // of a full ID
	columns    []typed   // by position, as far as the user may see them
	restricted bool      // the table may have more columns
	indexed    bool      // an index begins with the ID's own column
	known      [256]bool // the codes of known types
}

// typed is a column with the code of its type in the log. The name of one that the user may not see
// is "".
type typed struct {
	name string
	code byte
}

// codes are the types that are decoded rightly, by their name in the catalogue, with the code that
// the log has. TestLayouts tries them.
var codes = map[string]byte{
	"tinyint": gomysql.MYSQL_TYPE_TINY, "smallint": gomysql.MYSQL_TYPE_SHORT, "mediumint": gomysql.MYSQL_TYPE_INT24,
	"int": gomysql.MYSQL_TYPE_LONG, "bigint": gomysql.MYSQL_TYPE_LONGLONG, "decimal": gomysql.MYSQL_TYPE_NEWDECIMAL,
	"float": gomysql.MYSQL_TYPE_FLOAT, "double": gomysql.MYSQL_TYPE_DOUBLE, "bit": gomysql.MYSQL_TYPE_BIT,
	"date": gomysql.MYSQL_TYPE_DATE, "year": gomysql.MYSQL_TYPE_YEAR, "time": gomysql.MYSQL_TYPE_TIME2,
	"datetime": gomysql.MYSQL_TYPE_DATETIME2, "timestamp": gomysql.MYSQL_TYPE_TIMESTAMP2,
	"char": gomysql.MYSQL_TYPE_STRING, "binary": gomysql.MYSQL_TYPE_STRING, "enum": gomysql.MYSQL_TYPE_STRING, "set": gomysql.MYSQL_TYPE_STRING,
	"uuid": gomysql.MYSQL_TYPE_STRING, "inet4": gomysql.MYSQL_TYPE_STRING, "inet6": gomysql.MYSQL_TYPE_STRING,
	"varchar": gomysql.MYSQL_TYPE_VARCHAR, "varbinary": gomysql.MYSQL_TYPE_VARCHAR,
	"tinytext": gomysql.MYSQL_TYPE_BLOB, "text": gomysql.MYSQL_TYPE_BLOB, "mediumtext": gomysql.MYSQL_TYPE_BLOB, "longtext": gomysql.MYSQL_TYPE_BLOB,
	"tinyblob": gomysql.MYSQL_TYPE_BLOB, "blob": gomysql.MYSQL_TYPE_BLOB, "mediumblob": gomysql.MYSQL_TYPE_BLOB, "longblob": gomysql.MYSQL_TYPE_BLOB,
	"json":     gomysql.MYSQL_TYPE_JSON, // of MySQL; MariaDB's is a longtext
	"geometry": gomysql.MYSQL_TYPE_GEOMETRY, "point": gomysql.MYSQL_TYPE_GEOMETRY, "linestring": gomysql.MYSQL_TYPE_GEOMETRY,
	"polygon": gomysql.MYSQL_TYPE_GEOMETRY, "multipoint": gomysql.MYSQL_TYPE_GEOMETRY, "multilinestring": gomysql.MYSQL_TYPE_GEOMETRY,
	"multipolygon": gomysql.MYSQL_TYPE_GEOMETRY, "geometrycollection": gomysql.MYSQL_TYPE_GEOMETRY, "geomcollection": gomysql.MYSQL_TYPE_GEOMETRY,
}

// engines are those whose rows are logged under the table's own name, and by this server only. A
// MRG_MyISAM or FEDERATED table has the rows of other tables.
var engines = []string{"InnoDB", "ROCKSDB", "Aria", "MyISAM"}

// checkTable returns an error if the log does not have the table's rows under its name, or has
// columns of them that the catalogue does not show.
func (a *serverClient) checkTable(ctx context.Context, table tableName, s server) error {
	var kind string
	var engine sql.NullString
	err := a.db.QueryRowContext(ctx, "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?",
		table.schema, table.name).Scan(&kind, &engine)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return follow.Permanent(fmt.Errorf("there is no table %s, or the user may not see it; the user needs: GRANT SELECT ON %s", table, table))
	case err != nil:
		return explain(err)
	case strings.Contains(kind, "VIEW"):
		return follow.Permanent(fmt.Errorf("%s is a view, and the log names only the tables below it: name the table, or use follow: poll", table))
	case kind == "SYSTEM VERSIONED":
		return follow.Permanent(fmt.Errorf("%s has SYSTEM VERSIONING, and the log has rows of its history, and hidden columns: use follow: poll", table))
	case !slices.Contains(engines, engine.String):
		return follow.Permanent(fmt.Errorf("%s is a table of %s, whose rows may come under other names: use follow: poll", table, engine.String))
	}
	if s.namesColumns {
		return nil
	}
	var index sql.NullString
	err = a.db.QueryRowContext(ctx, "SELECT MAX(INDEX_NAME) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND INDEX_TYPE = 'HASH'",
		table.schema, table.name).Scan(&index)
	if err == nil && index.Valid {
		return follow.Permanent(fmt.Errorf("index %s of %s has a hidden column in the log: set binlog_row_metadata=FULL, or use follow: poll", index.String, table))
	}
	return explain(err)
}

// describeTable reads the columns of the table. An unsuitable one is a permanent error.
func (a *serverClient) describeTable(ctx context.Context, table tableName, names []string, s server) (l layout, err error) {
	if err := a.checkTable(ctx, table, s); err != nil {
		return l, err
	}
	// This waits for a change of the table that is already logged. The catalogue may show such a
	// change later.
	if _, err := a.db.ExecContext(ctx, "SELECT 1 FROM "+quote(table.schema)+"."+quote(table.name)+" LIMIT 0"); err != nil {
		return l, explain(err)
	}
	_, err = a.db.ExecContext(ctx, "SELECT * FROM "+quote(table.schema)+"."+quote(table.name)+" LIMIT 0")
	switch code, _ := serverError(err); code {
	case gomysql.ER_TABLEACCESS_DENIED_ERROR, gomysql.ER_COLUMNACCESS_DENIED_ERROR:
		l.restricted = true
	default:
		if err != nil {
			return l, explain(err)
		}
	}
	if err := a.db.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?
		AND COLUMN_NAME = ? AND SEQ_IN_INDEX = 1 AND SUB_PART IS NULL AND INDEX_TYPE NOT IN ('HASH', 'FULLTEXT')`,
		table.schema, table.name, names[len(names)-1]).Scan(&l.indexed); err != nil {
		return l, explain(err)
	}
	if err := a.checkCascades(ctx, table, names); err != nil {
		return l, err
	}
	rows, err := a.db.QueryContext(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION, COLUMN_NAME,
		LOWER(DATA_TYPE), LOWER(COLUMN_TYPE), COALESCE(NUMERIC_SCALE, 0), COALESCE(CHARACTER_SET_NAME, ''), EXTRA
		FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, table.schema, table.name)
	if err != nil {
		return l, explain(err)
	}
	defer func() { _ = rows.Close() }() // Err reports errors
	l.ids = make([]column, len(names))
	for _, code := range codes {
		l.known[code] = true
	}
	for rows.Next() {
		var name, kind, full, set, extra string
		var position, scale int
		if err := rows.Scan(&l.table.schema, &l.table.name, &position, &name, &kind, &full, &scale, &set, &extra); err != nil {
			return l, err
		}
		for len(l.columns) < position {
			l.columns = append(l.columns, typed{})
		}
		code, ok := codes[kind]
		if !ok || strings.HasSuffix(full, "*/") || code >= gomysql.MYSQL_TYPE_TIMESTAMP2 && code <= gomysql.MYSQL_TYPE_TIME2 && s.oldTimes {
			return l, follow.Permanent(fmt.Errorf("column %s is of type %s, and rows with such a value cannot be read from the binary log: %s, or use follow: poll", name, full, remedyFor(kind, full)))
		}
		l.columns[position-1] = typed{name, code}
		for i, wanted := range names {
			if !strings.EqualFold(name, wanted) {
				continue
			}
			c := &l.ids[i]
			c.name, c.index = name, position-1
			if scale != 0 {
				kind = full
			}
			err := c.setType(kind, full, set)
			if err == nil && strings.Contains(extra, "VIRTUAL") {
				err = errors.New("it is VIRTUAL, and rows in the log may lack it: make it STORED, or use follow: poll")
			}
			if err != nil {
				return l, follow.Permanent(fmt.Errorf("column %s: %w", c.name, err))
			}
		}
	}
	if err := rows.Err(); err != nil {
		return l, explain(err)
	}
	for i, c := range l.ids {
		if c.name == "" {
			return l, follow.Permanent(fmt.Errorf("table %s has no column %s, or the user may not see it: GRANT SELECT", table, names[i]))
		}
	}
	return l, nil
}

// checkCascades returns an error if a foreign key changes IDs: the server does not log such changes. A
// user who may read single columns only does not see such a key.
func (a *serverClient) checkCascades(ctx context.Context, table tableName, names []string) error {
	for _, name := range names {
		var key string
		err := a.db.QueryRowContext(ctx, `SELECT k.CONSTRAINT_NAME FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS r
			ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME AND r.TABLE_NAME = k.TABLE_NAME
			WHERE k.TABLE_SCHEMA = ? AND k.TABLE_NAME = ? AND k.COLUMN_NAME = ? AND r.UPDATE_RULE = 'CASCADE' LIMIT 1`,
			table.schema, table.name, name).Scan(&key)
		switch {
		case err == nil:
			return follow.Permanent(fmt.Errorf("column %s changes by foreign key %s with ON UPDATE CASCADE, and such changes are not in the binary log: drop that clause, or use follow: poll", name, key))
		case !errors.Is(err, sql.ErrNoRows):
			return explain(err)
		}
	}
	return nil
}

// remedyFor returns what to do about a column of a type that cannot be decoded.
func remedyFor(kind, full string) string {
	switch {
	case strings.Contains(full, "compressed"):
		return "store it without COMPRESSED"
	case slices.Contains([]string{"time", "datetime", "timestamp"}, kind):
		return "set mysql56_temporal_format=ON and rebuild the table (ALTER TABLE ... FORCE)"
	}
	return "change its type"
}

// quote quotes an identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// decode decodes the rows of this table, if all of their columns are known. It skips other tables:
// they are most of the log, and may have types that the library cannot decode.
func (l *layout) decode(e *replication.RowsEvent, data []byte) error {
	pos, err := e.DecodeHeader(data)
	if err != nil {
		if e.TableID == noTableID {
			return nil
		}
		return err
	}
	if !l.table.matches(e.Table) || e.Type() == replication.EnumRowsEventTypeDelete || l.check(e.Table) != nil {
		return nil
	}
	return e.DecodeData(pos, data)
}

// check returns an error unless rows have the columns of the table, and all of their types are known.
func (l *layout) check(t *replication.TableMapEvent) error {
	named := len(t.ColumnName) > 0
	if n := len(l.columns); !named && (len(t.ColumnType) < n || len(t.ColumnType) > n && !l.restricted) {
		return fmt.Errorf("%w: rows were written with %d columns, but the table has %d; set binlog_row_metadata=FULL",
			follow.ErrUnsure, len(t.ColumnType), n)
	}
	for i, code := range t.ColumnType {
		var want typed
		if i < len(l.columns) {
			want = l.columns[i]
		}
		if named && !strings.EqualFold(want.name, string(t.ColumnName[i])) {
			want = l.named(string(t.ColumnName[i]))
		}
		if want.name != "" && code != want.code || !l.known[code] {
			return fmt.Errorf("%w: rows were written whose column %d (%s) has type %d in the log, which is another than in the table, or cannot be read; use follow: poll",
				follow.ErrUnsure, i+1, cmp.Or(want.name, "not shown to the user"), code)
		}
	}
	return nil
}

// named returns the column of a name, the zero column if the user sees none.
func (l *layout) named(name string) typed {
	for _, c := range l.columns {
		if strings.EqualFold(c.name, name) {
			return c
		}
	}
	return typed{}
}
