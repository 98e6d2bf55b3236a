package explain

import (
	"fmt"
	"slices"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// share records whether the request is enforced, and why. It returns the policy that applies
// to the request.
func (e *Explanation) share(q *Explainer, p *gate.Policy, d *gate.Decision, m order.Match) *gate.Policy {
	observed := p.Observe
	if p.Share != nil {
		// A decision without a rule depends on a body, which explain has: it is empty.
		observed = d.Observed && d.Rule >= 0
		e.Share = new(q.shareText(p, m, observed))
	}
	e.Enforced = new(!observed)
	if p.Share != nil && observed {
		return p.Share.Others
	}
	return p
}

// shareText says why a share has a request, or leaves it out.
func (q *Explainer) shareText(p *gate.Policy, m order.Match, observed bool) string {
	s := p.Share
	switch {
	case s.Header != "" && observed:
		return "it does not have the header " + s.Header + " once, as the mode wants it"
	case s.Header != "" && s.HasHeader(q.Header):
		return "it has the header " + s.Header
	case s.Header == "" && m.Result == order.Named:
		parts := []int{gate.OrderPart(m.ID)}
		for _, id := range m.Batch {
			parts = append(parts, gate.OrderPart(id))
		}
		text := "a share of %s or more has this order"
		if len(m.Batch) > 0 {
			text = "a share of %s or more has one of these orders"
		}
		return fmt.Sprintf(text, config.Share{Orders: slices.Min(parts) + 1})
	case observed:
		return "it cannot be read as a settlement"
	}
	return "it may settle any order"
}
