package rules

import (
	"fmt"
	"slices"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
)

// FormatsOf returns the formats of the IDs in lookups and creates of a filter. It returns equal
// formats once, except patterns.
func FormatsOf(c *config.Config, name string) (formats []order.Format, err error) {
	for _, id := range IDsOf(c, name) {
		f, err := format(id)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(formats, f) {
			formats = append(formats, f)
		}
	}
	return formats, nil
}

// Valid returns a function that reports whether a rule accepts an ID; nil: all are valid.
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

// IDsOf returns the IDs of the rules that look up or create in a filter.
func IDsOf(c *config.Config, name string) (ids []config.ID) {
	for _, r := range c.Rules {
		if r.Lookup != nil && r.Lookup.Filter == name || r.Create != nil && r.Create.Filter == name {
			ids = append(ids, r.IDs...)
		}
	}
	return ids
}

// Forms returns a fingerprint of each different form of the IDs, in their order. The order
// matters: the first form that an ID fits determines its day.
func Forms(ids []config.ID) (list []string) {
	for _, id := range ids {
		form := fmt.Sprintf("rule %q %d %d %q %+v", id.Format, id.MinLength, id.MaxLength, id.Pattern, id.Time)
		if !slices.Contains(list, form) {
			list = append(list, form)
		}
	}
	return list
}
