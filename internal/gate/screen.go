package gate

import (
	"context"

	"github.com/ordergate/ordergate/internal/order"
)

// Screen judges a request by its headers before it goes to the backend. It
// blocks only as long as a filter takes to be certain, and does not allocate.
func (g *Gate) Screen(ctx context.Context, req order.Request) Decision {
	m := g.table.Match(req)
	if m.Rule < 0 {
		return Decision{Rule: -1}
	}
	start := g.now()
	p := &g.policies[m.Rule]
	d := Decision{Rule: m.Rule, Action: p.firstAction(), ID: m.ID}
	switch {
	case g.malformed(p, m, &d):
	case p.Lookup != nil:
		d.Verdict = verdictOf(p.Lookup.Filter.MayContain(ctx, m.ID))
		d.Refused = d.Verdict == VerdictAbsent && !p.Observe
	default:
		return d // nothing to say of it yet, so nothing to count
	}
	g.record.Decided(m.Rule, d.Action, d.Verdict, g.now().Sub(start))
	return d
}

// malformed fills in the verdict on a request whose ID cannot be used.
func (g *Gate) malformed(p *Policy, m order.Match, d *Decision) bool {
	switch m.Result {
	case order.Invalid:
		d.Verdict = VerdictInvalid
	case order.Ambiguous:
		d.Verdict = VerdictAmbiguous
	default:
		return false
	}
	d.Refused, d.Reason = !p.Observe, m.Reason
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
