package order

import (
	"fmt"
	"slices"
	"strings"
)

// Table finds the rule for a request. It is immutable and safe for concurrent
// use.
//
// Rules hang in a tree with one level for each path segment, so the cost of a
// match depends on the length of the path and not on the number of rules.
type Table struct {
	rules []compiled
	root  node
}

type compiled struct {
	Rule
	idSegment int // index of the ID's segment in the path, or -1
}

// node stands for a path prefix.
type node struct {
	literal map[string]*node
	any     *node // a {name} segment
	rules   []int // rules whose template ends here, in file order
}

// NewTable compiles rules. Their order counts: the first whose method, host and
// path match decides. The error names the first rule that is unusable.
func NewTable(rules []Rule) (*Table, error) {
	t := &Table{rules: make([]compiled, 0, len(rules))}
	for i, r := range rules {
		if err := t.add(i, r); err != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Name, err)
		}
	}
	return t, nil
}

func (t *Table) add(index int, r Rule) error {
	if err := r.check(); err != nil {
		return err
	}
	segments, err := parseTemplate(r.Path)
	if err != nil {
		return err
	}
	idSegment, err := r.idSegment(segments)
	if err != nil {
		return err
	}
	n := &t.root
	for _, s := range segments {
		n = n.child(s)
	}
	n.rules = append(n.rules, index)
	t.rules = append(t.rules, compiled{Rule: r, idSegment: idSegment})
	return nil
}

func (n *node) child(s segment) *node {
	if s.isVar {
		if n.any == nil {
			n.any = &node{}
		}
		return n.any
	}
	if n.literal == nil {
		n.literal = make(map[string]*node)
	}
	next := n.literal[s.text]
	if next == nil {
		next = &node{}
		n.literal[s.text] = next
	}
	return next
}

// Match finds the request's rule and ID. It does not allocate, but for a UUID
// in upper case.
func (t *Table) Match(req Request) Match {
	path, query, _ := strings.Cut(req.Target, "?")
	if path == "" || path[0] != '/' {
		return Match{Rule: -1}
	}
	index := t.find(&t.root, path[1:], &req, len(t.rules))
	if index == len(t.rules) {
		return Match{Rule: -1}
	}
	return t.rules[index].read(index, path[1:], query, req.Header)
}

// find returns the lowest index below best of a rule for the rest of a path
// below n, or best when there is none. A literal and a {name} segment may both
// lead to rules: both are followed, and file order decides. The depth of the
// recursion is that of the deepest template, whatever the request.
func (t *Table) find(n *node, rest string, req *Request, best int) int {
	text, tail, more := strings.Cut(rest, "/")
	for _, next := range [2]*node{n.literal[text], n.any} {
		switch {
		case next == nil, next == n.any && text == "":
		case more:
			best = t.find(next, tail, req, best)
		default:
			best = t.firstOf(next.rules, req, best)
		}
	}
	return best
}

func (t *Table) firstOf(rules []int, req *Request, best int) int {
	for _, i := range rules {
		if i >= best {
			break
		}
		if t.rules[i].admits(req) {
			return i
		}
	}
	return best
}

func (r *compiled) admits(req *Request) bool {
	return slices.Contains(r.Methods, req.Method) &&
		(r.Host == "" || strings.EqualFold(r.Host, hostname(req.Host)))
}

// hostname cuts the port off an authority.
func hostname(authority string) string {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.IndexByte(authority[i:], ']') >= 0 { // the colons of an IPv6 address
		return authority
	}
	return authority[:i]
}
