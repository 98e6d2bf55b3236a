package loader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/runbook"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/internal/spelling"
)

// tableSource reads the IDs of a filter from a table.
type tableSource struct {
	name     string
	identity string // a hash of the table, its server and how it is read
	table    *source.Table
	followed bool // by its database's log
	formats  []order.Format
	log      *slog.Logger
	steps    func(source.Step) // receives the progress of a reading
	// chain returns the name of the table's chain of followed changes, "" if the table is not
	// followed by its database's log.
	chain func(ctx context.Context) (name string, err error)

	reading  sync.Mutex // held during a reading
	mu       sync.Mutex
	mark     tableMark           // up to where the filter has the table
	covers   coverage            // of the last complete reading; zero after a doubt about the table
	doubts   uint64              // about the table
	restarts bool                // the next reading begins at the table's first row
	dropped  func(reason string) // called when the table was replaced; nil: not called
}

// checkpointOf implements checkpointed.
func (s *tableSource) checkpointOf() (source, identity string) { return s.name, s.identity }

// coverage is what a complete reading proves.
type coverage struct {
	number uint64    // every ID up to this one was read; 0: none
	began  time.Time // of the reading: it has every row committed before
	ended  time.Time // zero: there was no reading
}

// tableMark is a mark with the chain of followed changes at its reading. If there is another chain,
// the table is read from its beginning.
type tableMark struct {
	Mark  source.Mark `json:"mark"`
	Chain string      `json:"chain,omitempty"`
}

// Zero reports whether all of the table has to be read.
func (m tableMark) Zero() bool { return m.Mark.Zero() }

// tableOptions returns the configured options of a table whose IDs have these parts.
func tableOptions(c config.Source, parts []string) source.TableOptions {
	kind := source.MySQL
	if c.Kind == config.SourcePostgres {
		kind = source.Postgres
	}
	return source.TableOptions{
		Kind: kind, DSN: string(c.DSN), RereadDSN: c.RereadDSN(), Table: c.Table, IDColumn: c.IDColumn, PartColumns: partColumns(c, parts), CursorColumn: c.CursorColumn,
		Batch: c.Batch, Pause: c.Pause, MaxRate: c.MaxRate, Overlap: c.Overlap, Ascending: c.Ascending, OnBad: source.OnBad(c.OnBad),
	}
}

func newTable(c config.Source, parts []string) (*source.Table, error) {
	return source.NewTable(tableOptions(c, parts))
}

// CheckTable returns what is wrong with a table, as far as it can be checked without its server.
func CheckTable(c config.Source) error {
	_, err := newTable(c, slices.Sorted(maps.Keys(c.PartColumns)))
	return err
}

// partColumns returns the columns of the parts.
func partColumns(c config.Source, parts []string) (columns []string) {
	for _, part := range parts {
		columns = append(columns, c.PartColumns[part])
	}
	return columns
}

func newTableSource(name string, c config.Source, parts []string, formats []order.Format, log *slog.Logger) (*tableSource, error) {
	s := &tableSource{name: name, formats: formats, log: log}
	s.chain = func(context.Context) (string, error) { return "", nil }
	opts := tableOptions(c, parts)
	opts.Check, opts.Logger = rules.Check(formats), log
	opts.Wider = func(most string) bool { return rules.Wider(formats, most) }
	opts.Twins = func(columns []spelling.Column) (warnings []string, err error) {
		twins, err := rules.FindTwins(formats, columns)
		for _, t := range twins {
			warnings = append(warnings, t.Text)
		}
		return warnings, err
	}
	opts.OnMarkDropped = func(reason string) {
		s.void()
		if s.dropped != nil {
			s.dropped("the table of source " + name + ": " + reason)
		}
	}
	opts.Progress = func(step source.Step) {
		if s.steps != nil {
			s.steps(step)
		}
	}
	var err error
	s.table, err = source.NewTable(opts)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", name, err)
	}
	identity := fmt.Sprintf("%q %q %q %q %q %q %q %v %v", name, c.Kind, s.table.Location(), c.Table, c.IDColumn, c.CursorColumn, c.OnBad, c.Ascending, c.Overlap)
	if len(parts) > 0 {
		identity += fmt.Sprintf(" %q %q", parts, opts.PartColumns)
	}
	hash := sha256.Sum256([]byte(identity))
	s.identity = hex.EncodeToString(hash[:16])
	return s, nil
}

// IDs implements filter.Source.
func (s *tableSource) IDs(ctx context.Context, yield func(id string) error) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	mark, done, err := s.all(ctx, yield)
	if err == nil {
		s.keep(mark, done)
	}
	return err
}

// aside reads all of a table for another set, and returns the mark for that set. The mark of the
// source does not change.
func (s *tableSource) aside(ctx context.Context, yield func(id string) error) (json.RawMessage, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	mark, _, err := s.all(ctx, yield)
	return s.positionOf(mark), err
}

// all reads all of a table once more. The caller holds reading.
func (s *tableSource) all(ctx context.Context, yield func(id string) error) (tableMark, reading, error) {
	progress := source.NewProgress(os.Stderr, s.log, s.name)
	defer progress.Close()
	s.steps = progress.Report
	defer func() { s.steps = nil }()
	from := s.reached()
	from.Mark = from.Mark.Rescan()
	return s.rows(ctx, from, nil, yield)
}

// behind reads the rows that may be new after a mark of the caller, and returns the next mark. If
// it is the mark of the last reading, behind continues that reading, which remembers when it saw
// the last rows.
func (s *tableSource) behind(ctx context.Context, mark json.RawMessage, yield func(id string) error) (json.RawMessage, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if !bytes.Equal(mark, s.position()) {
		if s.from(mark) != nil { // without a valid mark, all is read
			_ = s.from(nil)
		}
	}
	if err := s.read(ctx, yield); err != nil {
		return nil, err
	}
	return s.position(), nil
}

// tail reads the rows that may be new since the last reading.
func (s *tableSource) tail(ctx context.Context, yield func(id string) error) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.read(ctx, yield)
}

// unreadRows is a source of the rows that the filter lacks: the first time, all of them. It
// continues an interrupted load.
type unreadRows struct {
	*tableSource
	note func(text string)
}

// IDs implements filter.Source.
func (s unreadRows) IDs(ctx context.Context, yield func(id string) error) error {
	progress := source.NewProgress(os.Stderr, s.log, s.name)
	defer progress.Close()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.steps = func(step source.Step) {
		progress.Report(step)
		text := fmt.Sprintf("reading source %s: %d rows", s.name, step.Done)
		if step.Total > 0 {
			text += fmt.Sprintf(" of about %d", step.Total)
		}
		s.note(text)
	}
	defer func() { s.steps = nil }()
	return s.read(ctx, yield)
}

func (s *tableSource) covered() coverage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.covers
}

func (s *tableSource) reached() tableMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

// reach sets up to where the filter has the table.
func (s *tableSource) reach(mark tableMark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark, s.covers = mark, coverage{} // the mark may be old
	return nil
}

// read reads the rows after the mark. It stores each mark from which it may continue, see
// [source.Table.Tail].
func (s *tableSource) read(ctx context.Context, yield func(id string) error) error {
	mark, done, err := s.rows(ctx, s.reached(), func(mark tableMark) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mark = mark
	}, yield)
	if err == nil {
		s.keep(mark, done)
	}
	return err
}

// reading is a complete reading.
type reading struct {
	coverage
	doubts uint64 // about the table, before it began
}

// rows reads the rows after a mark. It calls each, which may be nil, with the marks on its way.
func (s *tableSource) rows(ctx context.Context, from tableMark, each func(tableMark), yield func(id string) error) (tableMark, reading, error) {
	chain, err := s.chain(ctx)
	switch {
	case err != nil && !from.Zero():
		return from, reading{}, fmt.Errorf("source %s: reading where it is followed: %w", s.name, err)
	case chain != from.Chain:
		if !from.Zero() {
			s.log.Warn("a table is read again, all of it: its followed changes do not join the last reading", "source", s.name,
				runbook.PositionGone.Do("nothing: ordergate reads the table"))
		}
		from.Mark = source.Mark{}
	}
	s.mu.Lock()
	done := reading{coverage{began: time.Now()}, s.doubts}
	restarts := s.restarts
	if s.restarts = false; restarts {
		from.Mark = source.Mark{}
	}
	s.mu.Unlock()
	mark, report, err := s.table.Tail(ctx, from.Mark, yield, func(mark source.Mark) error {
		if each != nil {
			each(tableMark{mark, chain})
		}
		return nil
	})
	if err != nil {
		if restarts {
			s.restart()
		}
		return from, reading{}, fmt.Errorf("source %s: %w", s.name, err)
	}
	done.ended = time.Now()
	if report.Numbered {
		done.number = mark.Number()
	}
	return tableMark{mark, chain}, done, nil
}

// keep notes that the filter has the rows of a reading.
func (s *tableSource) keep(mark tableMark, done reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = mark
	if s.doubts == done.doubts {
		s.covers = done.coverage
	}
}

// void notes that the table may have been replaced: its coverage is zero until it has been read
// once more.
func (s *tableSource) void() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.covers = coverage{}
	s.doubts++
}

// restart makes the next reading begin at the first row: the filter lacks an earlier one.
func (s *tableSource) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts = true
}

// tablePosition is the stored form of a mark.
type tablePosition struct {
	Of string `json:"of"` // the table's identity
	tableMark
}

// position returns up to where the filter has the table, for [tableSource.from].
func (s *tableSource) position() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.restarts { // also after a restart of the process
		return s.positionOf(tableMark{})
	}
	return s.positionOf(s.mark)
}

func (s *tableSource) positionOf(mark tableMark) json.RawMessage {
	text, _ := json.Marshal(tablePosition{s.identity, mark}) // texts
	return text
}

// from sets up to where the filter has the table. An empty position is valid. It returns the
// error of parse.
func (s *tableSource) from(place json.RawMessage) error {
	mark, err := s.parse(place)
	if err != nil {
		return err
	}
	return s.reach(mark)
}

// parse returns the mark in a position. The error is errMoved for the position of another table,
// also of the same name in another database.
func (s *tableSource) parse(place json.RawMessage) (tableMark, error) {
	var p tablePosition
	if len(place) == 0 {
		return p.tableMark, nil
	}
	if err := json.Unmarshal(place, &p); err != nil {
		return p.tableMark, fmt.Errorf("source %s: its checkpoint: %w", s.name, err)
	}
	if p.Of != s.identity {
		return p.tableMark, fmt.Errorf("source %s: %w", s.name, errMoved)
	}
	return p.tableMark, nil
}

// errMoved says that a position belongs to another table.
var errMoved = errors.New("the checkpoint is of another table, database or server")
