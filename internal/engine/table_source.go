package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/source"
)

// tableSource feeds a filter from a table, in the spelling that lookups use.
type tableSource struct {
	name     string
	identity string // tells it from any other table and the same read otherwise
	table    *source.Table
	formats  []order.Format
	log      *slog.Logger
	steps    func(source.Step) // told how far a reading is

	reading sync.Mutex // held by IDs and tail
	mu      sync.Mutex
	mark    source.Mark // what of the table is in the filter
}

func newTableSource(name string, c config.Source, formats []order.Format, log *slog.Logger) (*tableSource, error) {
	s := &tableSource{name: name, formats: formats, log: log}
	s.identity = fmt.Sprintf("%q %q %q %q %q %q", name, c.Kind, c.Table, c.IDColumn, c.CursorColumn, c.OnBad)
	kind := source.MySQL
	if c.Kind == config.SourcePostgres {
		kind = source.Postgres
	}
	var err error
	s.table, err = source.NewTable(source.TableOptions{
		Kind: kind, DSN: string(c.DSN), Table: c.Table, IDColumn: c.IDColumn, CursorColumn: c.CursorColumn,
		Batch: c.Batch, Pause: c.Pause, MaxRate: c.MaxRate, Overlap: c.Overlap, Ascending: c.Ascending, OnBad: source.OnBad(c.OnBad),
		Valid: Valid(formats), Logger: log,
		Progress: func(step source.Step) {
			if s.steps != nil {
				s.steps(step)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", name, err)
	}
	return s, nil
}

// IDs implements filter.Source.
func (s *tableSource) IDs(ctx context.Context, yield func(id string) error) error {
	_, err := s.all(ctx, yield)
	return err
}

// all is IDs, and returns the mark behind them.
func (s *tableSource) all(ctx context.Context, yield func(id string) error) (json.RawMessage, error) {
	progress := source.NewProgress(os.Stderr, s.log, s.name)
	defer progress.Close()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.steps = progress.Report
	defer func() { s.steps = nil }()
	if err := s.read(ctx, source.Mark{}, yield); err != nil {
		return nil, err
	}
	return s.place(), nil
}

// behind reads what may be new behind a mark that is kept elsewhere, and returns the one
// for the next time. If it is the mark of the last reading, that one goes on: it
// remembers when the last rows of the table were seen.
func (s *tableSource) behind(ctx context.Context, mark json.RawMessage, yield func(id string) error) (json.RawMessage, error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if !bytes.Equal(mark, s.place()) {
		if s.from(mark) != nil { // it is no mark: all is read
			_ = s.from(nil)
		}
	}
	if err := s.read(ctx, s.reached(), yield); err != nil {
		return nil, err
	}
	return s.place(), nil
}

// tail reads what may be new since the last reading.
func (s *tableSource) tail(ctx context.Context, yield func(id string) error) error {
	s.reading.Lock()
	defer s.reading.Unlock()
	return s.read(ctx, s.reached(), yield)
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
	return s.read(ctx, s.reached(), yield)
}

func (s *tableSource) reached() source.Mark {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

func (s *tableSource) read(ctx context.Context, from source.Mark, yield func(id string) error) error {
	each := func(mark source.Mark) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mark = mark
		return nil
	}
	mark, _, err := s.table.Tail(ctx, from, func(id string) error { return Spell(s.formats, id, yield) }, each)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.name, err)
	}
	return each(mark)
}

// place returns what of the table is in the filter, for [tableSource.from].
func (s *tableSource) place() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _ := json.Marshal(s.mark) // texts
	return text
}

// from says what of the table is in the filter. Nothing is a place, too.
func (s *tableSource) from(place json.RawMessage) error {
	var mark source.Mark
	if len(place) > 0 {
		if err := json.Unmarshal(place, &mark); err != nil {
			return fmt.Errorf("source %s: its place: %w", s.name, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = mark
	return nil
}
