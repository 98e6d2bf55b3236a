package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/filter"
	"github.com/ordergate/ordergate/internal/health"
)

// state is the first line of the page: what ordergate does now, and what to do.
type state struct {
	Good     bool
	Text, Do string
	Troubles []trouble // the conditions that have a reason
}

type trouble struct {
	Name, Reason string
	Ready        bool
	Since        time.Time
}

// stateOf says in plain words what is refused. The caller holds mu.
func (p *Page) stateOf(c *config.Config, v *view) (s state) {
	for _, t := range p.conditions {
		if t.Reason != "" || !t.Ready {
			s.Troubles = append(s.Troubles, trouble{t.Name, t.Reason, t.Ready, p.since["condition "+t.Name].at})
		}
	}
	var enforced []string // the filters of enforced lookups
	looksUp, settles, enforces := false, false, false
	for i := range c.Rules {
		r := &c.Rules[i]
		looksUp, settles = looksUp || r.Lookup != nil, settles || r.Settle != nil
		enforces = enforces || r.Mode.Enforces()
		if r.Lookup != nil && r.Mode.Enforces() && !slices.Contains(enforced, r.Lookup.Filter) {
			enforced = append(enforced, r.Lookup.Filter)
		}
	}
	var out []filterView // the filters that refuse nothing
	for _, f := range v.Filters {
		if slices.Contains(enforced, f.Filter) && f.State != filter.StateReady {
			out = append(out, f)
		}
	}
	redis := p.away()
	switch {
	case len(c.Rules) == 0, !enforces:
		s.Text, s.Do = "Nothing is refused, because every rule only observes", "Set mode: enforce, or a share of it, when the counts below are as you expect."
	case len(out) > 0:
		because, since := p.because(out[0], redis)
		s.Do = p.remedy(out[0], redis)
		if s.Text = "Made-up orders pass"; len(out) < len(enforced) {
			s.Text = fmt.Sprintf("Some made-up orders pass (%d of %d filters refuse none)", len(out), len(enforced))
		}
		s.Text += fmt.Sprintf(", because %s, since %s", because, clock(since))
	case len(enforced) > 0:
		s.Good, s.Text = true, "Made-up orders are refused"
	case looksUp:
		s.Text, s.Do = "Made-up orders pass, because the rules that look orders up only observe", "Set mode: enforce, or a share of it, when the counts below are as you expect."
	default:
		s.Good, s.Text = true, "No rule looks orders up"
	}
	switch {
	case !settles:
	case redis != nil:
		s.Text += ". Settlements get 503: they need Redis"
	case p.lockTrouble() != "":
		s.Good, s.Text = false, s.Text+". Settlements get 503: "+p.lockTrouble()
	case s.Good:
		s.Text += ", and orders are settled one call at a time"
	}
	s.Text += "."
	s.Good = s.Good && redis == nil
	return s
}

// away returns the condition of a Redis that does not answer, or nil. The caller holds mu.
func (p *Page) away() *health.Condition {
	for i, c := range p.conditions {
		if c.Name == "redis" && c.Ready && c.Cause != "" {
			return &p.conditions[i]
		}
	}
	return nil
}

// lockTrouble returns why no settlement gets a lock. The caller holds mu.
func (p *Page) lockTrouble() string {
	for _, c := range p.conditions {
		if strings.HasPrefix(c.Name, "lock ") && !c.Ready {
			return cmp.Or(c.Cause, c.Reason)
		}
	}
	return ""
}

// because says why a filter refuses nothing, and since when. The caller holds mu.
func (p *Page) because(f filterView, redis *health.Condition) (text string, since time.Time) {
	switch {
	case f.State == filter.StateLoading:
		return "filter " + f.Filter + " is loading", f.Since
	case redis != nil:
		if since = p.since["condition redis"].at; since.Before(f.Since) {
			since = f.Since
		}
		return "Redis does not answer", since
	}
	return "filter " + f.Filter + " is unknown", f.Since
}

// remedy says what to do about a filter that refuses nothing. The caller holds mu.
func (p *Page) remedy(f filterView, redis *health.Condition) string {
	const itself = "ordergate goes on by itself then."
	load := ""
	if f.NeedsLoad {
		load = "Bring the sources up to date, and then run ordergate load --filter " + f.Filter + "."
	}
	switch {
	case redis != nil && load != "":
		return "Start Redis, or mend the way to it. " + load
	case redis != nil:
		return "Start Redis, or mend the way to it: " + itself
	case load != "":
		return load
	}
	for _, s := range f.Sources {
		for _, c := range p.conditions {
			if c.Name == "source "+s.Name && c.Reason != "" {
				return "Mend source " + s.Name + ", see below: " + itself
			}
		}
	}
	if f.State == filter.StateLoading {
		return "Wait until it is ready."
	}
	return "See its reason under Filters."
}
