package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// column is the position and type of the ID, or of a part of it, in a row, as of the last query.
type column struct {
	name       string // in the spelling of the table
	index      int    // from 0
	columns    int    // number of columns that the user may see
	restricted bool   // the table may have more columns
	bits       int    // size of an integer
	unsigned   bool
	ascii      bool // text in a character set of which only ASCII can be decoded
}

// integers are the integer types with their bits.
var integers = map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

// otherTypes are the other supported types, and whether they are text.
var otherTypes = map[string]bool{"decimal": false, "char": true, "varchar": true}

// engines are those whose rows are logged under the table's own name, and by this server only. A
// MRG_MyISAM or FEDERATED table has the rows of other tables.
var engines = []string{"InnoDB", "ROCKSDB", "Aria", "MyISAM"}

// checkTable returns an error if the log does not have the table's rows under its name.
func (a *serverClient) checkTable(ctx context.Context, table tableName) error {
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
	case !slices.Contains(engines, engine.String):
		return follow.Permanent(fmt.Errorf("%s is a table of %s, whose rows may come under other names: use follow: poll", table, engine.String))
	}
	return nil
}

// describeColumns reads the columns of IDs. An unsuitable column is a permanent error. It returns
// the table's name as the log has it, which may differ in case.
func (a *serverClient) describeColumns(ctx context.Context, table tableName, names []string) (all []column, found tableName, err error) {
	if err := a.checkTable(ctx, table); err != nil {
		return nil, found, err
	}
	// This waits for a change of the table that is already logged. The catalogue may show such a
	// change later.
	if _, err := a.db.ExecContext(ctx, "SELECT 1 FROM "+quote(table.schema)+"."+quote(table.name)+" LIMIT 0"); err != nil {
		return nil, found, explain(err)
	}
	rows, err := a.db.QueryContext(ctx, `SELECT TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION, COLUMN_NAME,
		DATA_TYPE, COLUMN_TYPE, NUMERIC_SCALE, CHARACTER_SET_NAME
		FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION`, table.schema, table.name)
	if err != nil {
		return nil, found, explain(err)
	}
	defer func() { _ = rows.Close() }() // Err reports errors
	all = make([]column, len(names))
	types := make([][3]string, len(names)) // the kind of type, its full name, its character set
	last := 0
	for rows.Next() {
		var name, dataType, columnType string
		var position int
		var scale sql.NullInt64
		var set sql.NullString
		if err := rows.Scan(&found.schema, &found.name, &position, &name, &dataType, &columnType, &scale, &set); err != nil {
			return nil, found, err
		}
		last = position
		for i, wanted := range names {
			if !strings.EqualFold(name, wanted) {
				continue
			}
			all[i].name, all[i].index = name, position-1
			types[i] = [3]string{strings.ToLower(dataType), strings.ToLower(columnType), set.String}
			if scale.Int64 != 0 {
				types[i][0] = types[i][1]
			}
		}
	}
	if err := rows.Err(); err != nil {
		return nil, found, explain(err)
	}
	restricted := false
	if err := a.db.QueryRowContext(ctx, `SELECT COUNT(*) > 0 FROM information_schema.COLUMN_PRIVILEGES
		WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?`, table.schema, table.name).Scan(&restricted); err != nil {
		return nil, found, explain(err)
	}
	for i := range all {
		c := &all[i]
		c.columns, c.restricted = last, restricted
		if c.name == "" {
			return nil, found, follow.Permanent(fmt.Errorf("table %s has no column %s, or the user may not see it: GRANT SELECT", table, names[i]))
		}
		if err := c.setType(types[i][0], types[i][1], types[i][2]); err != nil {
			return nil, found, follow.Permanent(fmt.Errorf("column %s: %w", c.name, err))
		}
	}
	return all, found, nil
}

// quote quotes an identifier.
func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// setType derives the fields that depend on the column's type.
func (c *column) setType(kind, full, charset string) error {
	text, ok := otherTypes[kind]
	c.bits = integers[kind]
	if c.bits == 0 && (!ok || strings.HasSuffix(full, "zerofill")) {
		return fmt.Errorf("IDs of type %s cannot be read from the binary log; integers, decimal without fraction, char and varchar can", full)
	}
	c.unsigned = strings.Contains(full, "unsigned")
	switch {
	case !text || strings.HasPrefix(charset, "utf8"):
	case slices.Contains([]string{"ascii", "latin1", "latin2", "latin5", "latin7"}, charset):
		c.ascii = true
	default:
		return fmt.Errorf("text in character set %s cannot be read from the binary log; utf8mb4, ascii and latin1 can", charset)
	}
	return nil
}

// indexIn returns the index of the ID in a row. If the log names the columns
// (binlog_row_metadata=FULL), the index is certain. If not, only the number of columns is compared.
// A change of the table is then in the log behind the rows.
func (c *column) indexIn(t *replication.TableMapEvent) (index int, err error) {
	if len(t.ColumnName) > 0 {
		for i, name := range t.ColumnName {
			if strings.EqualFold(string(name), c.name) {
				return i, nil
			}
		}
		return 0, fmt.Errorf("%w: rows were written without column %s", follow.ErrUnsure, c.name)
	}
	if n := uint64(c.columns); t.ColumnCount < n || t.ColumnCount > n && !c.restricted {
		return 0, fmt.Errorf("%w: rows were written with %d columns, but the table has %d; set binlog_row_metadata=FULL",
			follow.ErrUnsure, t.ColumnCount, c.columns)
	}
	return c.index, nil
}

// textOf returns the text of a value as SELECT would show it, without leading zeros. Or it returns
// the reason why it is no ID. With signed, the log does not show which numbers are unsigned.
func (c *column) textOf(value any, signed bool) (text, bad string) {
	switch v := value.(type) {
	case nil:
		return "", "the ID is NULL"
	case string:
		if c.ascii && !ascii(v) {
			return "", "the ID is neither ASCII nor UTF-8"
		}
		text = strings.Clone(v) // else it would keep the whole event alive
	case int8, int16, int32, int64, uint8, uint16, uint32, uint64:
		text = c.number(v, signed)
	default:
		return "", fmt.Sprintf("the ID is neither a number nor text (%T)", value)
	}
	return text, ""
}

// number returns the decimal digits. With signed, an unsigned number comes as the signed one with
// the same bits.
func (c *column) number(value any, signed bool) string {
	var n int64
	switch v := value.(type) {
	case uint8:
		n = int64(v)
	case uint16:
		n = int64(v)
	case uint32:
		n = int64(v)
	case uint64:
		return strconv.FormatUint(v, 10)
	case int8:
		n = int64(v)
	case int16:
		n = int64(v)
	case int32: // or 24 bits
		n = int64(v)
	case int64:
		n = v
	}
	if signed && c.unsigned {
		unused := 64 - c.bits
		return strconv.FormatUint(uint64(n)<<unused>>unused, 10)
	}
	return strconv.FormatInt(n, 10)
}
