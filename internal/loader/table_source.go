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
	"os"
	"sync"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source"
)

// tableSource feeds a filter from a table.
type tableSource struct {
	name     string
	identity string // a hash that tells it from any other table, wherever it is, and the same read otherwise
	table    *source.Table
	formats  []order.Format
	log      *slog.Logger
	steps    func(source.Step) // told how far a reading is
	reread   func(ctx context.Context) (word string, err error)

	reading sync.Mutex // held by who reads the table
	mu      sync.Mutex
	mark    tableMark           // what of the table is in the filter
	told    coverage            // to the filter, by the last whole reading; the zero value after a doubt about it
	voids   uint64              // such doubts
	dropped func(reason string) // told when the table is another than it was; nil: nobody
}

// coverage is what a table has certainly told of.
type coverage struct {
	number uint64    // the greatest of its IDs, and all that are less; 0: none
	began  time.Time // the reading, which has whatever was committed before
	ended  time.Time // zero: there was none
}

// tableMark is a mark, and the word with which it was made: with another one the table is
// read from its beginning.
type tableMark struct {
	Mark   source.Mark `json:"mark"`
	Reread string      `json:"reread,omitempty"`
}

// Zero reports whether all of the table is to be read.
func (m tableMark) Zero() bool { return m.Mark.Zero() }

// tableOptions are those of a source that the configuration gives.
func tableOptions(c config.Source) source.TableOptions {
	kind := source.MySQL
	if c.Kind == config.SourcePostgres {
		kind = source.Postgres
	}
	return source.TableOptions{
		Kind: kind, DSN: string(c.DSN), Table: c.Table, IDColumn: c.IDColumn, CursorColumn: c.CursorColumn,
		Batch: c.Batch, Pause: c.Pause, MaxRate: c.MaxRate, Overlap: c.Overlap, Ascending: c.Ascending, OnBad: source.OnBad(c.OnBad),
	}
}

// CheckTable returns what is wrong with a table, as far as it can be checked without its server.
func CheckTable(c config.Source) error {
	_, err := source.NewTable(tableOptions(c))
	return err
}

func newTableSource(name string, c config.Source, formats []order.Format, log *slog.Logger) (*tableSource, error) {
	s := &tableSource{name: name, formats: formats, log: log}
	s.reread = func(context.Context) (string, error) { return "", nil }
	opts := tableOptions(c)
	opts.Valid, opts.Logger = rules.Valid(formats), log
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
	hash := sha256.Sum256([]byte(identity))
	s.identity = hex.EncodeToString(hash[:16])
	return s, nil
}

// IDs implements filter.Source.
func (s *tableSource) IDs(ctx context.Context, yield func(id string) error) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	mark, told, err := s.all(ctx, yield)
	if err == nil {
		s.keep(mark, told)
	}
	return err
}

// aside reads all of a table for another set than the one that the source feeds, and
// returns the mark of that one. What the source has told its own stays as it is.
func (s *tableSource) aside(ctx context.Context, yield func(id string) error) (json.RawMessage, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	mark, _, err := s.all(ctx, yield)
	return s.positionOf(mark), err
}

// all reads all of a table once more. Reading is held.
func (s *tableSource) all(ctx context.Context, yield func(id string) error) (tableMark, reading, error) {
	progress := source.NewProgress(os.Stderr, s.log, s.name)
	defer progress.Close()
	s.steps = progress.Report
	defer func() { s.steps = nil }()
	from := s.reached()
	from.Mark = from.Mark.Rescan()
	return s.rows(ctx, from, nil, yield)
}

// behind reads what may be new behind a mark that is kept elsewhere, and returns the one
// for the next time. If it is the mark of the last reading, that one goes on: it
// remembers when the last rows of the table were seen.
func (s *tableSource) behind(ctx context.Context, mark json.RawMessage, yield func(id string) error) (json.RawMessage, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if !bytes.Equal(mark, s.position()) {
		if s.from(mark) != nil { // it is no mark: all is read
			_ = s.from(nil)
		}
	}
	if err := s.read(ctx, yield); err != nil {
		return nil, err
	}
	return s.position(), nil
}

// tail reads what may be new since the last reading.
func (s *tableSource) tail(ctx context.Context, yield func(id string) error) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.read(ctx, yield)
}

// unreadRows is what of a table is not in the filter yet: all, the first time. A load
// that was interrupted goes on.
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
	return s.told
}

func (s *tableSource) reached() tableMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

// reach says what of the table is in the filter.
func (s *tableSource) reach(mark tableMark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark, s.told = mark, coverage{} // of another time
	return nil
}

// read reads what the mark leaves to read. It keeps how far it came whenever it may go on
// from there, see [source.Table.Tail].
func (s *tableSource) read(ctx context.Context, yield func(id string) error) error {
	mark, told, err := s.rows(ctx, s.reached(), func(mark tableMark) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mark = mark
	}, yield)
	if err == nil {
		s.keep(mark, told)
	}
	return err
}

// reading is one that came to its end.
type reading struct {
	coverage
	voids uint64 // doubts about what was read before it began
}

// rows reads what a mark leaves to read. Each, which may be nil, is told how far it came.
func (s *tableSource) rows(ctx context.Context, from tableMark, each func(tableMark), yield func(id string) error) (tableMark, reading, error) {
	word, err := s.reread(ctx)
	switch {
	case err != nil && !from.Zero():
		return from, reading{}, fmt.Errorf("source %s: asking whether all of it has to be read: %w", s.name, err)
	case word != from.Reread:
		if !from.Zero() {
			s.log.Warn("a table is read again, all of it: its rows may have other IDs", "source", s.name)
		}
		from.Mark = source.Mark{}
	}
	s.mu.Lock()
	told := reading{coverage{began: time.Now()}, s.voids}
	s.mu.Unlock()
	mark, report, err := s.table.Tail(ctx, from.Mark, yield, func(mark source.Mark) error {
		if each != nil {
			each(tableMark{mark, word})
		}
		return nil
	})
	if err != nil {
		return from, reading{}, fmt.Errorf("source %s: %w", s.name, err)
	}
	told.ended = time.Now()
	if report.Numbered {
		told.number = mark.Number()
	}
	return tableMark{mark, word}, told, nil
}

// keep says that the filter has what a reading told.
func (s *tableSource) keep(mark tableMark, told reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = mark
	if s.voids == told.voids {
		s.told = told.coverage
	}
}

// void says that the table may be another one than was read: what it told of does not
// count until it has been read once more.
func (s *tableSource) void() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = coverage{}
	s.voids++
}

// tablePosition is what is kept of what is in the filter.
type tablePosition struct {
	Of string `json:"of"` // the table's identity
	tableMark
}

// place returns what of the table is in the filter, for [tableSource.from].
func (s *tableSource) position() json.RawMessage { return s.positionOf(s.reached()) }

func (s *tableSource) positionOf(mark tableMark) json.RawMessage {
	text, _ := json.Marshal(tablePosition{s.identity, mark}) // texts
	return text
}

// from says what of the table is in the filter. Nothing is a place, too. The error is
// that of parse.
func (s *tableSource) from(place json.RawMessage) error {
	mark, err := s.parse(place)
	if err != nil {
		return err
	}
	return s.reach(mark)
}

// parse returns the mark in a place. The error is errMoved for the place of another table,
// or of one of that name in another database.
func (s *tableSource) parse(place json.RawMessage) (tableMark, error) {
	var p tablePosition
	if len(place) == 0 {
		return p.tableMark, nil
	}
	if err := json.Unmarshal(place, &p); err != nil {
		return p.tableMark, fmt.Errorf("source %s: its place: %w", s.name, err)
	}
	if p.Of != s.identity {
		return p.tableMark, fmt.Errorf("source %s: %w", s.name, errMoved)
	}
	return p.tableMark, nil
}

// errMoved says that a place is of no use for a table.
var errMoved = errors.New("the place that was kept is of another table, database or server")
