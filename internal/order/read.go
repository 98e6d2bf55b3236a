package order

import (
	"slices"
	"strings"
)

const (
	typeForm = "application/x-www-form-urlencoded"
	typeJSON = "application/json"
)

const (
	// maxIDs bounds the locations of an ID and its parts in a rule.
	maxIDs = 8
	// maxLocations includes the limit's ID.
	maxLocations = maxIDs + 1
)

// read reads the ID of a request for which the rule was found. The path begins the target. The match is
// large, so it is filled in place.
func (r *compiled) read(found Found, path, query string, req *Request, m *Match) {
	*m = Match{Rule: found.rule, Offset: -1}
	var places [maxLocations]idText
	into := places[:len(r.IDs)]
	s := headerFacts{method: req.Method, host: req.Host, way: found.way}
	if reason := r.readHead(path, query, into, req, &s, m); reason != NoReason {
		m.refuse(Ambiguous, reason)
		return
	}
	if done := r.readBody(req, &s, into, m); done {
		if m.Result == NeedsBody && !r.ownBody {
			r.needsBody(into, &s, m)
		}
		return
	}
	if r.finish(into, &s, m); m.Result == Anonymous && r.Nameless {
		r.checkNameless(req, &s, m)
	}
}

// readHead reads all but the body, and returns why the request is refused.
func (r *compiled) readHead(path, query string, into []idText, req *Request, s *headerFacts, m *Match) Reason {
	if reason := r.readPath(path, into, m); reason != NoReason {
		return reason
	}
	r.readHeaders(req.Header, into, s)
	if req.BodyState == BodyComplete && len(req.Body) == 0 {
		s.hasBody = false
	}
	if s.reason != NoReason {
		return s.reason
	}
	if s.oddCharset && (s.form || query != "") {
		return ContentType
	}
	if reason := r.readSession(path, req.Target, into); reason != NoReason {
		return reason
	}
	return r.readQuery(query, into, s, m)
}

// needsBody finds the order of a request whose body does not name it.
func (r *compiled) needsBody(into []idText, s *headerFacts, m *Match) {
	r.combineWithClaim(into, s, m)
	if m.Result == Named || m.Result == Anonymous && r.Nameless {
		m.Result = NeedsBody
	}
}

func (m *Match) refuse(result Result, reason Reason) { m.Result, m.Reason = result, reason }

// readPath records the ID in the path. The rest of the path must be as plain as the
// template: a variable segment could otherwise hide another route.
func (r *compiled) readPath(path string, into []idText, m *Match) Reason {
	for i := range r.IDs {
		if r.IDs[i].In == InPath {
			text, offset := segmentAt(path, r.segments[i])
			into[i] = idText{text: text, times: 1, offset: offset}
		}
	}
	if isPlainPath(path) {
		return NoReason
	}
	offset := 0
	for segment := range strings.SplitSeq(path[1:], "/") {
		offset++ // the slash
		isID := slices.ContainsFunc(into, func(f idText) bool { return f.times > 0 && f.offset == offset })
		if odd := ambiguousIn(segment); odd >= 0 && !isID {
			m.Offset = offset + odd
			return PathSpelling
		}
		offset += len(segment)
	}
	return NoReason
}

// isPlainPath reports whether ambiguousIn would find nothing in the path. It is quick.
func isPlainPath(path string) bool {
	for i := range len(path) {
		if c := path[i]; !plainBytes[c] && c != '/' && !isUpper(c) {
			return false
		}
	}
	return true
}

// ambiguousIn returns the offset of the first ambiguous byte of a segment, or -1.
func ambiguousIn(segment string) int {
	if segment == "." || segment == ".." {
		return 0
	}
	for i := range len(segment) {
		if c := segment[i]; !plainBytes[c] && c != '.' && !isUpper(c) {
			return i
		}
	}
	return -1
}

// segmentAt returns segment n of a path that has more than n segments, and its offset.
func segmentAt(path string, n int) (text string, offset int) {
	start := 1
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if n == 0 {
			return path[start:i], start
		}
		n--
		start = i + 1
	}
	return path[start:], start
}

// readQuery searches the query for the ID, and for parameters that a backend may take for
// it.
func (r *compiled) readQuery(query string, into []idText, s *headerFacts, m *Match) Reason {
	if query == "" {
		return NoReason
	}
	if i := strings.IndexAny(query, ";#"); i >= 0 { // a separator to some
		m.Offset = i
		return ParameterSpelling
	}
	return r.readParameters(parameters(query), InQuery, into, s)
}

// combineWithClaim combines the recorded texts into one ID with its parts, unless a
// parameter claims another order.
func (r *compiled) combineWithClaim(into []idText, s *headerFacts, m *Match) {
	r.combineIDs(into, m)
	if s.claim.made && (m.Result == Named || m.Result == Anonymous) && !s.claim.agrees(r, m) {
		m.ID, m.Batch = "", nil
		m.refuse(Ambiguous, s.claim.in.alias())
		return
	}
	if len(r.Parts) > 0 {
		r.compose(into, s, m)
	}
}

// finish combines the recorded texts into one ID, and one for the limit.
func (r *compiled) finish(into []idText, s *headerFacts, m *Match) {
	r.combineWithClaim(into, s, m)
	if r.limit < 0 || m.Result != Named {
		return
	}
	f := &into[r.limit]
	limit, ok := "", false
	if f.times == 1 {
		limit, ok = r.Limit.Format.Canonical(f.text)
	}
	if ok {
		m.Limit = limit
		return
	}
	m.ID, m.Batch, m.Prefix = "", nil, ""
	switch f.times {
	case 0:
		m.refuse(Invalid, MissingLimit)
		return
	case 1:
		m.Offset = f.offset
		m.refuse(Invalid, MalformedLimit)
		return
	}
	m.refuse(Ambiguous, RepeatedLimit)
}

// combineIDs combines the recorded texts into one ID.
func (r *compiled) combineIDs(into []idText, m *Match) {
	for i := range into[:r.orders] {
		f := &into[i]
		switch {
		case f.times > 1:
			m.refuse(Ambiguous, RepeatedID)
			return
		case f.times == 0, f.text == "" && r.mayBeEmpty():
			continue
		}
		id, ok := r.IDs[i].Format.Canonical(f.text)
		switch {
		case !ok:
			m.Offset = f.offset
			m.ID = ""
			m.refuse(Invalid, MalformedID)
			return
		case m.ID != "" && m.ID != id:
			m.ID = ""
			m.refuse(Ambiguous, DifferentIDs)
			return
		}
		if m.ID = id; f.text != id {
			m.Text = f.text
		}
	}
	switch {
	case m.ID != "" || len(m.Batch) > 0:
		r.withBatch(m)
		return
	case r.orders == 0 || r.Optional:
		m.Result = Anonymous
		return
	}
	m.refuse(Invalid, MissingID)
}

// mayBeEmpty reports whether an empty value counts as a missing one. With Nameless it does not:
// many backends read it as order 0.
func (r *compiled) mayBeEmpty() bool { return r.Optional && !r.Nameless }

// withBatch combines a list with a single ID. The list may contain only that ID.
func (r *compiled) withBatch(m *Match) {
	switch {
	case len(m.Batch) == 0:
	case m.ID != "" && (len(m.Batch) > 1 || m.Batch[0] != m.ID):
		m.ID, m.Batch = "", nil
		m.refuse(Ambiguous, DifferentIDs)
		return
	case len(m.Batch) == 1:
		m.ID, m.Batch = m.Batch[0], nil
	default:
		m.ID = m.Batch[0]
	}
	m.Result = Named
}
