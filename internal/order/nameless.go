package order

import (
	"slices"

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
				r.members = append(r.members, id.foldedPath())
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
func (r *compiled) checkNameless(req *Request, s *headerFacts, m *Match) {
	switch {
	case s.names:
		m.refuse(Ambiguous, HeaderAlias)
	case !r.reads(InJSON) && !(s.json && profiles[r.Backend].members):
	case eachAt(jsonDecoder(req.Body), r.members, 0, func(_, _ string) bool { return true }):
		m.refuse(Ambiguous, JSONAlias)
	}
}
