package order

import (
	"slices"
	"strings"
)

// maxParameters bounds the parameters of a request under a rule. Tomcat and PHP stop
// reading at different counts, both of them higher.
const maxParameters = 500

// pairs iterates over the raw names and values of a query, a form or a Cookie header. (An
// iterator function would allocate.)
type pairs struct {
	rest      string
	separator byte
}

func parameters(text string) pairs { return pairs{text, '&'} }
func cookies(text string) pairs    { return pairs{text, ';'} }

// next returns the next pair, or false at the end.
func (p *pairs) next() (name, value string, ok bool) {
	pair, ok := p.nextPair()
	name, value, _ = strings.Cut(pair, "=")
	return name, value, ok
}

// nextPair returns the next pair without splitting it.
func (p *pairs) nextPair() (pair string, ok bool) {
	if p.rest == "" {
		return "", false
	}
	pair = p.rest
	if i := strings.IndexByte(pair, p.separator); i >= 0 {
		pair, p.rest = pair[:i], pair[i+1:]
	} else {
		p.rest = ""
	}
	if p.separator == ';' {
		pair = strings.Trim(pair, " \t")
	}
	return pair, true
}

// foldName folds a parameter's name into the form in which backends may confuse it with
// another. PHP turns dots, blanks and an open bracket into underscores. It cuts off a
// closed bracket, and the rest after a NUL (php_register_variable_ex in its
// main/php_variables.c). Spring and JSON libraries ignore case, underscores and hyphens, and
// Spring's WebDataBinder a "!" in front. Some backends trim control bytes.
func foldName(name string) string {
	if isFolded(name) {
		return name
	}
	name, _, _ = strings.Cut(foldCase(decodeName(name)), "\x00")
	name = strings.TrimSpace(name)
	if open := strings.IndexByte(name, '['); open >= 0 && strings.IndexByte(name[open:], ']') >= 0 {
		name = name[:open]
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r < ' ', r == 0x7f, strings.ContainsRune("_-. [!", r):
			return -1
		}
		return r
	}, name)
}

// decodeName decodes the escapes in a name.
func decodeName(name string) string {
	for range decodeRounds {
		decoded := decodeOnce(name)
		if decoded == name {
			break
		}
		name = decoded
	}
	return name
}

// decodeOnce decodes a name or a value of a query or a form.
func decodeOnce(text string) string { return unescape(strings.ReplaceAll(text, "+", " ")) }

// hasControl reports whether a name contains a control byte, escaped or not. Some backends
// trim them, some cut the name at a NUL.
func hasControl(name string) bool {
	if isFolded(name) {
		return false
	}
	return strings.ContainsFunc(decodeName(name), func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isFolded reports whether folding certainly changes nothing. It is quick.
func isFolded(name string) bool {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// isPlainName reports whether every backend reads the name alike.
func isPlainName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || isUpper(c) || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return name != ""
}

// idText is the text of an ID where the rule looks for it.
type idText struct {
	text   string
	times  int
	offset int // of the text in its part
}

// claim is an order, or a part, that a parameter names outside the rule's own locations. A backend that
// merges path, query, form and cookies may use it.
type claim struct {
	folded, value string // the last name, and its value
	in            Location
	own           bool // the rule itself reads an ID by this name
	made          bool
}

// admits reports whether another parameter may name the same order. Some backends read a
// repeated name as a list, but count cookies separately.
func (c *claim) admits(folded, value string) bool {
	return !c.made || c.value == value && (c.folded != folded || c.in == InCookie)
}

// readParameters reads a set of parameters that backends merge with others (query, form,
// cookie). It records every ID, and returns why the request is refused, if it is. It
// refuses an unusual name only if it folds to an ID's name or a route. Other names are
// allowed as long as every backend finds the same pairs.
func (r *compiled) readParameters(list pairs, in Location, into []idText, s *headerFacts) Reason {
	alias := in.alias()
	for n := 0; ; n++ {
		name, value, ok := list.next()
		switch {
		case !ok:
			return NoReason
		case n == maxParameters:
			return TooManyParameters
		}
		folded := name
		if !isFolded(name) {
			if hasControl(name) {
				return alias
			}
			folded = foldName(name)
		}
		if reason, chosen := r.checkChoice(folded, name, value, in, s); reason != NoReason {
			return reason
		} else if chosen {
			continue
		}
		if in == InCookie && r.hasIDBehindComma(name, value) {
			return alias
		}
		own := false
		for i := range r.IDs {
			if folded != r.aliases[i] {
				continue
			}
			if r.IDs[i].In != in || r.IDs[i].Name != name {
				continue
			}
			own = true
			into[i].text = value
			into[i].times++
		}
		if own {
			continue
		}
		if !r.mayClaim(folded, name, value, in, s) {
			return alias
		}
	}
}

// checkChoice returns why a parameter or a field may have a backend run other code than the rule's,
// or take another method for the request's. Chosen means that the rule matches by it, as it is.
func (r *compiled) checkChoice(folded, name, value string, in Location, s *headerFacts) (reason Reason, chosen bool) {
	if overridesMethod(folded, name) && !(name == "_method" && r.AdmitsMethod(value)) {
		return MethodOverride, false
	}
	if len(r.selectors) > 0 {
		if isOne, certain := r.selects(folded, name, value); isOne && !certain {
			return in.alias(), false
		} else if isOne {
			return NoReason, true
		}
	}
	if (in == InForm || in == InJSON) && r.table.mayChoose(folded, value) {
		return in.alias(), false
	}
	switch {
	case in == InCookie || in == InJSON || !profiles[r.Backend].indexPHP:
	case len(r.selectors) == 0 && (folded == "action" || folded == "route"):
		return in.alias(), false
	case r.leadsToRule(name, s) || r.leadsToRule(value, s):
		return FrontController, false
	}
	return NoReason, false
}

// hasIDBehindComma reports whether a cookie contains another cookie with an ID's name after
// a comma. Old parsers separate cookies by commas: RFC 2109, and Tomcat up to 9 after
// $Version=1.
func (r *compiled) hasIDBehindComma(name, value string) bool {
	if strings.IndexByte(name, ',') < 0 && strings.IndexByte(value, ',') < 0 {
		return false
	}
	_, rest, _ := strings.Cut(name+"="+value, ",")
	for part := range strings.SplitSeq(rest, ",") {
		name, _, _ := strings.Cut(part, "=")
		folded := foldName(name)
		for i := range r.IDs {
			if r.IDs[i].In == InCookie && r.aliases[i] == folded {
				return true
			}
		}
	}
	return false
}

// mayClaim records an order, or a part, that a parameter names outside its own location. It
// returns false if backends may read it differently.
func (r *compiled) mayClaim(folded, name, value string, in Location, s *headerFacts) bool {
	isOwn := r.isAlias(folded, in)
	made := &s.claim
	if in == InCookie && !isOwn && r.namesOther(name, value) {
		return true // a browser sends it with every request
	}
	if !isOwn && !slices.Contains(r.foreign, folded) {
		if !slices.Contains(r.partNames, folded) {
			return in == InJSON || !slices.Contains(r.nested, firstStep(name))
		}
		made = &s.partClaim
	}
	if !isPlainName(name) || r.isRespelt(folded, in) || !made.admits(folded, value) {
		return false
	}
	*made = claim{folded: folded, value: value, in: in, own: made.own || isOwn, made: true}
	return true
}

// namesOther reports whether only rules with formats of another kind read an ID from a cookie, and
// its value is no ID of this rule: so it names something else, such as a session.
func (r *compiled) namesOther(cookie, value string) bool {
	formats := r.table.cookies[cookie]
	return len(formats) > 0 && !slices.ContainsFunc(r.IDs, func(id ID) bool {
		_, ok := id.Format.Canonical(value)
		return ok || slices.ContainsFunc(formats, func(f Format) bool {
			return f.Kind == id.Format.Kind || f.MaxNumber() != "" && id.Format.MaxNumber() != ""
		})
	})
}

// leadsToRule reports whether a text is a path that leads to a rule. A web server may
// rewrite paths into a parameter (index.php?url=$1) and append the query, and the last
// parameter counts.
func (r *compiled) leadsToRule(text string, s *headerFacts) bool {
	if !strings.ContainsAny(text, `/%\`) {
		return false
	}
	other := Request{Method: s.method, Host: s.host}
	return r.table.matchText(&other, unescape(text), r.mounts).Result != Unruled
}

// isAlias reports whether a folded name is that of an ID in another location. Backends that
// keep path, header and parameters apart do not confuse them.
func (r *compiled) isAlias(folded string, in Location) bool {
	for i := range r.IDs {
		if folded != r.aliases[i] {
			continue
		}
		if r.IDs[i].In == in || r.inParams || profiles[r.Backend].parameters {
			return true
		}
	}
	return false
}

// isRespelt reports whether a folded name is another spelling of an ID's name in its own
// location. Query and form are one location, as in servlets. It also reports the name of
// the limit's ID and of a part, which need not equal the order's.
func (r *compiled) isRespelt(folded string, in Location) bool {
	for i := range r.IDs {
		own := r.IDs[i].In
		if folded == r.aliases[i] && (own == in || own == InQuery && in == InForm || own == InForm && in == InQuery || !r.isOrder(i)) {
			return true
		}
	}
	return false
}

// alias is why a name in a place is refused.
func (in Location) alias() Reason {
	switch in {
	case InCookie:
		return CookieAlias
	case InJSON:
		return JSONAlias
	}
	return ParameterAlias
}

// agrees reports whether the claimed order is the request's order.
func (c *claim) agrees(r *compiled, m *Match) bool {
	switch {
	case m.Result != Named:
		return !c.own && !r.Nameless
	case len(m.Batch) > 0:
		return false
	}
	for i := range r.IDs {
		if id, ok := r.IDs[i].Format.Canonical(c.value); ok && r.isOrder(i) && id == m.ID {
			return true
		}
	}
	return false
}
