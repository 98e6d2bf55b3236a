package binlog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/ordergate/ordergate/internal/source/follow"
)

// column is the position and type of the ID, or of a part of it, in a row, as of the last query.
type column struct {
	name     string // in the spelling of the table
	index    int    // from 0
	bits     int    // size of an integer
	unsigned bool
	text     bool
	ascii    bool // text in a character set of which only ASCII can be decoded
}

// integers are the integer types with their bits.
var integers = map[string]int{"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

// otherTypes are the other supported types, and whether they are text.
var otherTypes = map[string]bool{"decimal": false, "char": true, "varchar": true}

// setType derives the fields that depend on the column's type.
func (c *column) setType(kind, full, charset string) error {
	var ok bool
	c.text, ok = otherTypes[kind]
	c.bits = integers[kind]
	if c.bits == 0 && (!ok || strings.HasSuffix(full, "zerofill")) {
		return fmt.Errorf("IDs of type %s cannot be read from the binary log; integers, decimal without fraction, char and varchar can", full)
	}
	c.unsigned = strings.Contains(full, "unsigned")
	switch {
	case !c.text || strings.HasPrefix(charset, "utf8"):
	case slices.Contains([]string{"ascii", "latin1", "latin2", "latin5", "latin7"}, charset):
		c.ascii = true
	default:
		return fmt.Errorf("text in character set %s cannot be read from the binary log; utf8mb4, ascii and latin1 can", charset)
	}
	return nil
}

// indexIn returns the index of the ID in a row. If the log names the columns
// (binlog_row_metadata=FULL), the index is certain. If not, a change of the table is in the log behind
// the rows.
func (c *column) indexIn(t *replication.TableMapEvent) (index int, err error) {
	if len(t.ColumnName) == 0 {
		return c.index, nil
	}
	for i, name := range t.ColumnName {
		if strings.EqualFold(string(name), c.name) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: rows were written without column %s", follow.ErrUnsure, c.name)
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
