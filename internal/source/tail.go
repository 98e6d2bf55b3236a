package source

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Tail calls yield with the ID of every row that was committed before the call and
// that the mark does not leave out: for the zero mark all of them. It returns the
// mark for the next call. It blocks until then, until an error, or until ctx ends;
// beside an error it returns how far it came, which is good to go on from.
//
// After each batch, whose IDs have all been given to yield, each (which may be nil)
// gets the mark of then: kept as JSON, with what yield has got, it is good to go on
// from in another process. In the first [TableOptions] Overlap of a long read it does
// not move yet.
//
// A mark that does not hold any more is dropped, which the log says: one of other
// columns, or one behind the end of the table.
//
// What [Table.Read] says of IDs, bad rows and errors holds here, but that bad rows
// are not told in the log: the caller may come back every second.
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

// all reads the table from the beginning: rows may have come anywhere.
func (s *scan) readAll(ctx context.Context) error {
	if err := s.reportNulls(ctx, Position{}); err != nil {
		return err
	}
	return s.read(ctx, Span{}, func(*batch) error { return nil })
}

// tail reads what a mark leaves to read, and moves the mark.
func (s *scan) readTail(ctx context.Context, mark *Mark, each func(Mark) error) error {
	for _, at := range mark.positions() {
		if s.layout.checkPosition(at) != nil {
			s.dropMark(mark, "it was kept of another table, or of other columns")
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
	there, err := s.serverTime(ctx)
	if err != nil {
		return err
	}
	if err := s.reportNulls(ctx, mark.Floor); err != nil || !found {
		return err
	}
	p := mark.newPass(there, s.opts.Overlap+s.layout.resolution)
	if row, ok := p.lastBound(); ok {
		if reaches, err := s.hasRowFrom(ctx, row); err != nil {
			return err
		} else if !reaches {
			p.dropBounds()
		}
	}
	for i, span := range p.start(seen, there, last) {
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

// startOver drops a mark that does not hold.
func (s *scan) dropMark(mark *Mark, reason string) {
	defer func() { *mark = Mark{} }()
	if mark.Zero() {
		return // all of it would be read anyway
	}
	s.opts.Logger.Warn("the place up to which a table was read does not hold: all of it is read again",
		"table", s.opts.Table, "place", s.rowName(mark.readUpTo().Cursor), "reason", reason)
	if s.opts.OnMarkDropped != nil {
		s.opts.OnMarkDropped(reason)
	}
}

// last returns the last row's place, if there is a row.
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

// reaches reports whether the table has a row at a place or behind it. If not, its last
// rows were deleted, or it is an older copy, in which new rows come there again.
func (s *scan) hasRowFrom(ctx context.Context, at Position) (there bool, err error) {
	if at.zero() {
		return true, nil
	}
	err = s.conn.query(ctx, s.layout.existsQuery(at), func([][]byte) { there = true })
	if err != nil {
		return false, fmt.Errorf("looking for the place that was kept: %w", err)
	}
	return there, nil
}

// clock returns the server's time: after all that it has answered, and before all that
// it will be asked.
func (s *scan) serverTime(ctx context.Context) (now time.Time, err error) {
	text := "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
	if s.layout.kind == Postgres {
		text = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	}
	var micros int64
	var bad error
	err = s.conn.query(ctx, newStatement(s.layout.kind, text), func(columns [][]byte) {
		micros, bad = strconv.ParseInt(string(columns[0]), 10, 64)
	})
	if err = errors.Join(err, bad); err != nil {
		return now, fmt.Errorf("asking the server for its time: %w", err)
	}
	return time.UnixMicro(micros).UTC(), nil
}
