package order

import (
	"slices"
	"strconv"
)

// readBody looks at the body as far as the rule needs it, and reports whether
// that decided the request.
func (r *compiled) readBody(req *Request, s *seen, into []found, m *Match) (done bool) {
	if !r.inBody {
		return r.refuseForm(s, m)
	}
	if req.BodyState == BodyUnseen && s.hasBody {
		if announcedSize(req.Header) > r.maxBody {
			*m = m.refused(TooLarge, BodyTooLarge)
			return true
		}
		m.Result = NeedsBody
		return true
	}
	switch {
	case req.BodyState == BodyCut || len(req.Body) > r.maxBody:
		*m = m.refused(TooLarge, BodyTooLarge)
		return true
	case len(req.Body) == 0:
		return false
	case s.encoded:
		*m = m.refused(Ambiguous, ContentEncoding)
		return true
	}
	reason := ContentType
	switch {
	case r.takes(InJSON) && s.mediaType(typeJSON):
		reason = r.readJSON(req.Body, into, m)
	case r.takes(InForm) && s.mediaType(typeForm):
		reason = r.readForm(req.Body, into, s, m)
	}
	if reason == NoReason {
		return false
	}
	result := Ambiguous
	if reason == MalformedID || reason == MalformedLimit {
		result = Invalid
	}
	m.ID, m.Batch = "", nil
	*m = m.refused(result, reason)
	return true
}

func (r *compiled) takes(in Place) bool {
	return slices.ContainsFunc(r.IDs, func(id ID) bool { return id.In == in })
}

// refuseForm keeps forms away from a rule that does not read them: to some
// backends a field of theirs is the ID.
func (r *compiled) refuseForm(s *seen, m *Match) (done bool) {
	if len(r.IDs) == 0 || !s.hasBody || !profiles[r.Backend].parameters || !s.form {
		return false
	}
	*m = m.refused(Ambiguous, FormBody)
	return true
}

// announcedSize returns the Content-Length, or 0.
func announcedSize(header Header) int {
	if header == nil {
		return 0
	}
	for cursor := 0; ; {
		name, value, next := header.Next(cursor)
		if next < 0 {
			return 0
		}
		if name == "content-length" {
			n, err := strconv.Atoi(value)
			if err != nil && len(value) > 10 {
				return 1 << 62
			}
			return n
		}
		cursor = next
	}
}

// readForm looks for the ID in a urlencoded body.
func (r *compiled) readForm(body []byte, into []found, s *seen, m *Match) Reason {
	text := string(body)
	for i := range len(text) {
		if c := text[i]; c == ';' || c == '#' || c <= ' ' || c >= 0x7f {
			m.Offset = i
			return BadForm
		}
	}
	return r.search(parameters(text), InForm, into, s)
}
