package order

import "strings"

const headerMethodOverride = "x-http-method-override"

// overridesMethod reports whether a parameter's name is one by which frameworks take
// another method than the request's.
func overridesMethod(folded, name string) bool {
	switch folded {
	case "method":
		// Literally, since folding would turn a harmless "method" into it.
		return strings.EqualFold(name, "_method") || !isPlainName(name)
	case "xhttpmethodoverride":
		return true
	}
	return false
}

// overridden judges a request whose path a rule guards under other methods, which find
// looks up. It may count as one under such a method to a backend that lets a header, a
// parameter or a form's field say so.
func (t *Table) overridden(req Request, query string, rule int, find func(*finder)) Match {
	guarded := -1
	// see is told of each method that may count.
	see := func(value string) Reason {
		if value == unreadable {
			return MethodOverride
		}
		for method := range strings.SplitSeq(decodeName(value), ",") {
			r := req
			r.Method = strings.ToUpper(strings.TrimFunc(method, func(c rune) bool { return c <= ' ' }))
			f := t.finder(&r, query)
			find(&f)
			if first := min(f.best, f.other); first < len(t.rules) && !t.rules[first].Pass {
				guarded = first
				return MethodOverride
			}
		}
		return NoReason
	}
	field := func(name, value string) Reason {
		if overridesMethod(foldName(name), name) {
			return see(value)
		}
		return NoReason
	}
	reason := eachParameter(parameters(query), field)
	if reason == NoReason {
		reason = req.eachOverride(see, field)
	}
	result := Unruled
	if reason == NoReason && req.Method == "POST" && profiles[t.rules[rule].Backend].parameters {
		result, reason = req.eachField(field)
	}
	if guarded >= 0 {
		rule = guarded
	}
	m := Match{Rule: rule, Offset: -1, Screening: true}
	switch {
	case reason == BodyTooLarge:
		return m.refused(TooLarge, reason)
	case reason != NoReason:
		return m.refused(Ambiguous, reason)
	case result == NeedsBody:
		m.Result = NeedsBody
		return m
	}
	return Match{Rule: -1}
}

// eachOverride calls see with the value of each header that overrides the method, and
// field with each cookie.
func (req *Request) eachOverride(see func(string) Reason, field func(name, value string) Reason) Reason {
	if req.Header == nil {
		return NoReason
	}
	for cursor := 0; ; {
		name, value, next := req.Header.Next(cursor)
		if next < 0 {
			return NoReason
		}
		cursor = next
		reason := NoReason
		switch dashed(name) {
		case headerMethodOverride, "x-http-method", "x-method-override", "x-original-method":
			reason = see(value)
		case "cookie":
			reason = eachParameter(cookies(value), field)
		}
		if reason != NoReason {
			return reason
		}
	}
}

func eachParameter(list pairs, field func(name, value string) Reason) Reason {
	for {
		name, value, ok := list.next()
		if !ok {
			return NoReason
		}
		if reason := field(name, value); reason != NoReason {
			return reason
		}
	}
}
