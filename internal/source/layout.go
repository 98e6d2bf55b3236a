package source

import (
	"fmt"
	"slices"
	"time"
)

// layout is what was found out about a table, and how its columns are asked for.
type layout struct {
	kind     Kind
	table    string // quoted
	ordered  string // the same with a hint at the index that has the order; or just the same
	identity string // names table and columns in a [Position]

	id     column
	cursor column
	tie    *column // orders rows of the same cursor; nil if there are none

	estimate      int64         // of rows, 0 if unknown
	autoIncrement bool          // the database itself counts the cursor up
	ascending     bool          // new rows come at the end: it is counted, or the options say so
	resolution    time.Duration // within which cursors may be equal, or out of order
	warnings      []string
}

// column is a column as it is asked for: its own order, its text.
type column struct {
	name     string
	typ      string // for people
	place    string // in the table: another column may take the name
	sql      string // what is compared and ordered by
	out      string // what is selected, a text that in makes the same value of again
	in       string // around a parameter: a format with one %s
	number   bool   // the parameter is a whole number
	nullable bool
	exact    bool // values that compare as equal are the same text

	resolution time.Duration // see layout.resolution
}

// index is an index on whole columns, all in ascending order.
type index struct {
	name    string
	columns []string
	unique  bool
	primary bool
}

// indexes are those of a table.
type indexes struct {
	all []index
	// appended tells that every index ends with the primary key, as InnoDB's do.
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

// unique reports whether some of the columns together can have no value twice.
func (x indexes) unique(columns ...string) bool {
	return slices.ContainsFunc(x.all, func(one index) bool {
		return one.unique && !slices.ContainsFunc(one.columns, func(c string) bool { return !slices.Contains(columns, c) })
	})
}

// primaryKey returns the one column of the primary key, "" if there are more.
func (x indexes) primaryKey() string {
	for _, one := range x.all {
		if one.primary && len(one.columns) == 1 {
			return one.columns[0]
		}
	}
	return ""
}

// order chooses the column that orders rows of the same cursor, and the index. Rows
// that neither tells apart would be missed where a batch ends between them, unless
// they have the same ID. The primary key is nil if it cannot be used.
func (l *layout) chooseOrder(x indexes, primary *column, bytewise func(column) column) (chosen *index) {
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

// advise adds a warning about the index that there is not.
func (l *layout) warnMissingIndex(x indexes, chosen *index) {
	switch {
	case chosen != nil:
	case x.on(l.cursor.name) == nil:
		l.warn("no index begins with the cursor column %s: the whole table is sorted for every batch", l.cursor.name)
	default:
		l.warn("rows with the same %s are sorted for every batch: an index on (%s, %s) would spare it", l.cursor.name, l.cursor.name, l.tie.name)
	}
}

func (l *layout) warn(format string, args ...any) {
	l.warnings = append(l.warnings, fmt.Sprintf(format, args...))
}

// settle derives what follows from the columns.
func (l *layout) derive(ascending bool) {
	l.identity = fmt.Sprintf("%s (%s, %s) of %s by %s (%s, %s)", l.id.name, l.id.place, l.id.typ, l.table, l.cursor.name, l.cursor.place, l.cursor.typ)
	if l.tie != nil {
		l.identity += fmt.Sprintf(", %s %s", l.tie.sql, l.tie.typ)
	}
	l.ascending = ascending || l.autoIncrement
	l.resolution = l.cursor.resolution
	if !l.ascending {
		l.warn("the database does not count the cursor column %s of type %s up, so new rows may come anywhere: "+
			"catching up reads the whole table. If each new row has a greater %s than all before it, set ascending: true",
			l.cursor.name, l.cursor.typ, l.cursor.name)
	}
}
