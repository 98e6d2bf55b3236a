package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ordergate/ordergate/internal/runbook"
)

var (
	// ErrPosition means that a stored position belongs to another table or to other columns. The
	// rows before it must be read.
	ErrPosition = errors.New("the stored position belongs to another table or to other columns")
	// ErrBadRows means that rows have no usable order ID, see [FailOnBad].
	ErrBadRows = errors.New("rows have no usable order ID")
)

// maxNulls bounds how many rows without a position are counted.
const maxNulls = 10_000

// Read calls yield with the ID of every row after a position, in order, up to the end of the table.
// It blocks until then, until an error, or until ctx ends. After yield has received a batch, each
// (which may be nil) receives the position reached: an interrupted read continues from there. Read
// misses rows that are committed late, at earlier positions: see [Table.Tail].
//
// An ID may share its memory with others: clone one to keep it. Rows with a NULL in an order column
// have no position, and count as bad rows. Errors name the table and the position.
func (t *Table) Read(ctx context.Context, from Position, yield func(id string) error, each func(Position) error) (Report, error) {
	var r Report
	err := t.withConn(ctx, func(c conn, l *layout) error {
		s := t.scan(c, l, &r, yield)
		if from.zero() {
			s.total = l.estimate
		}
		if err := s.reportNulls(ctx, from); err != nil {
			return err
		}
		return s.read(ctx, Span{From: from}, func(b *batch) error {
			if each == nil {
				return nil
			}
			return each(b.span.To)
		})
	})
	if r.Skipped > 0 && err == nil {
		t.opts.Logger.Warn("rows without a usable order ID were skipped", "source", t.name, "skipped", r.Skipped, "first", fmt.Sprint(r.First),
			runbook.BadRows.Do("nothing if they are no orders; otherwise compare id_column with the table"))
	}
	if err != nil {
		return r, fmt.Errorf("reading order IDs from %s: %w", t.name, err)
	}
	return r, nil
}

// scan is a read of one table on one connection.
type scan struct {
	opts   TableOptions
	conn   conn
	layout *layout
	report *Report
	yield  func(id string) error
	pace   pacer
	rows   int64
	total  int64 // estimated, 0 if unknown
}

func (t *Table) scan(c conn, l *layout, r *Report, yield func(string) error) *scan {
	return &scan{opts: t.opts, conn: c, layout: l, report: r, yield: yield, pace: newPacer(t.opts.Pause, t.opts.MaxRate)}
}

// reportNulls reports the rows that no batch contains, since a NULL has no position.
func (s *scan) reportNulls(ctx context.Context, behind Position) error {
	if err := s.layout.checkPosition(behind); err != nil {
		return err
	}
	for _, c := range []*column{&s.layout.cursor, s.layout.tie} {
		if c == nil || !c.nullable {
			continue
		}
		err := s.conn.query(ctx, s.layout.nullsQuery(c, behind, maxNulls), func(columns [][]byte) {
			s.report.addBad(func() string {
				if columns[1] == nil {
					return fmt.Sprintf("the row with %s = %q", s.layout.id.name, truncate(columns[0]))
				}
				return s.rowName(string(truncate(columns[1])))
			}, c.name+" is NULL")
		})
		if err != nil {
			return fmt.Errorf("looking for rows without %s: %w", c.name, err)
		}
	}
	return s.checkBad()
}

// checkPosition returns an error if a position is of another layout.
func (l *layout) checkPosition(at Position) error {
	if !at.zero() && at.Identity != l.identity {
		return fmt.Errorf("%w: it is of %s, this is %s", ErrPosition, at.Identity, l.identity)
	}
	return nil
}

// checkBad returns an error if bad rows must end the read.
func (s *scan) checkBad() error {
	if s.report.Skipped == 0 || s.opts.OnBad == SkipBad {
		return nil
	}
	first := make([]string, len(s.report.First))
	for i, b := range s.report.First {
		first[i] = b.String()
	}
	return fmt.Errorf("%d %w: %s", s.report.Skipped, ErrBadRows, strings.Join(first, "; "))
}

// read reads a span. It calls done after each batch.
func (s *scan) read(ctx context.Context, span Span, done func(*batch) error) error {
	if err := errors.Join(s.layout.checkPosition(span.From), s.layout.checkPosition(span.To)); err != nil {
		return oneLine(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	f := s.startFetch(ctx, span)
	defer func() { // also if yield panics: the connection is in use until then
		cancel()
		for range f.batches {
		}
	}()
	at := span.From
	for b := range f.batches {
		err := s.deliver(ctx, b)
		if err == nil && b.rows() > 0 {
			err = done(b)
		}
		if err != nil {
			return s.wrapPosition(at, err)
		}
		at = b.span.To
		f.free <- b // never blocks
	}
	return s.wrapPosition(at, f.err)
}

// wrapPosition adds the position of the read to an error.
func (s *scan) wrapPosition(at Position, err error) error {
	if err == nil || at.zero() {
		return err
	}
	return fmt.Errorf("behind %s: %w", s.rowName(at.Cursor), err)
}

// checkRows is how many rows are delivered between two checks of the context.
const checkRows = 256

// deliver passes the IDs of a batch to yield.
func (s *scan) deliver(ctx context.Context, b *batch) error {
	text := string(b.text) // one allocation for all IDs
	for i := range b.rows() {
		if i%checkRows == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		start, endID, endCursor := b.row(i)
		reason := ""
		id := text[start:endID]
		switch {
		case b.null(i):
			reason = s.layout.idName() + " is NULL"
		case s.layout.isMiscomposed(id):
			reason = s.layout.idName() + ": one is empty, or has a slash"
		default:
			reason = s.opts.Check(id)
		}
		if reason != "" {
			s.report.addBad(func() string { return s.rowName(text[endID:endCursor]) }, reason)
			continue
		}
		s.report.IDs++
		if err := s.yield(id); err != nil {
			return err
		}
	}
	s.rows += int64(b.rows())
	if s.opts.Progress != nil {
		s.opts.Progress(Step{IDs: s.report.IDs, Done: s.rows, Total: s.total, Rough: s.total > 0})
	}
	return s.checkBad()
}

// rowName names a row by its cursor.
func (s *scan) rowName(cursor string) string { return s.layout.cursor.name + " = " + cursor }

// fetcher is a goroutine that requests batches in advance.
type fetcher struct {
	batches chan *batch // closed at the end
	free    chan *batch
	err     error // valid after the end
}

// prefetch is the number of batches: one is filled while another is delivered.
const prefetch = 2

// startFetch starts to request the batches of a span. It ends with the span, or with an error. If
// nothing receives from batches, it ends with ctx.
func (s *scan) startFetch(ctx context.Context, span Span) *fetcher {
	f := &fetcher{batches: make(chan *batch), free: make(chan *batch, prefetch)}
	for range prefetch {
		f.free <- &batch{}
	}
	go func() {
		defer close(f.batches)
		f.err = s.fetchAll(ctx, span, f)
	}()
	return f
}

func (s *scan) fetchAll(ctx context.Context, span Span, f *fetcher) error {
	for more := true; more; {
		var b *batch
		select {
		case b = <-f.free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.pace.wait(ctx); err != nil {
			return err
		}
		if err := s.fetchOne(ctx, span, b); err != nil {
			return err
		}
		s.pace.addRows(b.rows())
		more, span.From = b.full, b.span.To
		select {
		case f.batches <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// fetchOne fills a batch with the first rows of a span.
func (s *scan) fetchOne(ctx context.Context, span Span, b *batch) error {
	_, at := s.layout.selectList()
	b.reset(span.From)
	b.began = time.Now()
	err := s.conn.query(ctx, s.layout.pageQuery(span, s.opts.Batch), func(columns [][]byte) {
		b.add(columns[at[0]], columns[at[1]], columns[at[2]])
	})
	if err != nil {
		return err
	}
	b.full = b.rows() == s.opts.Batch
	if b.rows() == 0 {
		return nil
	}
	_, from, to := b.row(b.rows() - 1)
	b.span.To, err = s.layout.position(b.text[from:to], b.tie)
	return err
}

// position returns the position behind a row.
func (l *layout) position(cursor, tie []byte) (Position, error) {
	at := Position{Identity: l.identity, Cursor: string(cursor)}
	if l.tie != nil {
		at.Tie = string(tie)
	}
	if !utf8.Valid(cursor) || !utf8.Valid(tie) {
		// JSON could not store it.
		return at, fmt.Errorf("the row with %s = %q is not in UTF-8: use another cursor column", l.cursor.name, truncate(cursor))
	}
	return at, nil
}
