package page

import (
	"context"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/explain"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/internal/order"
)

// liveRefusals are shown at once, and change by themselves. Older ones are there when the page is loaded.
const liveRefusals = 20

// refusalView is a refused request.
type refusalView struct {
	gate.RecentRefusal
	Why    string
	Marked *explain.Marked // nil: the faulty part is not kept, or there is none
}

// refusalsOf returns the refusals from..to, the newest first. What was explained before is not
// explained again. The caller holds mu.
func (p *Page) refusalsOf(c *config.Config, from, to int) []refusalView {
	list := p.opts.Refusals.List()
	list = list[min(from, len(list)):min(to, len(list))]
	views := make([]refusalView, len(list))
	for i, r := range list {
		known := slices.IndexFunc(p.refusals, func(v refusalView) bool { return v.RecentRefusal == r })
		if known >= 0 {
			views[i] = p.refusals[known]
		} else {
			views[i] = p.explainRefusal(c, r)
		}
	}
	return views
}

// explainRefusal finds the part of a request line that is wrong. Headers and bodies are not kept.
func (p *Page) explainRefusal(c *config.Config, r gate.RecentRefusal) refusalView {
	v := refusalView{RecentRefusal: r}
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
	if m := e.Marked(); m != nil && slices.Contains([]string{"path", "query"}, m.Part) {
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

// where returns the part of a request that a reason is about.
func (v refusalView) Where() string {
	if part := v.Reason.Part(); v.Marked == nil && part != "" && !strings.Contains(v.Why, part) {
		return part
	}
	return ""
}
