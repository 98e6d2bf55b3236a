package order

import (
	"slices"
	"strings"
)

const headerMethodOverride = "x-http-method-override"

// overridesMethod reports whether frameworks take a parameter of this name in place of the
// request's method.
func overridesMethod(folded, name string) bool {
	switch folded {
	case "method":
		// Literally: folding would turn a harmless "method" into it.
		return strings.EqualFold(name, "_method") || !isPlainName(name)
	case "xhttpmethodoverride":
		return true
	}
	return false
}

// screenOverride checks a request whose path, or a reading of it, a rule guards under other
// methods. Some backends let a header, a parameter or a form's field replace the method.
func (t *Table) screenOverride(req Request, path string, rule int, in *tree) Match {
	methods, result, reason := t.otherMethods(&req, profiles[t.rules[rule].Backend].parameters)
	for _, method := range methods {
		r := req
		r.Method = method
		f := t.finder(&r)
		f.find(in, path, admitsAll)
		if first := min(f.best, f.other); first < len(t.rules) {
			return Match{Result: Ambiguous, Rule: first, Reason: MethodOverride, Offset: -1, Screening: true}
		}
	}
	return screenedMatch(rule, result, reason)
}

// screenExempt checks a request that a rule exempts. An override of its method may bring it
// under a guarding rule. Its body is not checked.
func (t *Table) screenExempt(req Request, path string) Match {
	methods, _, _ := t.otherMethods(&req, false)
	for _, method := range methods {
		req.Method = method
		f := t.findExact(&req, path)
		rule := f.best
		if rule == len(t.rules) {
			rule = f.other
		}
		if rule < len(t.rules) && !t.rules[rule].Pass {
			return Match{Result: Ambiguous, Rule: rule, Reason: MethodOverride, Offset: -1, Screening: true}
		}
	}
	return Match{Rule: -1}
}

// formResult returns the result after a form was read. Decided means that this result is
// final.
func formResult(result Result, reason Reason) (_ Result, decided bool) {
	switch reason {
	case NoReason:
		return result, result == NeedsBody
	case BodyTooLarge:
		return TooLarge, true
	}
	return Ambiguous, true
}

// screenedMatch returns the match of a request after its form was read.
func screenedMatch(rule int, result Result, reason Reason) Match {
	result, decided := formResult(result, reason)
	if !decided {
		return Match{Rule: -1}
	}
	return Match{Result: result, Rule: rule, Reason: reason, Offset: -1, Screening: true}
}

// otherMethods returns the methods of rules that a backend may use for the request. If
// fields count, the result says why they are unknown: the form was not read yet, is too
// large, or is encoded.
func (t *Table) otherMethods(req *Request, fields bool) (methods []string, result Result, reason Reason) {
	add := func(value string) Reason {
		for method := range strings.SplitSeq(decodeName(value), ",") {
			method = strings.ToUpper(strings.TrimFunc(method, func(c rune) bool { return c <= ' ' }))
			for _, m := range t.methods {
				if (m == method || value == unreadable) && !slices.Contains(methods, m) {
					methods = append(methods, m)
				}
			}
		}
		return NoReason
	}
	field := func(name, value string) Reason {
		if overridesMethod(foldName(name), name) {
			add(value)
		}
		return NoReason
	}
	_, query, _ := strings.Cut(req.Target, "?")
	_ = eachParameter(parameters(query), field)
	_ = req.eachOverride(add, field)
	if fields {
		result, reason = req.eachField(t.lenient.members, field)
	}
	return methods, result, reason
}

// eachOverride calls see with the value of each header that overrides the method, and field
// with each cookie.
func (req *Request) eachOverride(see func(string) Reason, field func(name, value string) Reason) Reason {
	for name, value := range All(req.Header) {
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
	return NoReason
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
