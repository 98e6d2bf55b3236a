package page

import (
	"cmp"
	"fmt"
	"html/template"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/lockreport"
)

// view is what the templates of the parts have.
type view struct {
	State   state
	Rules   []ruleView
	Filters []filterView
	Locks   lockList

	Refusals []refusalGroup
}

type ruleView struct {
	Name, Does, Mode string
	Verdicts         []verdictRate
	P50, P99         float64
	Plot             plot
}

// look returns what the page shows. The caller holds mu.
func (p *Page) look(now time.Time) *view {
	c, v := p.opts.Config(), &view{}
	counts := sample{now, p.opts.Rules()}
	for i := range c.Rules {
		r := &c.Rules[i]
		if does := actions(r); does != "" {
			rate := p.history.now(counts, r.Name)
			v.Rules = append(v.Rules, ruleView{r.Name, does, r.Mode.String(), rate.verdicts, rate.p50, rate.p99, plotOf(p.history.rules[r.Name])})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Filters)) {
		v.Filters = append(v.Filters, p.viewOf(name, c.Filters[name].FalsePositiveRate, now))
	}
	v.Locks = p.lockList()
	p.refusals = p.refusalsOf(c, false)
	v.Refusals = p.refusals
	v.State = p.stateOf(c, v)
	return v
}

// actions returns what a rule does; "": it only lets requests pass.
func actions(r *config.Rule) string {
	var all []string
	for _, a := range []struct {
		name string
		has  bool
	}{{"lookup", r.Lookup != nil}, {"create", r.Create != nil}, {"settle", r.Settle != nil}, {"once", r.Once != nil}} {
		if a.has {
			all = append(all, a.name)
		}
	}
	return strings.Join(all, " and ")
}

// plot is the last hour of a rule, or what is known of it, drawn in a box of plotWidth by plotHeight.
type plot struct {
	Span                 string  // the time from the left to the right
	Passed, Refused, P99 string  // points of lines
	Most, MostP99        float64 // the greatest values
}

const (
	plotWidth, plotHeight = 120, 40
	// perColumn samples make one point of a line that is an hour long.
	perColumn = samples / plotWidth
	// fewSamples are drawn one by one, those of ten minutes.
	fewSamples = samples / 6
)

func plotOf(points []point) (p plot) {
	// The newest column may lack samples. A column keeps its samples as it moves.
	columns, step := slices.Collect(slices.Chunk(points, perColumn)), 1
	p.Span = "Last hour"
	if len(points) <= fewSamples {
		columns, step = slices.Collect(slices.Chunk(points, 1)), plotWidth/fewSamples
		p.Span = "Last 10 minutes"
	}
	// A line is drawn up to top; 0: to its own greatest value.
	line := func(of func(point) float64, top float64) (text string, most float64) {
		values := make([]float64, len(columns))
		for i, column := range columns {
			for _, s := range column {
				values[i] = max(values[i], of(s))
			}
			most = max(most, values[i])
		}
		var b strings.Builder
		for i, v := range values {
			fmt.Fprintf(&b, "%d,%.0f ", plotWidth-step*(len(values)-1-i), plotHeight-v/cmp.Or(top, most, 1)*plotHeight)
		}
		return b.String(), most
	}
	all := func(s point) float64 { return s.passed + s.refused }
	p.Passed, p.Most = line(all, 0)
	p.Refused, _ = line(func(s point) float64 { return s.refused }, p.Most)
	p.P99, p.MostP99 = line(func(s point) float64 { return s.p99 }, 0)
	return p
}

// functions are those of the templates.
var functions = template.FuncMap{
	"ends":   func(at time.Time, left admin.Seconds) string { return clock(at.Add(time.Duration(left))) },
	"escape": url.PathEscape,
	"waiting": func(n *int) string {
		switch {
		case n == nil:
			return "Redis does not show who waits"
		case *n == 0:
			return "Nobody waits"
		case *n == 1:
			return "1 process waits for it"
		}
		return fmt.Sprintf("%d processes wait for it", *n)
	},
	"visible": admin.Visible,
	"clock":   clock,
	"rate":    rateText,
	"wait":    waitText,
	"total":   func(n float64) string { return admin.Grouped(uint64(n)) },
	"count":   admin.Grouped,
	"percent": func(share float64) string {
		if share > 0 && share < 1e-6 {
			return "below 0.0001%"
		}
		return admin.Percent(share)
	},
	"bytes": admin.SizeText,
	"renewed": func(l lockreport.Lock, h lockreport.Holder) string {
		switch at, every := l.Renewed(h); {
		case every == 0:
			return ""
		case at.IsZero():
			return fmt.Sprintf("not yet, every %v", every)
		default:
			return fmt.Sprintf("%s, every %v", clock(at), every)
		}
	},
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) },
}

// clock returns a time of day, with the date if it is not today's. All times are in UTC.
func clock(t time.Time) string {
	if t.IsZero() {
		return "the start"
	}
	t = t.UTC()
	if y, m, d := time.Now().UTC().Date(); t.Before(time.Date(y, m, d, 0, 0, 0, 0, time.UTC)) {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05")
}

func rateText(r float64) string {
	switch {
	case r == 0:
		return "0"
	case r < 10:
		return fmt.Sprintf("%.1f", r)
	}
	return admin.Grouped(uint64(math.Round(r)))
}

func waitText(seconds float64) string {
	switch {
	case seconds == 0:
		return "-"
	case seconds < 1e-3:
		return fmt.Sprintf("%.0f µs", seconds*1e6)
	case seconds < 1:
		return fmt.Sprintf("%.3g ms", seconds*1e3)
	}
	return fmt.Sprintf("%.1f s", seconds)
}
