package rules

import (
	"slices"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// dedup compiles the dedup of a rule; nil: it has none.
func dedup(r *config.Rule, with Components) (*gate.Dedup, error) {
	d := r.Create.Dedup
	if d == nil {
		return nil, nil
	}
	confirmer, err := with.Confirmer(r)
	return &gate.Dedup{
		Filter: with.Filter(r.Create.Filter), Confirm: confirmer, Refuse: d.OnUnavailable == config.OnUnavailableRefuse,
		Duplicate: reply(d.Duplicate), Unavailable: reply(d.Unavailable),
	}, err
}

// Same returns a function that reports whether a text of a table names the order of a canonical
// ID: one of the text's canonical forms is the ID, as in the filter that reads the table.
func Same(formats []order.Format) func(text, id string) bool {
	return func(text, id string) bool {
		first, others := order.CanonicalForms(formats, text)
		return first == id || slices.Contains(others, id)
	}
}
