package source

import (
	"fmt"
	"slices"
	"time"
)

// layout is the structure of a table, and how to query its columns.
type layout struct {
	kind     Kind
	table    string // quoted
	ordered  string // the same, with a hint for the index that has the order if need be
	identity string // identifies table and columns in a [Position]

	id     column
	parts  []column // of the IDs, in their order
	cursor column
	tie    *column // orders rows with equal cursors; nil if there are none

	indexed []string // the columns that an index begins with

	estimate      int64         // of the number of rows, 0 if unknown
	autoIncrement bool          // the database itself increments the cursor
	ascending     bool          // new rows come at the end: by autoIncrement or by the options
	resolution    time.Duration // cursors within it may be equal, or out of order
	warnings      []string
}

// column is a column as it is queried: its order and its text.
type column struct {
	name     string
	typ      string // for messages
	ordinal  string // its number in the table: another column may take its name
	sql      string // the expression that is compared and ordered by
	out      string // the expression that is selected, a text; in converts it back
	in       string // format around a parameter, with one %s
	number   bool   // the parameter is an integer
	nullable bool
	exact    bool // equal values have equal texts

	family    family // of the type
	collation string // of a text, in SQL; "": its bytes are compared
	value     string // format around a text, the value that the column compares it as; "" with otherFamily

	resolution time.Duration // see layout.resolution
}

// index is an index on whole columns, all in ascending order.
type index struct {
	name    string
	columns []string
	unique  bool
	primary bool
}

// indexes are those of one table.
type indexes struct {
	all []index
	// appended means that every index ends with the primary key, as in InnoDB.
	appended bool
}

// on returns the first index that begins with the columns.
func (x indexes) on(columns ...string) *index {
	key := x.primaryKey()
	for i, one := range x.all {
		whole := one.columns
		if x.appended && !one.primary && key != "" && !slices.Contains(whole, key) {
			whole = append(slices.Clone(whole), key)
		}
		if len(whole) >= len(columns) && slices.Equal(whole[:len(columns)], columns) {
			return &x.all[i]
		}
	}
	return nil
}

// unique reports whether some of the columns are unique together.
func (x indexes) unique(columns ...string) bool {
	return slices.ContainsFunc(x.all, func(one index) bool {
		return one.unique && !slices.ContainsFunc(one.columns, func(c string) bool { return !slices.Contains(columns, c) })
	})
}

// primaryKey returns the column of the primary key, "" if it has several.
func (x indexes) primaryKey() string {
	for _, one := range x.all {
		if one.primary && len(one.columns) == 1 {
			return one.columns[0]
		}
	}
	return ""
}

// chooseOrder chooses the column that orders rows with equal cursors, and the index. Rows equal in
// both columns would be missed where a batch ends between them, unless they have the same ID.
// primary is nil if it cannot be used.
func (l *layout) chooseOrder(x indexes, primary *column, bytewise func(column) column) (chosen *index) {
	for _, one := range x.all {
		if !slices.Contains(l.indexed, one.columns[0]) {
			l.indexed = append(l.indexed, one.columns[0])
		}
	}
	if len(l.parts) > 0 {
		return l.chooseOrderOfParts(x, primary)
	}
	if x.unique(l.cursor.name) || l.cursor.name == l.id.name && l.id.exact {
		return x.on(l.cursor.name)
	}
	id := l.id
	id.exact = id.exact || x.unique(l.cursor.name, id.name)
	if id.exact && !id.nullable {
		if one := x.on(l.cursor.name, id.name); one != nil {
			l.tie = &id
			return one
		}
	}
	if primary != nil {
		if one := x.on(l.cursor.name, primary.name); one != nil {
			l.tie = primary
			return one
		}
	}
	switch {
	case id.exact && !id.nullable:
		l.tie = &id
	case primary != nil:
		l.tie = primary
	case id.exact:
		l.tie = &id
	default:
		id = bytewise(id)
		l.tie = &id
	}
	return nil
}

// warnMissingIndex adds a warning if no index fits.
func (l *layout) warnMissingIndex(x indexes, chosen *index) {
	switch {
	case chosen != nil:
	case x.on(l.cursor.name) == nil:
		l.warn("no index begins with the cursor column %s: the whole table is sorted for every batch", l.cursor.name)
	default:
		l.warn("rows with the same %s are sorted for every batch: an index on (%s, %s) would avoid that", l.cursor.name, l.cursor.name, l.tie.name)
	}
}

func (l *layout) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// derive sets the fields that depend on the columns.
func (l *layout) derive(ascending bool) {
	l.identity = fmt.Sprintf("%s (%s, %s) of %s by %s (%s, %s)", l.id.name, l.id.ordinal, l.id.typ, l.table, l.cursor.name, l.cursor.ordinal, l.cursor.typ)
	if l.tie != nil {
		l.identity += fmt.Sprintf(", %s %s", l.tie.sql, l.tie.typ)
	}
	l.identity += l.partsIdentity()
	l.ascending = ascending || l.autoIncrement
	l.resolution = l.cursor.resolution
	if !l.ascending {
		l.warn("the database does not fill the cursor column %s of type %s in ascending order, so new rows may appear anywhere: "+
			"catching up reads the whole table. If each new row has a greater %s than all before it, set ascending: true",
			l.cursor.name, l.cursor.typ, l.cursor.name)
	}
}
