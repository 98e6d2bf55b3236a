package order

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Table finds the rule for a request. It is immutable and safe for concurrent use.
//
// Rules are stored in trees with one level for each path segment. So the cost of a match
// depends on the length of the path, and not on the number of rules.
type Table struct {
	rules   []compiled
	exact   tree // of all rules, literals as written
	anyCase tree // of all rules, for those that ignore case
	near    tree // of the guarding rules, also as folders: of an index.php, and without the trailing slash
	routed  tree // of the guarding rules as in near, and without suffixes: by what scripts take for a path
	views   tree // of the guarding rules of scripts, without .php
	mounts  []*mount
	lenient readings

	// plainNear means that a path which all backends read alike may be near a rule: the rule
	// is in near as a folder, or near folds its upper-case letters.
	plainNear bool

	// namesScript means that a guarding rule's path ends in a {name} that may be index.php.
	namesScript bool

	controllers []string            // paths at which parameters choose what runs, in lower case
	chosen      []string            // those of rules that match by a parameter
	orders      []compiled          // the rules that read an order's ID
	cookies     map[string][]Format // in which rules read an ID or a part, with its formats
	selectors   []selector          // of all rules
	methods     []string            // of the guarding rules

	hosts       []string // of the rules
	ignoresCase bool     // some rule ignores case
	ends        int      // the largest number of bytes before which the name of a rule's last segment may end
	depth       int      // the largest number of segments in the path of a rule or a front controller
}

// tree finds rules by path. It spells literals and paths by the same function, so that no
// two of them can be compared in different spellings.
type tree struct {
	root  node
	spell func(string) string
}

func (t *tree) add(segments []segment, rule int) { t.root.add(segments, rule, t.spell) }

// addNear adds a guarding rule, by a path of its own or of a folder.
func (t *Table) addNear(segments []segment, rule int) {
	t.near.add(segments, rule)
	t.routed.add(segments, rule)
}

// find searches the tree for a path, which begins with a slash.
func (f *finder) find(t *tree, path string, admits admission) {
	f.below(&t.root, t.spell(path)[1:], admits)
}

func asWritten(text string) string { return text }

// node stands for a path prefix.
type node struct {
	literal map[string]*node
	last    string // the key that was added last to literal: most nodes have only one
	child   *node  // the node of last
	any     *node  // a {name} segment
	rules   []int  // rules whose template ends here, in file order
}

// NewTable compiles rules. The first rule whose method, host and path match decides. The
// error names the first unusable rule.
func NewTable(rules []Rule) (*Table, error) {
	t := &Table{
		rules: make([]compiled, 0, len(rules)), cookies: make(map[string][]Format),
		exact: tree{spell: asWritten}, anyCase: tree{spell: lower}, near: tree{spell: asWritten},
	}
	for i := range rules {
		t.ignoresCase = t.ignoresCase || rules[i].IgnoreCase
		if !rules[i].Pass {
			t.lenient = t.lenient.union(profiles[rules[i].Backend])
		}
	}
	if t.ignoresCase || t.lenient.anyCase {
		t.near.spell = foldCase
	}
	t.routed.spell, t.views.spell = t.near.spell, t.near.spell
	for i, r := range rules {
		c, segments, err := compile(r)
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
		t.rules = append(t.rules, c)
		t.depth = max(t.depth, len(segments))
		t.exact.add(segments, i)
		t.anyCase.add(segments, i)
		t.selectors = append(t.selectors, c.selectors...)
		if len(c.selectors) > 0 && !strings.Contains(r.Path, "{") {
			t.chosen = append(t.chosen, lower(withoutSlash(r.Path)))
		}
		if r.Host != "" && !slices.Contains(t.hosts, r.Host) {
			t.hosts = append(t.hosts, r.Host)
		}
		if r.Pass {
			continue
		}
		t.addNear(segments, i)
		if t.lenient.indexPHP {
			t.addRouted(segments, i)
		}
		if last := segments[len(segments)-1]; !last.isVar {
			t.ends = max(t.ends, countEnds(t.near.spell(last.text)))
		}
		t.namesScript = t.namesScript || c.mayNameScript(segments[len(segments)-1])
		t.plainNear = t.plainNear || t.near.spell(r.Path) != r.Path
		if r.Path != withoutSlash(r.Path) {
			t.plainNear = true
			t.addNear(segments[:len(segments)-1], i)
		}
		// The path of a folder: the path of its script without the last segment, or "/".
		if folder := len(segments) - 1; profiles[r.Backend].indexPHP && strings.HasSuffix(lower(r.Path), indexScript) {
			t.plainNear = true
			t.addNear(append(slices.Clone(segments[:folder]), segment{})[:max(1, folder)], i)
		}
		t.methods = append(t.methods, r.Methods...)
		if slices.Contains(r.Methods, "GET") {
			t.methods = append(t.methods, "HEAD")
		}
		if profiles[r.Backend].indexPHP {
			paths := r.FrontControllers
			if paths == nil {
				paths = frontControllers
			}
			for _, path := range paths {
				t.controllers = append(t.controllers, lower(path))
				t.depth = max(t.depth, strings.Count(path, "/"))
			}
		}
		if len(c.IDs) > 0 {
			t.orders = append(t.orders, c)
		}
		for i := range c.IDs {
			if c.IDs[i].In == InCookie {
				name := c.IDs[i].Name
				t.cookies[name] = append(t.cookies[name], c.IDs[i].Format)
			}
		}
	}
	slices.Sort(t.methods)
	t.methods = slices.Compact(t.methods)
	t.chosen = withViews(t.chosen)
	t.controllers = append(withViews(t.controllers), t.chosen...)
	slices.Sort(t.controllers)
	t.controllers = slices.Compact(t.controllers)
	for i := range t.rules {
		t.rules[i].table = t
		t.rules[i].foreign = t.foreignNames(&t.rules[i])
		t.rules[i].mounts = t.mountsAbove(t.rules[i].Path)
		t.rules[i].findNames(t)
		t.rules[i].findNested(t)
		t.rules[i].partNames = t.foreignPartNames(&t.rules[i])
	}
	return t, nil
}

// foreignNames returns the folded names by which other rules read an order's ID. It returns
// none if the rule reads no ID itself, or if its backend keeps path, query, form and
// cookies apart.
func (t *Table) foreignNames(r *compiled) (names []string) {
	for o, j := range t.foreignOrders(r) {
		if name := o.aliases[j]; !slices.Contains(r.aliases, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// foreignOrders returns the rules of the table, and the indices of their orders' IDs, if a backend
// may take such an ID for that of the rule.
func (t *Table) foreignOrders(r *compiled) iter.Seq2[*compiled, int] {
	return func(yield func(*compiled, int) bool) {
		if r.orders == 0 || !profiles[r.Backend].parameters {
			return
		}
		for i := range t.orders {
			for j := range t.orders[i].orders {
				if !yield(&t.orders[i], j) {
					return
				}
			}
		}
	}
}

// withoutSlash removes the trailing slash of a path other than "/".
func withoutSlash(path string) string {
	if path == "/" {
		return path
	}
	return strings.TrimSuffix(path, "/")
}

func (n *node) add(segments []segment, rule int, spell func(string) string) {
	for _, s := range segments {
		if s.isVar {
			if n.any == nil {
				n.any = &node{}
			}
			n = n.any
			continue
		}
		if n.literal == nil {
			n.literal = make(map[string]*node)
		}
		text := spell(s.text)
		if n.literal[text] == nil {
			n.last, n.child = text, &node{}
			n.literal[text] = n.child
		}
		n = n.literal[text]
	}
	n.rules = append(n.rules, rule)
}

// Match finds the request's rule and ID. It does not allocate for a request without a body
// that is not refused, unless it names a UUID in upper case. Time and memory are linear in
// the size of the request.
func (t *Table) Match(req Request) (m Match) {
	t.Find(&req, &m)
	return m
}

// Find is Match. It returns the rule for [Table.MatchBody].
func (t *Table) Find(req *Request, m *Match) Found {
	found := t.match(req, m)
	if m.Result == Ambiguous || len(t.hosts) > 0 && t.refuseOtherHosts(req, m) {
		found = Found{}
	}
	if m.Rule < 0 && t.lenient.indexPHP && req.respellsURL() {
		if guard := t.guardRule(req); guard >= 0 {
			*m = Match{Result: Ambiguous, Rule: guard, Reason: URLOverride, Offset: -1, Screening: true}
		}
	}
	return found
}

// MatchBody is Match for the body of a request that Find has seen without it: it goes on with the rule
// that Find has found.
func (t *Table) MatchBody(req *Request, found Found, m *Match) {
	if found.way == 0 {
		t.Find(req, m)
		return
	}
	path, query, _ := strings.Cut(req.Target, "?")
	if found.way&bare != 0 {
		path, _ = withoutSession(path)
	}
	if found.way&screened != 0 { // a body may give the request another method
		if *m = t.screenSelection(*req, found.rule); m.Result != Unruled {
			return
		}
	}
	t.rules[found.rule].read(found, path, query, req, m)
}

func (t *Table) match(req *Request, m *Match) (found Found) {
	path, query, _ := strings.Cut(req.Target, "?")
	if path == "" || path[0] != '/' {
		*m = t.screenUnmatched(*req, path, false, false, false)
		return
	}
	f, way := t.findExact(req, path), literal
	if short, ok := withoutSession(path); ok && t.lenient.session {
		g := t.findExact(req, short)
		if first := min(g.best, f.best); first < len(t.rules) && profiles[t.rules[first].Backend].session {
			path, f, way = short, g, literal|bare // the backend maps the bare path
		}
	}
	best := f.best < len(t.rules)
	if best && (f.selecting < f.best || t.rules[f.best].isSelectivePass()) {
		// A backend may still find those parameters.
		if *m = t.screenSelection(*req, f.best); m.Result != Unruled {
			return
		}
		way |= screened
	}
	switch {
	case best && t.rules[f.best].Pass:
		*m = t.screenExempt(*req, path)
		return
	case best:
		if f.other < len(t.rules) {
			way |= otherMethod
		}
		if f.selecting < len(t.rules) {
			way |= otherChoice
		}
		found = Found{f.best, way}
		t.rules[f.best].read(found, path, query, req, m)
		return
	case f.other < len(t.rules):
		*m = Match{Result: Ambiguous, Rule: f.other, Reason: OtherMethod, Offset: -1}
		return
	case f.passing < len(t.rules):
		if *m = t.screenOverride(*req, path, f.passing, &t.near); m.Result != Unruled {
			return
		}
	}
	chooses := f.selecting < len(t.rules)
	// Behind a front controller, a page that a rule leaves to other methods may choose by a parameter, too.
	page := f.passing < len(t.rules) && profiles[t.rules[f.passing].Backend].indexPHP && len(t.selectors) > 0
	if !chooses && !page && t.isPlain(path) && !t.plainNear && !t.isController(path, t.controllers) {
		*m = Match{Rule: -1}
		return
	}
	*m = t.screenUnmatched(*req, path, chooses, f.passing < len(t.rules) && len(t.rules[f.passing].selectors) > 0, page)
	return
}

// finder searches a tree for a path.
type finder struct {
	table *Table
	req   *Request

	best      int // lowest index of a rule that matches
	other     int // lowest index of a rule that matches except for its method
	passing   int // the same for a rule that lets other methods pass
	selecting int // lowest index of a rule that matches except for its parameters
}

// findExact looks up a path in its exact spelling.
func (t *Table) findExact(req *Request, path string) finder {
	f := t.finder(req)
	f.find(&t.exact, path, admitsExact)
	if f.best == len(t.rules) && t.ignoresCase {
		f.find(&t.anyCase, path, admitsIgnoringCase)
	}
	return f
}

func (t *Table) finder(req *Request) finder {
	n := len(t.rules)
	return finder{table: t, req: req, best: n, other: n, passing: n, selecting: n}
}

// admission reports whether a search of a tree may return a rule.
type admission func(*compiled) bool

func admitsExact(r *compiled) bool        { return !r.IgnoreCase }
func admitsIgnoringCase(r *compiled) bool { return r.IgnoreCase }
func admitsAll(*compiled) bool            { return true }

// below follows the rest of a path below n. Both a literal and a {name} segment may lead to
// rules. It follows both, and file order decides. The recursion is as deep as the deepest
// template, for any request.
func (f *finder) below(n *node, rest string, admits admission) {
	text, tail, more := rest, "", false
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		text, tail, more = rest[:i], rest[i+1:], true
	}
	if next := n.next(text); next != nil {
		f.follow(next, tail, more, admits)
	}
	if n.any != nil && text != "" {
		f.follow(n.any, tail, more, admits)
	}
}

func (f *finder) follow(n *node, tail string, more bool, admits admission) {
	if more {
		f.below(n, tail, admits)
	} else if len(n.rules) > 0 {
		f.choose(n.rules, admits)
	}
}

// next returns the node of a literal segment, nil if there is none. It avoids the hash
// table for most nodes.
func (n *node) next(text string) *node {
	if text == n.last {
		return n.child
	}
	if len(n.literal) <= 1 {
		return nil
	}
	return n.literal[text]
}

func (f *finder) choose(rules []int, admits admission) {
	for _, i := range rules {
		r := &f.table.rules[i]
		if !admits(r) || !r.AdmitsHost(f.req.Host) {
			continue
		}
		switch {
		case len(r.selectors) > 0 && !r.isSelected(f.req):
			f.selecting = min(f.selecting, i)
		case r.AdmitsMethod(f.req.Method):
			f.best = min(f.best, i)
		case r.Pass:
		case r.OtherMethods && !r.AdmitsMethod(strings.ToUpper(f.req.Method)): // some backends read get as GET
			f.passing = min(f.passing, i)
		default:
			f.other = min(f.other, i)
		}
	}
}

// AdmitsMethod reports whether the rule is for a method. It treats HEAD as GET, as backends do.
func (r *Rule) AdmitsMethod(method string) bool {
	for _, m := range r.Methods {
		if m == method || m == "GET" && method == "HEAD" {
			return true
		}
	}
	return false
}

// lower folds ASCII letters. It allocates only if there are upper-case ones.
func lower(text string) string {
	for i := range len(text) {
		if isUpper(text[i]) {
			b := []byte(text)
			for ; i < len(b); i++ {
				if isUpper(b[i]) {
					b[i] += 'a' - 'A'
				}
			}
			return string(b)
		}
	}
	return text
}

func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
