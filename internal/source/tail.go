package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ordergate/ordergate/internal/runbook"
)

// Tail calls yield with the ID of every row that was committed before the call, except those that
// the mark skips. For the zero mark that is every row. It returns the mark for the next call. It
// blocks until the end of the table, until an error, or until ctx ends. Beside an error it returns
// the mark that it has reached, which is valid.
//
// After yield has received a batch, each (which may be nil) receives the present mark. Stored as
// JSON with the IDs, it is valid in another process too. It does not move in the first Overlap of a
// long read, see [TableOptions].
//
// Tail drops and logs a mark that no longer holds: one of other columns, or one behind the end of
// the table.
//
// What [Table.Read] documents for IDs, bad rows and errors holds here too. Tail does not log bad
// rows, since the caller may call it every second.
func (t *Table) Tail(ctx context.Context, mark Mark, yield func(id string) error, each func(Mark) error) (Mark, Report, error) {
	var r Report
	err := t.withConn(ctx, func(c conn, l *layout) error {
		s := t.scan(c, l, &r, yield)
		r.Numbered = l.numbered()
		if mark.Zero() || !l.ascending {
			s.total = l.estimate
		}
		if !l.ascending {
			mark = Mark{}
			return s.readAll(ctx)
		}
		return s.readTail(ctx, &mark, each)
	})
	if err != nil {
		return mark, r, fmt.Errorf("catching up with %s: %w", t.name, err)
	}
	return mark, r, nil
}

// readAll reads the table from the beginning, since new rows may be anywhere.
func (s *scan) readAll(ctx context.Context) error {
	if err := s.reportNulls(ctx, Position{}); err != nil {
		return err
	}
	return s.read(ctx, Span{}, func(*batch) error { return nil })
}

// readTail reads the rows that a mark leaves, and moves the mark.
func (s *scan) readTail(ctx context.Context, mark *Mark, each func(Mark) error) error {
	for _, at := range mark.positions() {
		if s.layout.checkPosition(at) != nil {
			s.dropMark(mark, "it belongs to another table or to other columns")
			break
		}
	}
	last, found, err := s.lastRow(ctx)
	if err != nil {
		return err
	}
	seen := time.Now()
	if reaches, err := s.hasRowFrom(ctx, mark.readUpTo()); err != nil {
		return err
	} else if !reaches {
		s.dropMark(mark, "the table ends in front of it")
	}
	serverTime, err := s.layout.serverTime(ctx, s.conn)
	if err != nil {
		return err
	}
	if err := s.reportNulls(ctx, mark.Floor); err != nil || !found {
		return err
	}
	p := mark.newPass(serverTime, s.opts.Overlap+s.layout.resolution)
	if row, ok := p.lastBound(); ok {
		if reaches, err := s.hasRowFrom(ctx, row); err != nil {
			return err
		} else if !reaches {
			p.dropBounds()
		}
	}
	for i, span := range p.start(seen, serverTime, last) {
		err := s.read(ctx, span, func(b *batch) error {
			p.batchRead(i, b.span, b.began)
			*mark = p.mark
			if each == nil {
				return nil
			}
			return each(p.mark)
		})
		if err != nil {
			return err
		}
		p.spanRead(i)
		*mark = p.mark
	}
	return nil
}

// dropMark drops a mark that no longer holds.
func (s *scan) dropMark(mark *Mark, reason string) {
	defer func() { *mark = Mark{} }()
	if mark.Zero() {
		return // the whole table would be read anyway
	}
	s.opts.Logger.Warn("the stored position in a table is no longer valid: the whole table is read again",
		"table", s.opts.Table, "position", s.rowName(mark.readUpTo().Cursor), "reason", reason,
		runbook.Tables.Do("nothing: ordergate reads the table"))
	if s.opts.OnMarkDropped != nil {
		s.opts.OnMarkDropped(reason)
	}
}

// lastRow returns the position of the last row, if there is one.
func (s *scan) lastRow(ctx context.Context) (at Position, found bool, err error) {
	_, columns := s.layout.selectList()
	var bad error
	err = s.conn.query(ctx, s.layout.lastRowQuery(), func(row [][]byte) {
		found = true
		at, bad = s.layout.position(row[columns[1]], row[columns[2]])
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return at, false, fmt.Errorf("looking for the last row: %w", err)
	}
	return at, found, nil
}

// hasRowFrom reports whether the table has a row at a position or after it. If not, its last rows
// were deleted, or it is an older copy: new rows come before the position.
func (s *scan) hasRowFrom(ctx context.Context, at Position) (found bool, err error) {
	if at.zero() {
		return true, nil
	}
	err = s.conn.query(ctx, s.layout.existsQuery(at), func([][]byte) { found = true })
	if err != nil {
		return false, fmt.Errorf("looking for the stored position: %w", err)
	}
	return found, nil
}

// serverTime returns the server's time: later than all earlier queries, and before all later ones.
func (l *layout) serverTime(ctx context.Context, on conn) (now time.Time, err error) {
	text := "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	if l.kind == Postgres {
		text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	}
	var micros int64
	var bad error
	err = on.query(ctx, newStatement(l.kind, text), func(columns [][]byte) {
		micros, bad = strconv.ParseInt(string(columns[0]), 10, 64)
	})
	if err = errors.Join(err, bad); err != nil {
		return now, fmt.Errorf("asking the server for its time: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}
