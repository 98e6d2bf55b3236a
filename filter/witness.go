package filter

import (
	"context"

	"github.com/ordergate/ordergate/internal/presence"
)

// lackedWitnesses returns the witnesses of the open doubts that the filter certainly lacks, or
// about which a [Remote] gave no answer.
func (f *Filter) lackedWitnesses(ctx context.Context) map[string]bool {
	now := f.doubts.Load()
	if now == nil {
		return nil
	}
	lacks := make(map[string]bool)
	for _, d := range now.open {
		if d.Witness != "" {
			lacks[d.Witness] = f.Lacks(ctx, d.Witness)
		}
	}
	return lacks
}

// Lacks reports whether the bits lack a canonical form of an ID, in any state of the filter. It is
// true if a [Remote] gives no answer. It blocks as Query does.
func (f *Filter) Lacks(ctx context.Context, id string) (lacks bool) {
	f.opts.CanonicalForms.each(id, func(form string) { lacks = lacks || f.QueryBits(ctx, form) != presence.Maybe })
	return lacks
}
