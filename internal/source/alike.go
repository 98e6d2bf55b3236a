package source

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/spelling"
)

// family is what decides which texts a column takes for the same.
type family int8

const (
	otherFamily  family = iota // the bytes
	familyText                 // the collation
	familyNumber               // the value
	familyUUID                 // the value
)

// Alike calls do with the columns of an order's parts and its ID, in the order of the full ID. They
// can be asked until do returns.
func (t *Table) Alike(ctx context.Context, do func(columns []spelling.Column) error) error {
	err := t.withConn(ctx, func(c conn, l *layout) error {
		columns, err := l.alike(ctx, c)
		if err != nil {
			return err
		}
		return do(columns)
	})
	if err != nil {
		return fmt.Errorf("comparing texts in %s: %w", t.name, err)
	}
	return nil
}

func (l *layout) alike(ctx context.Context, on conn) (columns []spelling.Column, err error) {
	for _, c := range append(slices.Clip(l.parts), l.id) {
		one, err := c.alike(ctx, on, l.kind)
		if err != nil {
			return nil, fmt.Errorf("column %s: asking which texts it takes for the same: %w", c.name, err)
		}
		columns = append(columns, one)
	}
	return columns, nil
}

// warnTwins warns of texts that the columns take for the same, once. A reading does not fail for it.
func (t *Table) warnTwins(ctx context.Context, on conn, l *layout) {
	if t.opts.Twins == nil || t.asked.Load() {
		return
	}
	columns, err := l.alike(ctx, on)
	if err != nil {
		return // the next connection asks again
	}
	warnings, err := t.opts.Twins(columns)
	if err == nil {
		l.warnings = append(l.warnings, warnings...)
		t.asked.Store(true)
	}
}

// alike asks about each pair of characters, and each character within a text.
func (c *column) alike(ctx context.Context, on conn, kind Kind) (spelling.Column, error) {
	a := spelling.Column{Name: c.name, Type: c.typ, IsNumber: c.family == familyNumber, Equality: *spelling.Bytewise()}
	if c.collation != "" {
		a.Type += ", collation " + c.collation
	}
	a.Same = func(one, other string) (same bool, err error) {
		if c.family == otherFamily {
			return one == other, nil
		}
		s := &statement{kind: kind}
		in := &column{in: "%s"}
		from := " FROM DUAL"
		if kind == Postgres {
			in.in, from = "%s::text", ""
		}
		x, y := fmt.Sprintf(c.value, s.bind(in, one)), fmt.Sprintf(c.value, s.bind(in, other))
		s.text = "SELECT 1" + from + " WHERE " + x + " = " + y
		err = on.query(ctx, s, func([][]byte) { same = true })
		if isNoValue(err) {
			return false, nil
		}
		return same, err
	}
	switch c.family {
	case familyNumber:
		a.Equality.Zeros, a.Equality.Tail = true, true // the database refuses a text that is none
		return a, nil
	case familyUUID:
		for x := byte('a'); x <= 'f'; x++ {
			a.Equality.Same(x, x-'a'+'A')
		}
		a.Equality.Ignored['-'] = true
		return a, nil
	case otherFamily:
		return a, nil
	}
	err := on.query(ctx, c.pairs(kind), func(row [][]byte) {
		one, _ := strconv.Atoi(string(row[0]))
		switch other, _ := strconv.Atoi(string(row[1])); other {
		case ignored:
			a.Equality.Ignored[one] = true
		case zeros:
			a.Equality.Zeros = true
		default:
			a.Equality.Same(byte(one), byte(other))
		}
	})
	return a, err
}

// What a row of [column.pairs] says of its first character, in place of a second one.
const (
	ignored = -1
	zeros   = -2
)

// pairs selects the pairs of visible ASCII characters that a text takes for the same.
func (c *column) pairs(kind Kind) *statement {
	char, concat, dual := "chr(%s)", "'a' || %s || 'a'", ""
	if kind == MySQL {
		char, concat, dual = "CHAR(%s USING ascii)", "CONCAT('a', %s, 'a')", " FROM DUAL"
	}
	var numbers []string
	for n := '!'; n <= '~'; n++ {
		numbers = append(numbers, "SELECT "+strconv.Itoa(int(n))+" AS n")
	}
	list := "(" + strings.Join(numbers, " UNION ALL ") + ")"
	value := func(text string) string { return fmt.Sprintf(c.value, text) }
	of := func(n string) string { return fmt.Sprintf(char, n) }
	return newStatement(kind, fmt.Sprintf("SELECT x.n, y.n FROM %s x JOIN %s y ON x.n < y.n AND %s = %s UNION ALL SELECT x.n, %d FROM %s x WHERE %s = %s UNION ALL SELECT 48, %d%s WHERE %s = %s",
		list, list, value(of("x.n")), value(of("y.n")),
		ignored, list, value(fmt.Sprintf(concat, of("x.n"))), value("'aa'"),
		zeros, dual, value("'a07'"), value("'a7'")))
}
