package page

import (
	"context"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// refusalGroup is the refusals of a kind. Those that are live change by themselves; older ones are there
// when the page is loaded.
type refusalGroup struct {
	Name string
	kind gate.RefusalKind
	live int
	List []refusalView
}

var refusalGroups = []refusalGroup{
	{Name: "Faulty requests", kind: gate.RefusedFaulty, live: 8},
	{Name: "Busy orders, repeats and faults", kind: gate.RefusedOther, live: 8},
	{Name: "Orders that do not exist", kind: gate.RefusedAbsent, live: 4},
}

// refusalView is a refused request.
type refusalView struct {
	gate.RecentRefusal
	Times  int // how many of them are listed as this one, the last of them
	Why    string
	Marked *explain.Marked // the request line; nil: the faulty part is not kept, or there is none
}

// refusalsOf returns the refusals that are live, or the older ones. The caller holds mu.
func (p *Page) refusalsOf(c *config.Config, older bool) (groups []refusalGroup) {
	for _, g := range refusalGroups {
		list, times := distinct(p.opts.Refusals.List(g.kind))
		if n := min(len(list), g.live); older {
			list, times = list[n:], times[n:]
		} else {
			list = list[:n]
		}
		for i, r := range list {
			v := p.explainRefusal(c, r)
			v.Times = times[i]
			g.List = append(g.List, v)
		}
		if len(g.List) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// distinct returns the last of those refusals that differ in nothing but their time and the request's ID,
// and how many there are of each.
func distinct(all []gate.RecentRefusal) (list []gate.RecentRefusal, times []int) {
	for _, r := range all {
		same := func(other gate.RecentRefusal) bool {
			other.At, other.Request = r.At, r.Request
			return other == r
		}
		if i := slices.IndexFunc(list, same); i >= 0 {
			times[i]++
			continue
		}
		list, times = append(list, r), append(times, 1)
	}
	return list, times
}

// explainRefusal finds the part of a request line that is wrong. Headers and bodies are not kept. What
// was explained before is not explained again. The caller holds mu.
func (p *Page) explainRefusal(c *config.Config, r gate.RecentRefusal) (v refusalView) {
	for _, g := range p.refusals {
		if known := slices.IndexFunc(g.List, func(v refusalView) bool { return v.RecentRefusal == r }); known >= 0 {
			return g.List[known]
		}
	}
	v = refusalView{RecentRefusal: r}
	if r.Reason == order.NoReason {
		v.Why = whyRefused[r.Verdict]
		return v
	}
	v.Why = r.Reason.Name() + ": " + r.Reason.String()
	var headers []string
	for i := range c.Rules {
		if c.Rules[i].Name == r.Rule && c.Rules[i].Match.Host != "" {
			headers = []string{"host: " + c.Rules[i].Match.Host}
		}
	}
	if p.explainer == nil || p.explained != c {
		p.explainer, _ = explain.Prepare(c) // it is the active configuration
		p.explained = c
	}
	q, err := explain.New(r.Line, headers)
	if err != nil || r.Cut || p.explainer == nil {
		return v
	}
	e, err := q.ExplainBy(context.Background(), p.explainer)
	if err != nil || e.Reason == nil || *e.Reason != r.Reason.Name() {
		return v
	}
	method, target, _ := strings.Cut(r.Line, " ")
	path, query, hasQuery := strings.Cut(target, "?")
	switch m := e.Marked(); {
	case m == nil:
	case m.Part == "path":
		if m.Before = method + " " + m.Before; hasQuery {
			m.After += "?" + admin.Visible(query)
		}
		v.Marked = m
	case m.Part == "query":
		m.Before = method + " " + admin.Visible(path) + "?" + m.Before
		v.Marked = m
	}
	return v
}

// whyRefused says why a request that can be read is refused.
var whyRefused = func() (all [gate.Verdicts]string) {
	all[gate.VerdictAbsent] = "there is no such order"
	all[gate.VerdictBusy] = "another call has the order's lock"
	all[gate.VerdictUnavailable] = "Redis, or the table that confirms it, does not answer"
	all[gate.VerdictOverloaded] = "too many settlements are in flight"
	all[gate.VerdictDuplicate] = "the order exists, or was settled"
	all[gate.VerdictMismatch] = "the key was used for another request"
	all[gate.VerdictInUse] = "the first call with the key has not ended"
	all[gate.VerdictNotReady] = "a condition of the settlement does not hold"
	all[gate.VerdictLost] = "the lease ended before the answer"
	all[gate.VerdictUnlocked] = "it was forwarded without its lock"
	return all
}()

// Short returns the beginning of a request line whose fault is not marked.
func (v refusalView) Short() string {
	const most = 120
	if len(v.Line) > most {
		return admin.Visible(v.Line[:most]) + "..."
	}
	return admin.Visible(v.Line)
}

// where returns the part of a request that a reason is about.
func (v refusalView) Where() string {
	if part := v.Reason.Part(); v.Marked == nil && part != "" && !strings.Contains(v.Why, part) {
		return part
	}
	return ""
}
