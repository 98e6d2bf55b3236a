package order

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// selector is a parameter that a rule matches by.
type selector struct {
	name, value string
	folded      string // the name as backends may fold it
	foldedValue string
	guards      bool // the rule does not exempt requests
}

// compileQuery returns the rule's selectors, in the order of their names.
func (r *Rule) compileQuery() (all []selector, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		value := r.Query[name]
		if !isPlainName(name) || !isPlainName(value) {
			return nil, fmt.Errorf("parameter %q=%q: names and values are letters, digits, _ and -", name, value)
		}
		all = append(all, selector{name: name, value: value, folded: foldName(name), foldedValue: foldName(value), guards: !r.Pass})
	}
	return all, nil
}

// isSelected reports whether a query has all of the rule's parameters, in their exact
// spelling.
func (r *compiled) isSelected(req *Request) bool {
	_, query, _ := strings.Cut(req.Target, "?")
	for i := range r.selectors {
		if s := &r.selectors[i]; !s.isIn(query) {
			return false
		}
	}
	return true
}

func (s *selector) isIn(query string) bool {
	for list := parameters(query); ; {
		name, value, ok := list.next()
		if !ok || name == s.name && value == s.value {
			return ok
		}
	}
}

// selects reports whether a folded name is a parameter that the rule matches by, and
// whether every backend reads it as that parameter.
func (r *compiled) selects(folded, name, value string) (isOne, certain bool) {
	for i := range r.selectors {
		if s := &r.selectors[i]; folded == s.folded {
			return true, name == s.name && value == s.value
		}
	}
	return false, false
}

// isSelectivePass reports whether the rule exempts requests by their parameters.
func (r *compiled) isSelectivePass() bool { return r.Pass && len(r.selectors) > 0 }

// screenSelection checks a request whose rule depends on parameters. Either it lacks the
// parameters of an earlier rule, or parameters exempt it. Every backend must read them
// alike.
func (t *Table) screenSelection(req Request, rule int) Match {
	s := screening{table: t, req: &req, rule: -1, chosen: true}
	s.noForm = !t.rules[rule].Pass // the matching rule checks the form
	return s.screen()
}

// choice is the first value of a parameter that some rule matches by.
type choice struct{ folded, value string }

// choose records such a parameter, and reports whether it is unambiguous. Every backend
// must find the same value everywhere, and no rule may match by it without having matched.
func (s *screening) choose(folded, name, value string, in Location) bool {
	certain := isPlainName(name) && isPlainName(value)
	for i := range s.table.selectors {
		sel := &s.table.selectors[i]
		if sel.folded != folded {
			continue
		}
		near := foldName(value) == sel.foldedValue && (value != sel.value || in != InQuery || !s.chosen && sel.guards)
		if name != sel.name || near && !s.chose(folded, value) {
			certain = false
		}
	}
	known := false
	for _, c := range s.choices {
		if c.folded == folded {
			known, certain = true, certain && c.value == value
		}
	}
	if in == InQuery && !known {
		s.choices = append(s.choices, choice{strings.Clone(folded), value})
	}
	return certain
}

// chose reports whether the query contains that choice.
func (s *screening) chose(folded, value string) bool {
	return slices.Contains(s.choices, choice{folded, value})
}

func (t *Table) isSelector(folded string) bool {
	return slices.ContainsFunc(t.selectors, func(s selector) bool { return s.folded == folded })
}
