package order

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// selector is a parameter that a rule matches by.
type selector struct {
	name    string
	values  []string // one of which the query has, as written
	folded  string   // the name as backends may fold it
	near    []string // the values as backends may fold them
	longest int      // bytes of one of near, with index behind it
	guards  bool     // the rule does not exempt requests
}

// compileQuery returns the rule's selectors, in the order of their names.
func (r *Rule) compileQuery() (all []selector, err error) {
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		s := selector{name: name, values: r.Query[name], folded: foldName(name), guards: !r.Pass}
		if !isPlainName(name) || len(s.values) == 0 {
			return nil, fmt.Errorf("parameter %q: a name is letters, digits, _ and -, and it has a value", name)
		}
		for _, value := range s.values {
			near := foldValue(decodeName(value))
			if near == "" || strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' || c == '&' || c == ';' || c == '#' }) {
				return nil, fmt.Errorf("parameter %q=%q: a value is visible ASCII without & ; and #, with a letter or digit in it", name, value)
			}
			s.near = append(s.near, near)
			s.longest = max(s.longest, len(near)+len("index"))
		}
		all = append(all, s)
	}
	return all, nil
}

// foldValue folds the value of a parameter into the form in which routers may confuse it with
// another: they drop what a name of code cannot have (OpenCart drops all but letters, digits
// and _ | / .), ignore case, take one separator for another, and run index by default.
func foldValue(value string) string { return withoutIndex(foldLetters(value)) }

// foldLetters drops all but letters and digits, and the case of these.
func foldLetters(value string) string {
	return strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || '0' <= c && c <= '9' {
			return c
		}
		return -1
	}, foldCase(value))
}

func withoutIndex(folded string) string {
	if short := strings.TrimSuffix(folded, "index"); short != "" {
		return short
	}
	return folded
}

// isNear reports whether a router may take a value for one of the selector's, after as many
// decodings as backends make.
func (s *selector) isNear(value string) bool {
	if value == unreadable {
		return true
	}
	for range decodeRounds + 1 {
		cut, _, _ := strings.Cut(value, "\x00") // it ends there in C
		if slices.Contains(s.near, foldValue(value)) || slices.Contains(s.near, foldValue(cut)) || slices.Contains(s.near, foldValue(inASCII(value))) {
			return true
		}
		decoded := decodeOnce(value)
		if decoded == value {
			break
		}
		value = decoded
	}
	return false
}

// inASCII drops the other characters, some of which fold into letters.
func inASCII(text string) string {
	return strings.Map(func(c rune) rune {
		if c >= utf8.RuneSelf {
			return -1
		}
		return c
	}, text)
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
	return slices.ContainsFunc(s.values, func(value string) bool { return hasPair(query, s.name, value) })
}

// hasPair reports whether a query has a parameter with this value, both as written.
func hasPair(query, name, value string) bool {
	for list := parameters(query); ; {
		n, v, ok := list.next()
		if !ok || n == name && v == value {
			return ok
		}
	}
}

// Pages returns how many pages a rule lists: the combinations of its values in Query.
func (t *Table) Pages(rule int) int {
	pages := 1
	for i := range t.rules[rule].selectors {
		pages *= len(t.rules[rule].selectors[i].values)
	}
	return pages
}

// Page returns the index, below [Table.Pages], of the page that a target of the rule names.
func (t *Table) Page(rule int, target string) (page int) {
	_, query, _ := strings.Cut(target, "?")
	for i := range t.rules[rule].selectors {
		s := &t.rules[rule].selectors[i]
		if len(s.values) == 1 {
			continue
		}
		named := func(value string) bool { return hasPair(query, s.name, value) }
		page = page*len(s.values) + max(0, slices.IndexFunc(s.values, named))
	}
	return page
}

// continues reports whether a value may be one of a guarding selector's with more segments: OpenCart 3
// ignores what follows the method of a class, and Yii 1 reads parameters from it. No router runs code
// by one segment and ignores the rest.
func (s *selector) continues(value string) bool {
	value = decodeName(value)
	return s.guards && (s.continuesAs(value) || s.continuesAs(inASCII(value)))
}

func (s *selector) continuesAs(value string) bool {
	folded, segments := "", 0
	for {
		segment, rest, more := strings.Cut(value, "/")
		if !more || len(folded) > s.longest {
			return false
		}
		value = rest
		if segment = foldLetters(segment); segment == "" { // routers drop it
			continue
		}
		folded += segment
		if segments++; segments >= 2 && slices.Contains(s.near, withoutIndex(folded)) {
			return true
		}
	}
}

// selects reports whether a folded name is a parameter that the rule matches by, and
// whether every backend reads it as that parameter.
func (r *compiled) selects(folded, name, value string) (isOne, certain bool) {
	for i := range r.selectors {
		if s := &r.selectors[i]; folded == s.folded {
			return true, name == s.name && slices.Contains(s.values, value)
		}
	}
	return false, false
}

// mayChoose reports whether a field of a body may have a backend run the code of some rule.
func (t *Table) mayChoose(folded, value string) bool {
	return slices.ContainsFunc(t.selectors, func(s selector) bool { return s.folded == folded && (s.isNear(value) || s.continues(value)) })
}

// isSelectivePass reports whether the rule exempts requests by their parameters.
func (r *compiled) isSelectivePass() bool { return r.Pass && len(r.selectors) > 0 }

// screenSelection checks a request whose rule depends on parameters. Either it lacks the
// parameters of an earlier rule, or parameters exempt it. Every backend must read them
// alike.
func (t *Table) screenSelection(req Request, rule int) Match {
	s := screening{table: t, req: &req, rule: -1, chosen: true}
	path, _, _ := strings.Cut(req.Target, "?")
	s.mounts = t.mountOf(path)
	s.noForm = !t.rules[rule].Pass // the matching rule checks the form
	return s.screen()
}

// choice is the value of a parameter that some rule matches by.
type choice struct{ folded, value string }

// choose records such a parameter, and reports whether every backend reads it alike. A value that
// no router takes for one of a rule leads elsewhere, whichever of several counts.
func (s *screening) choose(folded, name, value string, in Location) bool {
	certain := true
	for i := range s.table.selectors {
		sel := &s.table.selectors[i]
		if sel.folded != folded {
			continue
		}
		near := sel.isNear(value) || sel.continues(value) && !s.table.isValue(name, value)
		exact := in == InQuery && slices.Contains(sel.values, value) && (s.chosen || !sel.guards) && hasPair(s.query, name, value)
		if name != sel.name || !exact && near && !slices.Contains(s.choices, choice{folded, value}) {
			certain = false
		}
		if sel.guards && s.chosenOtherwise(folded, value, sel) {
			certain = false
		}
	}
	if in == InQuery {
		s.choices = append(s.choices, choice{strings.Clone(folded), value})
	}
	return certain
}

// chosenOtherwise reports whether the query gives the parameter another value, and one of the two
// may be taken for one of the selector's.
func (s *screening) chosenOtherwise(folded, value string, sel *selector) bool {
	return slices.ContainsFunc(s.choices, func(c choice) bool {
		return c.folded == folded && c.value != value && (sel.isNear(value) || sel.isNear(c.value))
	})
}

// isValue reports whether some rule matches by the parameter with this value, both as written.
func (t *Table) isValue(name, value string) bool {
	return slices.ContainsFunc(t.selectors, func(s selector) bool { return s.name == name && slices.Contains(s.values, value) })
}

func (t *Table) isSelector(folded string) bool {
	return slices.ContainsFunc(t.selectors, func(s selector) bool { return s.folded == folded })
}
