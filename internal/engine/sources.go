package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/source"
)

// csvSource feeds a filter from a file, in the spelling that lookups use: a UUID
// in upper case is stored as the lower-case one that the rules ask for.
type csvSource struct {
	name    string
	path    string
	formats []order.Format // of the rules that use the filter; empty: any ID as it is
	log     *slog.Logger
}

// IDs implements filter.Source. A line that holds something but no ID is an
// error: the order that it stands for would count as absent.
func (s *csvSource) IDs(ctx context.Context, yield func(id string) error) error {
	progress := source.NewProgress(os.Stderr, s.log, s.name)
	defer progress.Close()
	opts := source.Options{Progress: progress.Report, Logger: s.log, Valid: Valid(s.formats)}
	report, err := source.CSV(s.path, opts).Read(ctx, func(id string) error { return Spell(s.formats, id, yield) })
	switch {
	case err != nil:
		return fmt.Errorf("source %s: %w", s.name, err)
	case report.Skipped > 0:
		return fmt.Errorf("source %s: %d lines of %s are no order IDs by any rule's format, the first is %s; mend or remove them",
			s.name, report.Skipped, s.path, report.First[0])
	}
	return nil
}

// Valid returns what tells IDs that some rule would ask for; nil: all are.
func Valid(formats []order.Format) func(id string) bool {
	if len(formats) == 0 {
		return nil
	}
	return func(id string) bool {
		for i := range formats {
			if _, ok := formats[i].Canonical(id); ok {
				return true
			}
		}
		return false
	}
}

// Spell yields the ID in each spelling that some rule would ask for, or as it is if
// none would.
func Spell(formats []order.Format, id string, yield func(string) error) error {
	asked := false
	for i := range formats {
		if c, ok := formats[i].Canonical(id); ok {
			asked = true
			if err := yield(c); err != nil {
				return err
			}
		}
	}
	if asked {
		return nil
	}
	return yield(id)
}

// FormatsOf returns the formats of the IDs that a filter is asked for or told of.
func FormatsOf(c *config.Config, name string) (formats []order.Format, err error) {
	for _, r := range c.Rules {
		if r.Lookup != nil && r.Lookup.Filter == name || r.Create != nil && r.Create.Filter == name {
			for _, id := range r.IDs {
				f, err := format(id)
				if err != nil {
					return nil, err
				}
				formats = append(formats, f)
			}
		}
	}
	return formats, nil
}

// sourcesOf returns the sources of a filter.
func sourcesOf(c *config.Config, name string, formats []order.Format, log *slog.Logger) (sources []filter.Source, err error) {
	for _, s := range c.Filters[name].Sources {
		if !c.Sources[s].Live() {
			sources = append(sources, &csvSource{name: s, path: c.Sources[s].Path, formats: formats, log: log})
			continue
		}
		table, err := newTableSource(s, c.Sources[s], formats, log)
		if err != nil {
			return nil, err
		}
		sources = append(sources, table)
	}
	return sources, nil
}
