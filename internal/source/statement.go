package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// statement is an SQL text and the values of its parameters.
type statement struct {
	kind Kind
	text string
	args []arg
	// kept says that it will be asked again, with other values.
	prepared bool
}

// arg is the value of a parameter, as the database wrote it.
type arg struct {
	text   string
	number bool // a whole number; else a text, which the database makes a value of
}

// ask returns a statement without columns of the table.
func newStatement(kind Kind, text string, values ...string) *statement {
	s := &statement{kind: kind, text: text}
	for _, v := range values {
		s.args = append(s.args, arg{text: v})
	}
	return s
}

// bind adds a value of a column and returns what stands for it in the text.
func (s *statement) bind(c *column, value string) string {
	s.args = append(s.args, arg{text: value, number: c.number})
	mark := "?"
	if s.kind == Postgres {
		mark = "$" + strconv.Itoa(len(s.args))
	}
	return fmt.Sprintf(c.in, mark)
}

// compare returns the condition that a row stands to a place as op (>, >= or <=)
// says. PostgreSQL finds rows (a, b) > (x, y) by an index, and none of the same
// written out; MySQL and MariaDB do just the reverse.
func (s *statement) compare(l *layout, op string, at Position) string {
	c := &l.cursor
	switch {
	case l.tie == nil:
		return fmt.Sprintf("%s %s %s", c.sql, op, s.bind(c, at.Cursor))
	case s.kind == Postgres:
		return fmt.Sprintf("(%s, %s) %s (%s, %s)", c.sql, l.tie.sql, op, s.bind(c, at.Cursor), s.bind(l.tie, at.Tie))
	}
	return fmt.Sprintf("(%s %s %s OR %s = %s AND %s %s %s)",
		c.sql, op[:1], s.bind(c, at.Cursor), c.sql, s.bind(c, at.Cursor), l.tie.sql, op, s.bind(l.tie, at.Tie))
}

// selected returns what is selected of each row, and where the ID, the cursor and
// the tie are in it.
func (l *layout) selectList() (list string, at [3]int) {
	var columns []string
	for i, out := range []string{l.id.out, l.cursor.out, l.lastOrderColumn().out} {
		at[i] = slices.Index(columns, out)
		if at[i] < 0 {
			at[i] = len(columns)
			columns = append(columns, out)
		}
	}
	return strings.Join(columns, ", "), at
}

// tieOrCursor returns the column that orders at last.
func (l *layout) lastOrderColumn() *column {
	if l.tie != nil {
		return l.tie
	}
	return &l.cursor
}

// orderBy returns the order, each column followed by the direction.
func (l *layout) orderBy(direction string) string {
	by := l.cursor.sql + direction
	if l.tie != nil {
		by += ", " + l.tie.sql + direction
	}
	return by
}

// page asks for the first rows of a span.
func (l *layout) pageQuery(span Span, limit int) *statement {
	list, _ := l.selectList()
	return l.rowsQuery(list, "", limit, true, func(s *statement) (where []string) {
		if !span.From.zero() {
			where = append(where, s.compare(l, ">", span.From))
		}
		if !span.To.zero() {
			where = append(where, s.compare(l, "<=", span.To))
		}
		return where
	})
}

// last asks for the last row.
func (l *layout) lastRowQuery() *statement {
	list, _ := l.selectList()
	return l.rowsQuery(list, " DESC", 1, false, func(*statement) []string { return nil })
}

// reaches asks for a row at a place or behind it.
func (l *layout) existsQuery(at Position) *statement {
	return l.rowsQuery("1", "", 1, false, func(s *statement) []string { return []string{s.compare(l, ">=", at)} })
}

// rows asks for some of the rows that have a place in the order: a NULL has none.
func (l *layout) rowsQuery(list, direction string, limit int, kept bool, conditions func(*statement) []string) *statement {
	s := &statement{kind: l.kind, prepared: kept}
	where := conditions(s)
	for _, c := range []*column{&l.cursor, l.tie} {
		if c != nil && c.nullable {
			where = append(where, c.sql+" IS NOT NULL")
		}
	}
	s.text = fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s LIMIT %d", list, l.ordered, whereAll(where), l.orderBy(direction), limit)
	return s
}

// nulls asks for some of the rows that have no place, since a column is NULL, by ID
// and cursor. Those without a cursor are found wherever they are, the others behind
// a place.
func (l *layout) nullsQuery(c *column, behind Position, limit int) *statement {
	s := &statement{kind: l.kind}
	where := []string{c.sql + " IS NULL"}
	if c != &l.cursor && !behind.zero() {
		where = append(where, fmt.Sprintf("%s >= %s", l.cursor.sql, s.bind(&l.cursor, behind.Cursor)))
	}
	s.text = fmt.Sprintf("SELECT %s, %s FROM %s%s LIMIT %d", l.id.out, l.cursor.out, l.table, whereAll(where), limit)
	return s
}

func whereAll(conditions []string) string {
	if len(conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}
