package order

import "strings"

// The reasons of refusals.
const (
	ReasonMissing   = "the request names no order"
	ReasonMalformed = "the order ID is malformed"
	ReasonRepeated  = "the order ID is given more than once"
)

// read takes the ID out of a request that the rule matches.
func (r *compiled) read(index int, path, query string, header Header) Match {
	m := Match{Rule: index}
	text, times := r.locate(path, query, header)
	switch {
	case times > 1:
		m.Result, m.Reason = Ambiguous, ReasonRepeated
	case times == 0 && (r.ID.In == Nowhere || r.ID.Optional):
		m.Result = Anonymous
	case times == 0:
		m.Result, m.Reason = Invalid, ReasonMissing
	default:
		if id, ok := r.ID.Format.Canonical(text); ok {
			m.Result, m.ID = Named, id
		} else {
			m.Result, m.Reason = Invalid, ReasonMalformed
		}
	}
	return m
}

// locate returns the text at the ID's place and how many times it stands there.
func (r *compiled) locate(path, query string, header Header) (text string, times int) {
	switch r.ID.In {
	case InPath:
		return segmentAt(path, r.idSegment), 1
	case InQuery:
		return parameter(query, r.ID.Name)
	case InHeader:
		if header != nil {
			return header.Get(r.ID.Name)
		}
	case Nowhere:
	}
	return "", 0
}

// segmentAt returns the n-th segment of a path that has at least n+1.
func segmentAt(path string, n int) string {
	for range n {
		_, path, _ = strings.Cut(path, "/")
	}
	text, _, _ := strings.Cut(path, "/")
	return text
}

// parameter returns the raw value of a query parameter and how many times it
// is given. Names are compared byte for byte; a value keeps its escapes, which
// no ID format admits.
func parameter(query, name string) (value string, times int) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if key, v, _ := strings.Cut(pair, "="); key == name {
			value = v
			times++
		}
	}
	return value, times
}
