package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/orderid"
)

// ID is the ID of a rule, with its parts in the order of the full ID.
type ID struct {
	config.ID
	Names []string    // of the parts
	Parts []config.ID // of each name
}

// FormatsOf returns the formats of the IDs in lookups and creates of a filter. It returns equal
// formats once, except patterns and composed IDs. A filter with parts has at least one format:
// that of any ID with these parts.
func FormatsOf(c *config.Config, name string) (formats []order.Format, err error) {
	for _, id := range IDsOf(c, name) {
		f, err := id.format()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(formats, f) {
			formats = append(formats, f)
		}
	}
	if parts := c.Filters[name].Parts; len(parts) > 0 && len(formats) == 0 {
		return anyOf(len(parts))
	}
	return formats, nil
}

// FormatsOfRule returns the formats of the IDs of a rule.
func FormatsOfRule(r *config.Rule) (formats []order.Format, err error) {
	for _, id := range idsOfRule(r) {
		f, err := id.format()
		if err != nil {
			return nil, err
		}
		formats = append(formats, f)
	}
	return formats, nil
}

// anyOf returns the format of any ID with a number of parts.
func anyOf(parts int) ([]order.Format, error) {
	text, err := order.CompilePattern("(?s).+", order.AsIs)
	if err != nil {
		return nil, err
	}
	anyText := order.Format{Kind: order.Pattern, Min: 1, Max: orderid.MaxBytes, Pattern: text}
	return []order.Format{order.ComposedOf(slices.Repeat([]order.Format{anyText}, parts), anyText)}, nil
}

func (id *ID) format() (order.Format, error) {
	own, err := format(id.ID)
	if err != nil {
		return own, err
	}
	parts := make([]order.Format, len(id.Parts))
	for i, part := range id.Parts {
		if parts[i], err = format(part); err != nil {
			return own, err
		}
	}
	return order.ComposedOf(parts, own), nil
}

// Check returns the function that judges IDs wherever they enter a filter. It returns the reason
// why a text is no order ID, "" if any of the formats accepts it. Without formats it is
// [orderid.Check].
func Check(formats []order.Format) func(id string) (reason string) {
	return func(id string) string {
		if reason := orderid.Check(id); reason != "" || len(formats) == 0 {
			return reason
		}
		for i := range formats {
			if _, ok := formats[i].Canonical(id); ok {
				return ""
			}
		}
		return fmt.Sprintf("%q does not have the form of an order ID", id[:min(len(id), maxQuoted)])
	}
}

// maxQuoted bounds the part of an ID that a reason repeats, in bytes.
const maxQuoted = 40

// IDsOf returns the IDs of the rules that look up or create in a filter.
func IDsOf(c *config.Config, name string) (ids []ID) {
	for i := range c.Rules {
		r := &c.Rules[i]
		if (r.Lookup == nil || r.Lookup.Filter != name) && (r.Create == nil || r.Create.Filter != name) {
			continue
		}
		ids = append(ids, idsOfRule(r)...)
	}
	return ids
}

func idsOfRule(r *config.Rule) (ids []ID) {
	names := r.PartNames()
	parts := make([]config.ID, len(names))
	for n, part := range names {
		parts[n] = r.Parts[part]
	}
	for _, id := range r.IDs {
		ids = append(ids, ID{ID: id, Names: names, Parts: parts})
	}
	return ids
}

// Forms returns a fingerprint of each different form of the IDs, in their order. The order
// matters: the first form that an ID fits determines its day.
func Forms(ids []ID) (list []string) {
	for _, id := range ids {
		form := formOf(id.ID)
		for n, name := range id.Names {
			form += fmt.Sprintf(", part %q %s", name, formOf(id.Parts[n]))
		}
		if !slices.Contains(list, form) {
			list = append(list, form)
		}
	}
	return list
}

func formOf(id config.ID) string {
	form := fmt.Sprintf("rule %q %d %d %q %+v", id.Format, id.MinLength, id.MaxLength, id.Pattern, id.Time)
	if id.Max != "" {
		form += " " + id.Max.Digits()
	}
	if id.Case != "" {
		form += " " + id.Case
	}
	return form
}

// Wider reports whether formats accept a number above another one.
func Wider(formats []order.Format, most string) bool {
	above := func(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }
	return slices.ContainsFunc(formats, func(f order.Format) bool {
		of := f.OfID()
		if of.Kind == order.UUID || of.Kind == order.Pattern {
			return false
		}
		largest := strings.Repeat("9", of.Max)
		if bound := of.MaxNumber(); bound != "" && above(largest, bound) {
			largest = bound
		}
		return above(largest, most)
	})
}
