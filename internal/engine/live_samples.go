package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/loader"
	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/internal/rules"
	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/internal/spelling"
)

// checkSource reads a few IDs of a filter's source, and compares them with the rules.
func (l *liveCheck) checkSource(ctx context.Context, filter, name string) {
	c, path := l.config.Sources[name], "sources."+name
	if c.Feed() {
		sample, err := loader.SampleTopic(ctx, l.config, filter, name)
		l.report(path, err)
		if err == nil {
			l.checkSample(filter, name, "topic "+c.Topic, sample)
		}
		return
	}
	if !c.Live() {
		sample, err := loader.SampleFile(ctx, l.config, filter, name)
		l.report(path+".path", err)
		if err == nil {
			l.checkSample(filter, name, "file "+c.Path, sample)
		}
		return
	}
	sample, err := loader.SampleTable(ctx, name, c, l.config.Filters[filter].Parts)
	if err != nil {
		l.report(path, err)
		return
	}
	l.result.Clocks[path] = sample.Ahead
	if err := loader.CheckVerify(ctx, l.config, filter, name); err != nil {
		sample.Warnings = append(sample.Warnings, "refusals are not verified by this table: "+err.Error())
	}
	for _, warning := range sample.Warnings {
		l.result.Notes = append(l.result.Notes, config.Violation{Path: path, Message: warning})
	}
	l.checkSample(filter, name, "table "+c.Table, sample)
	l.checkSpellings(ctx, filter, name)
}

// checkSpellings compares what the columns of a table take for the same with what rules do: an order
// with two spellings is settled twice, and its lookup by the other one is refused.
func (l *liveCheck) checkSpellings(ctx context.Context, filter, name string) {
	c, parts := l.config.Sources[name], l.config.Filters[filter].Parts
	err := loader.Alike(ctx, name, c, parts, func(columns []spelling.Column) error {
		for i := range l.config.Rules {
			r := &l.config.Rules[i]
			if !l.concerns(r, filter) {
				continue
			}
			formats, err := rules.FormatsOfRule(r)
			if err != nil {
				return err
			}
			twins, err := rules.FindTwins(formats, columns)
			if err != nil {
				return err
			}
			for _, t := range twins {
				path := fmt.Sprintf("rules[%d].id", i)
				if t.Column < len(parts) {
					path = fmt.Sprintf("rules[%d].parts.%s", i, parts[t.Column])
				}
				message := fmt.Sprintf("rule %s: %s (table %s, sources.%s)", r.Name, t.Text, c.Table, name)
				if r.Mode.Enforces() {
					l.misfit(path, message)
				} else {
					l.result.Notes = append(l.result.Notes, config.Violation{Path: path, Message: message})
				}
			}
		}
		return nil
	})
	l.report("sources."+name, err)
}

// checkSample compares a sample with each rule whose requests name the orders of the source.
func (l *liveCheck) checkSample(filter, name, where string, s source.Sample) {
	path := "sources." + name
	if len(s.Rows) == 0 {
		l.result.Samples = append(l.result.Samples, path+": "+where+" has no rows")
		if l.config.Sources[name].Kind == config.SourceCSV {
			l.result.Notes = append(l.result.Notes, config.Violation{Path: path + ".path", Message: where + " has no orders: ordergate refuses every order that it has not learned"})
		}
		return
	}
	usable := make([]source.SampleRow, 0, len(s.Rows))
	for _, row := range s.Rows {
		if row.Reason == "" {
			usable = append(usable, row)
		} else if l.config.Sources[name].OnBad == config.OnBadFail {
			l.misfit(path, fmt.Sprintf("%s has no usable order ID in the row with %s: %s", where, row.Where, row.Reason))
			return
		}
	}
	var mine []int
	for i := range l.config.Rules {
		if l.concerns(&l.config.Rules[i], filter) {
			mine = append(mine, i)
		}
	}
	fits := func(row source.SampleRow) bool { // some rule
		for _, i := range mine {
			if _, ok, _ := rules.Canonical(&l.config.Rules[i], row.ID); ok {
				return true
			}
		}
		return false
	}
	for _, i := range mine {
		r, at := &l.config.Rules[i], fmt.Sprintf("rules[%d].id", i)
		var seen []string
		var refused *source.SampleRow
		for n := range usable {
			row := &usable[n]
			canonical, ok, err := rules.Canonical(r, row.ID)
			l.report(at, err)
			if ok {
				seen = append(seen, canonical)
			} else if refused == nil && (!fits(*row) || rules.OfKind(r, row.ID)) {
				refused = row
			}
		}
		skips := l.config.Sources[name].OnBad == config.OnBadSkip && len(seen) > 0
		switch {
		case refused == nil && len(seen) == 0 && len(usable) > 0:
			refused = &usable[0]
			fallthrough
		case refused != nil && !skips:
			l.misfit(at, fmt.Sprintf("rule %s refuses the ID of a row of %s (%s): %s is %q where %s; the rule accepts %s",
				r.Name, where, path, s.Column, shorten(refused.ID), refused.Where, rules.Accepted(r)))
			continue
		}
		l.checkWidth(at, r, s)
		l.checkCase(at, filter, r, where+" ("+path+")", usable)
		l.result.Samples = append(l.result.Samples, fmt.Sprintf("%s: rule %s sees %s in %s", path, r.Name, strings.Join(three(seen), ", "), where))
	}
}

// checkWidth notes that a rule accepts numbers that the ID column cannot hold.
func (l *liveCheck) checkWidth(path string, r *config.Rule, s source.Sample) {
	if s.Largest == "" {
		return
	}
	formats, err := rules.FormatsOfRule(r)
	l.report(path, err)
	if rules.Wider(formats, s.Largest) {
		l.result.Notes = append(l.result.Notes, config.Violation{Path: path, Message: source.Narrow(s.Column, s.Type, s.Largest)})
	}
}

// checkCase compares the case of a sample's IDs with that of the names that a rule makes of them. A
// service that names locks, latches or the elements of a filter by the IDs of the table does not
// find those of the rule. A filter that such a service fills then lacks every order.
func (l *liveCheck) checkCase(path, filter string, r *config.Rule, where string, rows []source.SampleRow) {
	if !slices.ContainsFunc(r.IDs, func(id config.ID) bool { return id.FoldsCase() }) {
		return
	}
	all, first, named := "", "", ""
	for _, row := range rows {
		canonical, ok, _ := rules.Canonical(r, row.ID)
		own := row.ID[len(order.Prefix(row.ID)):]
		switch has := caseOf(own); {
		case !ok || has == "" || has == all:
		case all == "" && has != config.CaseAsIs:
			all, first, named = has, own, canonical[len(order.Prefix(canonical)):]
		default:
			return // they have no case of their own
		}
	}
	if first == named {
		return
	}
	message := fmt.Sprintf("the IDs of %s are in another case than the names of rule %s: %s in the table is %s in locks and filters, where another service may look for %s; set case: %s in the rule's id",
		where, r.Name, shorten(first), shorten(named), shorten(first), all)
	if l.config.Filters[filter].InRedis() == config.FilterRedisson {
		l.misfit(path, message)
		return
	}
	l.result.Notes = append(l.result.Notes, config.Violation{Path: path, Message: message})
}

// caseOf returns the case of the letters of a text; "": it has none. Those of both are as they are.
func caseOf(text string) string {
	switch lower, upper := strings.ToLower(text) == text, strings.ToUpper(text) == text; {
	case lower && upper:
		return ""
	case lower:
		return config.CaseLower
	case upper:
		return config.CaseUpper
	}
	return config.CaseAsIs
}

// concerns reports whether the requests of a rule name orders of a filter. A rule that only
// settles names no filter: it concerns the only one, and that of another rule with its lock.
func (l *liveCheck) concerns(r *config.Rule, filter string) bool {
	switch {
	case len(r.IDs) == 0: // a session has the order, or the answer does
		return false
	case r.Lookup != nil:
		return r.Lookup.Filter == filter
	case r.Create != nil:
		return r.Create.Filter == filter
	}
	if r.Settle == nil || len(r.Parts) != len(l.config.Filters[filter].Parts) {
		return false
	}
	return len(l.config.Filters) == 1 || slices.ContainsFunc(l.config.Rules, func(other config.Rule) bool {
		return other.OrderLock() == r.OrderLock() && other.Lookup != nil && other.Lookup.Filter == filter
	})
}

func (l *liveCheck) misfit(path, message string) {
	l.result.Misfits = append(l.result.Misfits, config.Violation{Path: path, Message: message})
}

// three returns at most three IDs: the first, the last, and one between them.
func three(ids []string) (list []string) {
	for i, id := range ids {
		if i == 0 || i == len(ids)/2 || i == len(ids)-1 {
			list = append(list, shorten(id))
		}
	}
	return list
}

// shorten keeps lines short.
func shorten(id string) string {
	const enough = 40
	if len(id) <= enough {
		return id
	}
	return id[:enough] + "..."
}
