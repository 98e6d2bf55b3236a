package source

import (
	"slices"
	"strconv"
	"strings"
)

// integers are the integer types, by their names in the databases.
var integers = []string{"tinyint", "smallint", "mediumint", "int", "bigint", "integer"}

// numbered reports whether the IDs are integers, and new rows have greater ones.
func (l *layout) numbered() bool {
	typ, _, _ := strings.Cut(l.cursor.typ, "(")
	typ, _, _ = strings.Cut(typ, " ")
	return l.ascending && len(l.parts) == 0 && l.id.name == l.cursor.name && slices.Contains(integers, typ)
}

// Number returns the number up to which Tail has yielded every ID that the table has or will have,
// if the IDs are [Report].Numbered; 0: none.
func (m Mark) Number() uint64 {
	n, err := strconv.ParseUint(m.Floor.Cursor, 10, 64)
	if err != nil {
		return 0 // there is no floor, or it is negative
	}
	return n
}
