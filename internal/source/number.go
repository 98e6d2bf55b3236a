package source

import (
	"slices"
	"strconv"
	"strings"
)

// integers are the types of whole numbers, by the names that the databases give them.
var integers = []string{"tinyint", "smallint", "mediumint", "int", "bigint", "integer"}

// numbered reports whether the IDs are whole numbers, and new rows have greater ones.
func (l *layout) numbered() bool {
	typ, _, _ := strings.Cut(l.cursor.typ, "(")
	typ, _, _ = strings.Cut(typ, " ")
	return l.ascending && l.id.name == l.cursor.name && slices.Contains(integers, typ)
}

// Number returns up to which number Tail has told of all IDs that the table has or will
// ever have, where these are [Report].Numbered; 0: up to none.
func (m Mark) Number() uint64 {
	n, err := strconv.ParseUint(m.Floor.Cursor, 10, 64)
	if err != nil {
		return 0 // there is none, or it is less than that
	}
	return n
}
