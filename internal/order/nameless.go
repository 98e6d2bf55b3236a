package order

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/ordergate/ordergate/internal/headername"
)

// findNames collects, for a rule with Nameless, the headers and the members of JSON by which the
// rules of a table read an order's ID. Other parameters are among the foreign names.
func (r *compiled) findNames(t *Table) {
	if !r.Nameless {
		return
	}
	for i := range t.orders {
		o := &t.orders[i]
		for j := range o.IDs[:o.orders] {
			id := &o.IDs[j]
			switch id.In {
			case InHeader:
				r.headers = append(r.headers, id.Name)
			case InJSON:
				path := make([]string, len(id.Members))
				for n, name := range id.Members {
					path[n] = foldName(name)
				}
				r.members = append(r.members, path)
			}
		}
	}
	for _, name := range r.foreign {
		r.members = append(r.members, []string{name})
	}
}

// isForeignHeader reports whether a backend may take a header for one in which some rule reads
// an order's ID.
func (r *compiled) isForeignHeader(name string) bool {
	return slices.ContainsFunc(r.headers, func(of string) bool { return headername.Equal(name, of) })
}

// checkNameless refuses a request without an ID if one of its headers, or a member of its JSON,
// is one by which any rule reads an order's ID. All other names are claims, with which a request
// without an ID never agrees.
func (r *compiled) checkNameless(req *Request, s *headerFacts, m Match) Match {
	switch {
	case s.names:
		return m.refused(Ambiguous, HeaderAlias)
	case !r.reads(InJSON) && !(s.json && profiles[r.Backend].members):
	case hasMember(jsontext.NewDecoder(bytes.NewReader(req.Body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), r.members, 0):
		return m.refused(Ambiguous, JSONAlias)
	}
	return m
}

// hasMember reports whether the next value is an object that has a member at one of the folded
// paths, or below it; the names of the object are step level of the paths. The body was checked:
// it is JSON. The recursion is as deep as the longest path.
func hasMember(dec *jsontext.Decoder, paths [][]string, level int) bool {
	if len(paths) == 0 || dec.PeekKind() != '{' {
		_ = dec.SkipValue()
		return false
	}
	_, _ = dec.ReadToken() // the bracket
	for dec.PeekKind() == '"' {
		name, _ := dec.ReadToken()
		folded := foldName(name.String())
		var below [][]string
		for _, path := range paths {
			switch {
			case path[level] != folded:
			case level+1 == len(path):
				return true
			default:
				below = append(below, path)
			}
		}
		if hasMember(dec, below, level+1) {
			return true
		}
	}
	_, _ = dec.ReadToken() // the bracket
	return false
}
