package order

import (
	"slices"
	"strconv"
)

// readBody reads the body as far as the rule needs it, and reports whether that decided the
// request.
func (r *compiled) readBody(req *Request, s *headerFacts, into []idText, m *Match) (done bool) {
	if !r.inBody {
		return r.refuseForm(req, s, m) || r.readFields(req, s, m)
	}
	if req.BodyState == BodyUnseen && s.hasBody {
		if announcedSize(req.Header) > r.maxBody {
			m.refuse(TooLarge, BodyTooLarge)
			return true
		}
		m.Result = NeedsBody
		return true
	}
	switch {
	case req.BodyState == BodyCut || len(req.Body) > r.maxBody:
		m.refuse(TooLarge, BodyTooLarge)
		return true
	case len(req.Body) == 0:
		return false
	case s.encoded:
		m.refuse(Ambiguous, ContentEncoding)
		return true
	}
	reason := ContentType
	switch {
	case r.reads(InJSON) && (s.mediaType(typeJSON) || r.UntypedJSON && s.types == 0):
		if reason = r.readJSON(req.Body, into, m); reason == NoReason && profiles[r.Backend].members && len(r.table.selectors) > 0 {
			reason = eachMember(req.Body, func(name, value string) Reason {
				reason, _ := r.checkChoice(foldName(name), name, value, InJSON, s)
				return reason
			})
		}
	case r.reads(InForm) && s.mediaType(typeForm):
		reason = r.readForm(req.Body, into, s, m)
	}
	if reason == NoReason {
		return false
	}
	result := Ambiguous
	if reason == MalformedID || reason == MalformedLimit || reason == MalformedPart {
		result = Invalid
	}
	m.ID, m.Batch = "", nil
	m.refuse(result, reason)
	return true
}

func (r *compiled) reads(in Location) bool {
	return slices.ContainsFunc(r.IDs, func(id ID) bool { return id.In == in })
}

// refuseForm refuses a form under a rule that has an ID where a framework binds the form's fields
// over it: in the path or the query. Many clients set the type of a form on every request, so it may
// have to ask for the body.
func (r *compiled) refuseForm(req *Request, s *headerFacts, m *Match) (done bool) {
	switch {
	case !r.bindsFields() || !s.hasBody || !profiles[r.Backend].parameters || !s.form:
		return false
	case req.BodyState == BodyUnseen && !s.announced && usuallyHasNoBody(req.Method):
		m.Result = NeedsBody // to see whether there is a body
	default:
		m.refuse(Ambiguous, FormBody)
	}
	return true
}

func (r *compiled) bindsFields() bool { return r.reads(InPath) || r.reads(InQuery) }

// usuallyHasNoBody reports whether a body has no meaning for the method (RFC 9110, 9.3.1,
// 9.3.2 and 9.3.5).
func usuallyHasNoBody(method string) bool {
	return method == "GET" || method == "HEAD" || method == "DELETE"
}

// readFields checks the fields of a form, and the members of JSON, that the rule does not read its
// ID from: some backends take them as the ID, as the method, or by them choose what runs.
func (r *compiled) readFields(req *Request, s *headerFacts, m *Match) (done bool) {
	p := profiles[r.Backend]
	concerned := len(r.IDs) > 0 || len(r.table.selectors) > 0 || s.way&otherMethod != 0
	if !s.hasBody || !(concerned && (s.json && p.members || s.form && p.parameters) || s.form && s.way&otherChoice != 0) {
		return false
	}
	if req.BodyState == BodyUnseen && s.announced && (req.Method == "GET" || req.Method == "HEAD") {
		m.refuse(Ambiguous, FormBody) // rare, and without meaning (RFC 9110, 9.3.1)
		return true
	}
	in := InJSON
	if s.form {
		in = InForm
	}
	result, reason := req.eachField(p.members, func(name, value string) Reason {
		folded := foldName(name)
		if !p.parameters && !p.members { // of a parameter, the query's value counts
			if own, _ := r.selects(folded, name, value); !own && r.table.mayChoose(folded, value) {
				return in.alias()
			}
			return NoReason
		}
		reason, chosen := r.checkChoice(folded, name, value, in, s)
		if reason == NoReason && !chosen && !r.mayClaim(folded, name, value, in, s) {
			return in.alias()
		}
		return reason
	})
	if reason == NoReason && result == Unruled && s.json {
		reason = r.claimNested(req.Body, s)
	}
	result, done = formResult(result, reason)
	if done {
		m.refuse(result, reason)
	}
	return done
}

// announcedSize returns the Content-Length, or 0.
func announcedSize(header Header) int {
	for name, value := range All(header) {
		if name == "content-length" {
			n, err := strconv.Atoi(value)
			if err != nil && len(value) > 10 {
				return 1 << 62
			}
			return n
		}
	}
	return 0
}

// readForm searches a urlencoded body for the ID.
func (r *compiled) readForm(body []byte, into []idText, s *headerFacts, m *Match) Reason {
	text := string(body)
	for i := range len(text) {
		if c := text[i]; c == ';' || c == '#' || c <= ' ' || c >= 0x7f {
			m.Offset = i
			return BadForm
		}
	}
	return r.readParameters(parameters(text), InForm, into, s)
}
