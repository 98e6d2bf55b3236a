package order

import (
	"bytes"
	"iter"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Parameters may name a JSON member that is below another: PHP makes an array order of the
// parameter order[number], and Spring binds order.number. A backend that merges them with the
// body reads an ID from there. A plain parameter order replaces the whole member.

// above returns the folded name of the first member on the way to a JSON member that is below
// another; "" for any other ID.
func (id *ID) above() string {
	if id.In != InJSON || len(id.Members) < 2 {
		return ""
	}
	return foldName(id.Members[0])
}

// firstStep returns the folded name of the first member that a parameter names.
func firstStep(name string) string {
	if isFolded(name) {
		return name
	}
	name = strings.TrimLeft(decodeName(name), "![_ \t")
	if i := strings.IndexAny(name, ".[]"); i >= 0 {
		name = name[:i]
	}
	return foldName(name)
}

// foldedPath returns the folded names on the way to a JSON member.
func (id *ID) foldedPath() []string {
	path := make([]string, len(id.Members))
	for i, name := range id.Members {
		path[i] = foldName(name)
	}
	return path
}

// findNested collects the IDs of the rule and, for a backend that may merge all names, of other
// rules that are in JSON members below others: as parameters, and those of other rules as members.
func (r *compiled) findNested(t *Table) {
	for _, name := range r.above {
		if name != "" && (r.inParams || profiles[r.Backend].parameters) {
			r.nested = append(r.nested, name)
		}
	}
	for _, foreign := range []iter.Seq2[*compiled, int]{t.foreignOrders(r), t.foreignParts(r)} {
		for o, j := range foreign {
			if o.above[j] != "" {
				r.nested = append(r.nested, o.above[j])
				r.nestedPaths = append(r.nestedPaths, o.IDs[j].foldedPath())
			}
		}
	}
}

// claimNested records the orders and parts that members of a JSON body name by the paths of other
// rules. The body was checked: it is JSON.
func (r *compiled) claimNested(body []byte, s *headerFacts) Reason {
	reason := NoReason
	eachAt(jsonDecoder(body), r.nestedPaths, 0, func(name, value string) bool {
		if !r.mayClaim(name, name, value, InJSON, s) {
			reason = JSONAlias
		}
		return reason != NoReason
	})
	return reason
}

func jsonDecoder(body []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// eachAt calls see with the folded name and the value of each member at one of the folded paths,
// until see returns true. The next value of dec is at step level of the paths. It reports whether
// see returned true. The recursion is as deep as the longest path.
func eachAt(dec *jsontext.Decoder, paths [][]string, level int, see func(name, value string) bool) bool {
	if len(paths) == 0 || dec.PeekKind() != '{' {
		_ = dec.SkipValue()
		return false
	}
	_, _ = dec.ReadToken() // the bracket
	for dec.PeekKind() == '"' {
		name, _ := dec.ReadToken()
		folded := foldName(name.String())
		var below [][]string
		ends := false
		for _, path := range paths {
			switch {
			case path[level] != folded:
			case level+1 == len(path):
				ends = true
			default:
				below = append(below, path)
			}
		}
		if ends {
			value, _ := memberValue(dec)
			if see(folded, value) {
				return true
			}
		} else if eachAt(dec, below, level+1, see) {
			return true
		}
	}
	_, _ = dec.ReadToken() // the bracket
	return false
}
