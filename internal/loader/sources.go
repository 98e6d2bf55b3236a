package loader

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source"
)

// csvSource reads the IDs of a filter from a file.
type csvSource struct {
	name    string
	path    string
	formats []order.Format // of the rules that use the filter; empty: any ID as it is
	log     *slog.Logger
	sums    fileSums
	loaded  atomic.Pointer[string] // its fingerprint when it was loaded, "" if unknown; nil: it was not
}

// isChanged reports whether the file may be another one than at its last load.
func (s *csvSource) isChanged(now time.Time) bool {
	loaded := s.loaded.Load()
	stamp, ok := s.fingerprint(now)
	return loaded != nil && (!ok || stamp != *loaded)
}

// IDs implements filter.Source. A non-empty line without an ID is an error: the filter would
// answer Absent for its order.
func (s *csvSource) IDs(ctx context.Context, yield func(id string) error) error {
	stamp, _ := s.fingerprint(time.Now())
	progress := source.NewProgress(os.Stderr, s.log, s.name)
	defer progress.Close()
	opts := source.Options{Progress: progress.Report, Logger: s.log, Check: rules.Check(s.formats)}
	report, err := source.CSV(s.path, opts).Read(ctx, yield)
	switch {
	case err != nil:
		return fmt.Errorf("source %s: %w", s.name, err)
	case report.Skipped > 0:
		return fmt.Errorf("source %s: %d lines of %s are no order IDs by any rule's format, the first is %s; correct or remove them",
			s.name, report.Skipped, s.path, report.First[0])
	}
	s.loaded.Store(&stamp)
	return nil
}

// sourcesOf returns the sources of a filter that have existing orders.
func sourcesOf(c *config.Config, name string, formats []order.Format, log *slog.Logger) (sources []filter.Source, err error) {
	parts := c.Filters[name].Parts
	for _, s := range c.Filters[name].Sources {
		switch source := c.Sources[s]; {
		case source.Feed(): // has a reader of its own
		case source.Live():
			table, err := newTableSource(s, source, parts, formats, log)
			if err != nil {
				return nil, err
			}
			sources = append(sources, table)
		default:
			sources = append(sources, &csvSource{name: s, path: source.Path, formats: formats, log: log})
		}
	}
	return sources, nil
}
