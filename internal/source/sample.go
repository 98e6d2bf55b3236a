package source

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/orderid"
)

// sampleRows is the number of rows of each part of a sample: the oldest, the newest and random
// ones.
const sampleRows = 3

// Sample is a few rows of a table.
type Sample struct {
	Column   string // of the IDs, with those of their parts before it
	Largest  string // the largest number that the ID column can hold; "": it is no integer
	Type     string // of the ID column
	Rows     []SampleRow
	Warnings []string // what will be slow or unsafe
	// Ahead is how far the database's clock is ahead of this machine's, at least; negative: behind.
	Ahead time.Duration
}

// SampleRow is one row: its place, as "id = 7", and its ID, or the reason why it has none.
type SampleRow struct{ Where, ID, Reason string }

// Sample reads the oldest rows, the newest, and random ones between them. Each query reads a few entries of the cursor's index.
func (t *Table) Sample(ctx context.Context) (Sample, error) {
	var s Sample
	err := t.withConn(ctx, func(c conn, l *layout) error {
		s.Column, s.Type, s.Largest, s.Warnings = l.idName(), l.id.typ, largestOf(l.id.typ), l.warnings
		before := time.Now()
		there, err := l.serverTime(ctx, c)
		if err != nil {
			return err
		}
		s.Ahead = max(time.Until(there), 0) - max(before.Sub(there), 0)
		return l.sample(ctx, c, &s)
	})
	if err != nil {
		return s, fmt.Errorf("sampling %s: %w", t.name, err)
	}
	return s, nil
}

func (l *layout) sample(ctx context.Context, c conn, s *Sample) error {
	list, at := l.selectList()
	seen := make(map[string]bool) // by the place in the order
	var ends []Position           // of the rows, in the order of reading
	read := func(q *statement) error {
		var failure error
		err := c.query(ctx, q, func(columns [][]byte) {
			id, cursor, tie := columns[at[0]], columns[at[1]], columns[at[2]]
			place, err := l.position(cursor, tie)
			if err != nil {
				failure = err
				return
			}
			ends = append(ends, place)
			if key := place.Cursor + "\x00" + place.Tie; !seen[key] {
				seen[key] = true
				s.Rows = append(s.Rows, l.sampleRow(id, place.Cursor))
			}
		})
		if err == nil {
			err = failure
		}
		return err
	}
	none := func(*statement) []string { return nil }
	for _, direction := range []string{"", " DESC"} {
		if err := read(l.rowsQuery(list, direction, sampleRows, false, none)); err != nil {
			return err
		}
	}
	if len(ends) == 0 {
		return nil
	}
	first, last := ends[0], ends[len(ends)/2]
	for range sampleRows {
		behind := first // with its tie, which has the column's type
		var ok bool
		if behind.Cursor, ok = between(l.cursor.typ, first.Cursor, last.Cursor); !ok {
			return nil
		}
		if err := read(l.pageQuery(Span{From: behind}, 1)); err != nil {
			return err
		}
	}
	return nil
}

// Found is what [Table.Elsewhere] finds.
type Found struct {
	Column string // the column that has most of the IDs; "": none has any
	IDs    int    // how many it has
	Asked  int    // how many columns were searched
}

const (
	maxElsewhere     = 8 // columns that are searched
	elsewhereTimeout = time.Second
)

// Elsewhere looks up IDs in other columns than that of the IDs: those that an index begins with, and
// that the user may read.
func (t *Table) Elsewhere(ctx context.Context, ids []string) (Found, error) {
	var columns []string
	err := t.withConn(ctx, func(_ conn, l *layout) error {
		columns = slices.DeleteFunc(l.indexed, func(name string) bool { return name == l.id.name })
		return nil
	})
	if err != nil {
		return Found{}, fmt.Errorf("searching %s: %w", t.name, err)
	}
	var found Found
	for _, column := range columns[:min(len(columns), maxElsewhere)] {
		n, err := t.countIn(ctx, column, ids)
		if err != nil {
			continue // no right, or a type that no ID has
		}
		found.Asked++
		if n > found.IDs {
			found.Column, found.IDs = column, n
		}
	}
	return found, nil
}

// countIn returns how many of the IDs a column has.
func (t *Table) countIn(ctx context.Context, column string, ids []string) (n int, err error) {
	opts := t.opts
	opts.IDColumn, opts.CursorColumn = column, column
	c, err := NewConfirmer(opts, ConfirmerOptions{Timeout: elsewhereTimeout, MaxQueries: 1})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if err := c.Check(ctx); err != nil {
		return 0, err
	}
	for _, id := range ids {
		has, err := c.Exists(ctx, id)
		if err != nil {
			return 0, err
		}
		if has {
			n++
		}
	}
	return n, nil
}

// sampleRow returns a row of a sample.
func (l *layout) sampleRow(id []byte, cursor string) SampleRow {
	row := SampleRow{Where: l.cursor.name + " = " + string(truncate([]byte(cursor))), ID: string(id)}
	switch {
	case id == nil:
		row.Reason = l.idName() + " is NULL"
	case l.isMiscomposed(row.ID):
		row.Reason = l.idName() + ": one is empty, or has a slash"
	default:
		row.Reason = orderid.Check(id)
	}
	return row
}

// largestOf returns the largest number of an integer type; "": it is no integer.
func largestOf(typ string) string {
	name, _, _ := strings.Cut(typ, "(")
	name, _, _ = strings.Cut(name, " ")
	bits := map[string]int{
		"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64,
	}[name]
	if bits == 0 {
		return ""
	}
	if !strings.Contains(typ, "unsigned") {
		bits--
	}
	return strconv.FormatUint(1<<bits-1, 10)
}

// warnNarrow adds a warning if the rules accept numbers that the ID column cannot hold.
func (l *layout) warnNarrow(wider func(most string) bool) {
	if most := largestOf(l.id.typ); most != "" && wider != nil && wider(most) {
		l.warn("%s", Narrow(l.id.name, l.id.typ, most))
	}
}

// Narrow says what to do if rules accept numbers that an ID column cannot hold.
func Narrow(column, typ, most string) string {
	word := map[string]string{"2147483647": "int32", "4294967295": "uint32", "9223372036854775807": "int64"}[most]
	if word == "" {
		word = most
	}
	return fmt.Sprintf("the ID column %s of type %s holds no number above %s, and the rule accepts larger ones, "+
		"which a backend may read as the number of an order: set max: %s in the rule's id", column, typ, most, word)
}
