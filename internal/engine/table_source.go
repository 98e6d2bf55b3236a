package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

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
	mark    source.Mark         // what of the table is in the filter
	told    coverage            // by the last whole reading; the zero value after a doubt about it
	voids   uint64              // such doubts
	dropped func(reason string) // told when the table is another than it was; nil: nobody
}

// coverage is what a table has certainly told of.
type coverage struct {
	number uint64    // the greatest of its IDs, and all that are less; 0: none
	began  time.Time // the reading, which has whatever was committed before
	ended  time.Time // zero: there was none
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
		Dropped: func(reason string) {
			s.void()
			if s.dropped != nil {
				s.dropped("the table of source " + name + ": " + reason)
			}
		},
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
	progress := source.NewProgress(os.Stderr, s.log, s.name)
	defer progress.Close()
	s.reading.Lock()
	defer s.reading.Unlock()
	s.steps = progress.Report
	defer func() { s.steps = nil }()
	return s.read(ctx, source.Mark{}, yield)
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

func (s *tableSource) covered() coverage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
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
	s.mu.Lock()
	began, voids := time.Now(), s.voids
	s.mu.Unlock()
	mark, report, err := s.table.Tail(ctx, from, func(id string) error { return Spell(s.formats, id, yield) }, each)
	if err != nil {
		return fmt.Errorf("source %s: %w", s.name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = mark
	if s.voids == voids {
		s.told = coverage{began: began, ended: time.Now()}
		if report.Numbered {
			s.told.number = mark.Number()
		}
	}
	return nil
}

// void says that the table may be another one than was read: what it told of does not
// count until it has been read once more.
func (s *tableSource) void() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = coverage{}
	s.voids++
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
	s.mark, s.told = mark, coverage{} // of another time
	return nil
}
