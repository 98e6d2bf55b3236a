package source

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// statement is an SQL text with the values of its parameters.
type statement struct {
	kind Kind
	text string
	args []arg
	// prepared means that it is executed repeatedly, with other values.
	prepared bool
}

// arg is the value of a parameter, as the database wrote it.
type arg struct {
	text   string
	number bool // an integer; else a text that the database converts
}

// newStatement returns a statement that does not use the table's columns.
func newStatement(kind Kind, text string, values ...string) *statement {
	s := &statement{kind: kind, text: text}
	for _, v := range values {
		s.args = append(s.args, arg{text: v})
	}
	return s
}

// bind adds a value of a column and returns its placeholder.
func (s *statement) bind(c *column, value string) string {
	s.args = append(s.args, arg{text: value, number: c.number})
	mark := "?"
	if s.kind == Postgres {
		mark = "$" + strconv.Itoa(len(s.args))
	}
	return fmt.Sprintf(c.in, mark)
}

// compare returns the condition that a row is at, after or before a position, by op (>, >= or <=).
// PostgreSQL uses an index for (a, b) > (x, y), and not for the written-out form. MySQL and MariaDB
// do the reverse.
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

// selectList returns the expressions to select, and the indexes of the ID, the cursor and the tie
// among them.
func (l *layout) selectList() (list string, at [3]int) {
	var columns []string
	for i, out := range []string{l.composed(), l.cursor.out, l.lastOrderColumn().out} {
		at[i] = slices.Index(columns, out)
		if at[i] < 0 {
			at[i] = len(columns)
			columns = append(columns, out)
		}
	}
	return strings.Join(columns, ", "), at
}

// lastOrderColumn returns the last column of the order.
func (l *layout) lastOrderColumn() *column {
	if l.tie != nil {
		return l.tie
	}
	return &l.cursor
}

// orderBy returns the columns of the order, each with the direction.
func (l *layout) orderBy(direction string) string {
	by := l.cursor.sql + direction
	if l.tie != nil {
		by += ", " + l.tie.sql + direction
	}
	return by
}

// pageQuery selects the first rows of a span.
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

// lastRowQuery selects the last row.
func (l *layout) lastRowQuery() *statement {
	list, _ := l.selectList()
	return l.rowsQuery(list, " DESC", 1, false, func(*statement) []string { return nil })
}

// existsQuery selects a row at a position or after it.
func (l *layout) existsQuery(at Position) *statement {
	return l.rowsQuery("1", "", 1, false, func(s *statement) []string { return []string{s.compare(l, ">=", at)} })
}

// rowsQuery selects rows that have a position in the order: a NULL has none.
func (l *layout) rowsQuery(list, direction string, limit int, prepared bool, conditions func(*statement) []string) *statement {
	s := &statement{kind: l.kind, prepared: prepared}
	where := conditions(s)
	for _, c := range []*column{&l.cursor, l.tie} {
		if c != nil && c.nullable {
			where = append(where, c.sql+" IS NOT NULL")
		}
	}
	s.text = fmt.Sprintf("SELECT %s FROM %s%s ORDER BY %s LIMIT %d", list, l.ordered, whereAll(where), l.orderBy(direction), limit)
	return s
}

// nullsQuery selects the ID and cursor of rows without a position, since a column is NULL. It finds
// rows without a cursor anywhere, and the others after a position.
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
