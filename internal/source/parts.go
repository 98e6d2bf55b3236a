package source

import (
	"fmt"
	"slices"
	"strings"
)

// separator separates the parts of an ID from each other and from the ID: "acme/42".
const separator = "/"

// composed returns the SQL for the full ID of a row, from the columns of its parts and its ID. It
// is NULL if one of them is.
func (l *layout) composed() string {
	if len(l.parts) == 0 {
		return l.id.out
	}
	texts := make([]string, 0, len(l.parts)+1)
	for _, c := range append(slices.Clip(l.parts), l.id) {
		if l.kind == MySQL { // columns may have different character sets
			texts = append(texts, "CONVERT("+c.out+" USING utf8mb4)")
		} else {
			texts = append(texts, "("+c.out+")::text")
		}
	}
	if l.kind == MySQL {
		return "CONCAT(" + strings.Join(texts, ", '"+separator+"', ") + ")"
	}
	return strings.Join(texts, " || '"+separator+"' || ")
}

// idName names the columns of a full ID.
func (l *layout) idName() string {
	names := make([]string, 0, len(l.parts)+1)
	for _, c := range l.parts {
		names = append(names, c.name)
	}
	return strings.Join(append(names, l.id.name), ", ")
}

// composedColumn orders rows by the bytes of their full IDs.
func (l *layout) composedColumn() column {
	c := column{name: l.idName(), typ: "text", sql: l.composed(), out: l.composed(), in: "%s", exact: true, nullable: l.id.nullable}
	for i := range l.parts {
		c.nullable = c.nullable || l.parts[i].nullable
	}
	if l.kind == MySQL {
		c.sql = "CAST(" + c.sql + " AS BINARY)"
		c.out, c.in = "HEX("+c.sql+")", "UNHEX(%s)"
	} else {
		c.sql = "((" + c.sql + `) COLLATE "C")`
	}
	return c
}

// chooseOrderOfParts is chooseOrder for IDs with parts. Rows with equal cursors and the same ID are
// different orders if their parts differ.
func (l *layout) chooseOrderOfParts(x indexes, primary *column) (chosen *index) {
	if x.unique(l.cursor.name) {
		return x.on(l.cursor.name)
	}
	var ties []*column
	for _, c := range append(slices.Clone(l.parts), l.id) {
		// With one part, the cursor and the tie may be the whole ID.
		whole := len(l.parts) == 1 && c.exact && l.cursor.exact && c.name != l.cursor.name &&
			(l.cursor.name == l.id.name || l.cursor.name == l.parts[0].name)
		if (whole || x.unique(l.cursor.name, c.name)) && !c.nullable && c.name != l.cursor.name {
			ties = append(ties, &c)
		}
	}
	if primary != nil {
		ties = append(ties, primary)
	}
	for _, tie := range ties {
		if one := x.on(l.cursor.name, tie.name); one != nil {
			l.tie = tie
			return one
		}
	}
	if len(ties) == 0 {
		c := l.composedColumn()
		ties = append(ties, &c)
	}
	l.tie = ties[0]
	return nil
}

// partsIdentity identifies the columns of the parts; "" without parts.
func (l *layout) partsIdentity() (text string) {
	for _, c := range l.parts {
		text += fmt.Sprintf(" with %s (%s, %s)", c.name, c.ordinal, c.typ)
	}
	return text
}

// isMiscomposed reports whether a part or the ID is empty or has a separator in it. Then another
// order could have the same full ID.
func (l *layout) isMiscomposed(id string) bool {
	return len(l.parts) > 0 && (strings.Count(id, separator) != len(l.parts) ||
		strings.HasPrefix(id, separator) || strings.HasSuffix(id, separator) || strings.Contains(id, separator+separator))
}
