package gate

import (
	"context"

	"github.com/ordergate/ordergate/internal/order"
)

// Screen judges a request before it goes to the backend. It blocks only as long
// as a filter takes to be certain, and does not allocate for a request without a
// body.
func (g *Gate) Screen(ctx context.Context, req order.Request) Decision {
	start := g.now()
	m := g.table.Match(req)
	if m.Rule < 0 {
		return Decision{Rule: -1}
	}
	p := &g.policies[m.Rule]
	d := Decision{Rule: m.Rule, Action: p.firstAction(), ID: m.ID, Offset: m.Offset}
	switch {
	case g.refuses(p, m, &d):
	case p.Lookup != nil:
		d.Verdict = p.Lookup.verdict(ctx, m)
		d.Refused = d.Verdict == VerdictAbsent && !p.Observe
	default:
		return d // nothing to say of it yet, so nothing to count
	}
	g.record.Decided(m.Rule, d.Action, d.Verdict, g.now().Sub(start))
	return d
}

// verdict asks the filter. A list of orders is absent if all of them are. An ID
// that nobody showed us (its body was not passed on) may be any.
func (l *Lookup) verdict(ctx context.Context, m order.Match) Verdict {
	if m.ID == "" {
		return VerdictUnknown
	}
	answer := l.Filter.MayContain(ctx, m.ID)
	for i := 1; i < len(m.Batch) && answer == Absent; i++ {
		answer = l.Filter.MayContain(ctx, m.Batch[i])
	}
	return verdictOf(answer)
}

// refuses fills in the verdict on a request whose order cannot be told.
func (g *Gate) refuses(p *Policy, m order.Match, d *Decision) bool {
	switch m.Result {
	case order.Invalid, order.Ambiguous, order.TooLarge:
	default:
		return false
	}
	d.Verdict, d.Refused, d.Reason = verdictFor(m.Reason), !p.Observe, m.Reason
	g.record.Refused(m.Rule, m.Reason)
	return true
}

// firstAction is what a verdict on the ID itself is counted under: an order is
// looked up before it is settled.
func (p *Policy) firstAction() Action {
	switch {
	case p.Lookup != nil:
		return ActionLookup
	case p.Create != nil:
		return ActionCreate
	default:
		return ActionSettle
	}
}

func verdictOf(a Answer) Verdict {
	switch a {
	case Absent:
		return VerdictAbsent
	case Maybe:
		return VerdictMaybe
	default:
		return VerdictUnknown
	}
}
