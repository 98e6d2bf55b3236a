package gate

import (
	"context"
	"strings"
	"time"

	"github.com/ordergate/ordergate/internal/order"
)

// Screen judges a request before it goes to the backend. It blocks only as long
// as a filter takes to be certain, and does not allocate for a request without a
// body.
func (g *Gate) Screen(ctx context.Context, req order.Request) Decision {
	start := g.now()
	m := g.match(req)
	d, p := g.first(m)
	if p == nil {
		return d
	}
	if p.Lookup != nil && d.Verdict == VerdictNone {
		p.judge(&d, p.Lookup.verdict(ctx, m))
	}
	g.record.Decided(m.Rule, d.Action, d.Verdict, g.now().Sub(start))
	return d
}

// Glimpse is a judgement as far as it goes without waiting.
type Glimpse struct {
	Decision  Decision
	NeedsBody bool     // ask Glance again, with the request's body
	Waits     *Waiting // it takes time; nil: it is judged
}

// Waiting is a judgement that takes time. It has no part of the request's memory.
type Waiting struct {
	gate   *Gate
	policy *Policy
	d      Decision
	ids    []string
	start  time.Time
}

// Glance is Screen for a face that must not block.
func (g *Gate) Glance(req order.Request) Glimpse {
	start := g.now()
	m := g.match(req)
	d, p := g.first(m)
	switch {
	case d.Verdict != VerdictNone:
	case m.Rule >= 0 && m.Result == order.NeedsBody:
		return Glimpse{Decision: d, NeedsBody: true}
	case p == nil:
		return Glimpse{Decision: d, NeedsBody: d.Rule >= 0 && g.policies[d.Rule].isIncomplete(m, req)}
	default:
		v, ok := p.Lookup.glance(m)
		if v != VerdictAbsent && p.isIncomplete(m, req) {
			return Glimpse{Decision: d, NeedsBody: true}
		}
		if !ok {
			return Glimpse{Decision: d, Waits: &Waiting{g, p, d, cloned(m), start}}
		}
		p.judge(&d, v)
	}
	g.record.Decided(m.Rule, d.Action, d.Verdict, g.now().Sub(start))
	return Glimpse{Decision: d}
}

// Then has a function called with the decision, once, by whatever goroutine. It must
// not block. Then is called once, and does not block.
func (w *Waiting) Then(decided func(Decision)) { w.ask(0, decided) }

// ask asks for the IDs from one on: a list of orders is absent if all of them are.
func (w *Waiting) ask(i int, decided func(Decision)) {
	w.policy.Lookup.Filter.Later(w.ids[i], func(a Answer) {
		if a == Absent && i+1 < len(w.ids) {
			w.ask(i+1, decided)
			return
		}
		w.d.ID = w.ids[0]
		w.policy.judge(&w.d, verdictOf(a))
		w.gate.record.Decided(w.d.Rule, w.d.Action, w.d.Verdict, w.gate.now().Sub(w.start))
		decided(w.d)
	})
}

// cloned returns the IDs that a request names, in memory of their own.
func cloned(m order.Match) []string {
	if len(m.Batch) == 0 {
		return []string{strings.Clone(m.ID)}
	}
	ids := make([]string, len(m.Batch))
	for i, id := range m.Batch {
		ids[i] = strings.Clone(id)
	}
	return ids
}

// first begins a judgement. The policy is nil if there is nothing to say of the request
// yet; a verdict says that it is judged already.
func (g *Gate) first(m order.Match) (d Decision, p *Policy) {
	if m.Rule < 0 || m.Screening && m.Result == order.NeedsBody {
		return Decision{Rule: -1}, nil // or under a rule by a body that is yet to be seen
	}
	p = &g.policies[m.Rule]
	d = Decision{Rule: m.Rule, Action: p.firstAction(), ID: m.ID, Offset: m.Offset}
	if !g.refuses(p, m, &d) && p.Lookup == nil {
		return d, nil
	}
	return d, p
}

func (p *Policy) judge(d *Decision, v Verdict) {
	d.Verdict, d.Refused = v, v == VerdictAbsent && !p.Observe
}

// glance is verdict without waiting.
func (l *Lookup) glance(m order.Match) (Verdict, bool) {
	if m.ID == "" {
		return VerdictUnknown, true
	}
	answer, ok := l.Filter.Glance(m.ID)
	for i := 1; i < len(m.Batch) && ok && answer == Absent; i++ {
		answer, ok = l.Filter.Glance(m.Batch[i])
	}
	return verdictOf(answer), ok
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
	if !isRefused(m) {
		return false
	}
	g.refuse(p, m.Rule, m.Reason, d)
	return true
}

// isRefused reports whether the order of a request cannot be told.
func isRefused(m order.Match) bool {
	return m.Result == order.Invalid || m.Result == order.Ambiguous || m.Result == order.TooLarge
}

// refuse fills in the verdict on a request that is refused for a reason, and counts that.
func (g *Gate) refuse(p *Policy, rule int, why order.Reason, d *Decision) {
	markRefused(p, why, d)
	g.record.Refused(rule, why)
}

func markRefused(p *Policy, why order.Reason, d *Decision) {
	d.Verdict, d.Refused, d.Reason = verdictFor(why), !p.Observe, why
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
