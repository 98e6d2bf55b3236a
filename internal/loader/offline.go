package loader

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/filter/bloom"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/rules"
)

// Offline reads the sources of a filter into a filter in memory, without Redis. With a path it reads
// that file of IDs instead. It blocks for as long as the sources take.
func Offline(ctx context.Context, c *config.Config, name, path string, log *slog.Logger) (*filter.Filter, error) {
	formats, err := rules.FormatsOf(c, name)
	if err != nil {
		return nil, err
	}
	sources := []filter.Source{&csvSource{name: path, path: path, formats: formats, log: log}}
	if path == "" {
		if sources, err = sourcesOf(c, name, formats, log); err != nil {
			return nil, err
		}
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("filters.%s has no sources", name)
	}
	f := c.Filters[name]
	opts := filter.Options{
		Capacity: f.Capacity, FalsePositiveRate: f.FalsePositiveRate, Layout: bloom.Layout(f.Layout), Exact: f.Kind == config.FilterExact,
		Check: rules.Check(formats), CanonicalForms: func(id string) (string, []string) { return order.CanonicalForms(formats, id) },
		Logger: log,
	}
	if !opts.Exact {
		opts.Growth = &filter.Growth{AtFill: 1, By: 2}
	}
	loaded, err := filter.New(name, opts)
	if err != nil {
		return nil, err
	}
	return loaded, loaded.Load(ctx, sources...)
}
