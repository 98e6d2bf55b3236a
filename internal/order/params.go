package order

import (
	"slices"
	"strings"
)

// maxParameters is how many parameters a ruled request may have: Tomcat and PHP
// stop reading at different counts, both above this.
const maxParameters = 500

// pairs iterates over the raw names and values of a query, a form or a Cookie
// header. (An iterator function would allocate.)
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

// nextPair is next for the pair as it stands.
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

// foldName brings a parameter's name into the form in which backends may take it
// for another: PHP turns dots, blanks and a bracket that is not closed into underscores
// and cuts off one that is, and what follows a NUL (php_register_variable_ex in its
// main/php_variables.c); Spring and JSON libraries ignore case, underscores and hyphens,
// and some trim control bytes.
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
		case r < ' ', r == 0x7f, strings.ContainsRune("_-. [", r):
			return -1
		}
		return r
	}, name)
}

// decodeName undoes the escapes of a name.
func decodeName(name string) string {
	for range decodeRounds {
		decoded := unescape(strings.ReplaceAll(name, "+", " "))
		if decoded == name {
			break
		}
		name = decoded
	}
	return name
}

// hasControl reports whether a name has a control byte in it, escaped or not. Some
// backends trim them, some cut the name off at a NUL.
func hasControl(name string) bool {
	if isFolded(name) {
		return false
	}
	return strings.ContainsFunc(decodeName(name), func(r rune) bool { return r < ' ' || r == 0x7f })
}

// isFolded reports quickly that folding changes nothing.
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

// idText is an ID's text where it was looked for.
type idText struct {
	text   string
	times  int
	offset int // of the text in its part
}

// claim is an order that a parameter names beside the rule's own places. A backend that
// merges path, query, form and cookies goes by it.
type claim struct {
	folded, value string // the last name, and its value
	in            Location
	own           bool // the name is one that the rule itself reads an ID by
	made          bool
}

// admits reports whether another parameter may claim the same. A name twice is a list to
// some, but for that of a cookie, which they count by itself.
func (c *claim) admits(folded, value string) bool {
	return !c.made || c.value == value && (c.folded != folded || c.in == InCookie)
}

// readParameters goes through a name space that backends mix (query, form, cookie),
// notes every ID that stands there, and returns why the request is refused, if it
// is. Strange names are refused only where they fold to an ID's or to a route:
// others may be odd as they like, as long as every backend finds the same pairs.
func (r *compiled) readParameters(list pairs, in Location, into []idText, s *headerFacts) Reason {
	alias := ParameterAlias
	if in == InCookie {
		alias = CookieAlias
	}
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
		if overridesMethod(folded, name) && !(name == "_method" && r.admitsMethod(value)) {
			return MethodOverride
		}
		if len(r.selectors) > 0 {
			if isOne, certain := r.selects(folded, name, value); isOne && !certain {
				return alias
			} else if isOne {
				continue
			}
		}
		if in != InCookie && profiles[r.Backend].indexPHP && (folded == "action" || folded == "route") {
			return alias
		}
		if in != InCookie && profiles[r.Backend].indexPHP && (r.leadsToRule(name, s) || r.leadsToRule(value, s)) {
			return FrontController
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

// hasIDBehindComma reports whether a cookie has one with an ID's name behind a comma, which
// separates cookies to old parsers: by RFC 2109, as Tomcat up to 9 does after $Version=1.
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

// mayClaim notes what a parameter claims that does not stand in the ID's own place. It
// reports false if backends may differ about that.
func (r *compiled) mayClaim(folded, name, value string, in Location, s *headerFacts) bool {
	isOwn := r.isAlias(folded, in)
	switch {
	case !isOwn && !slices.Contains(r.foreign, folded):
		return true
	case !isPlainName(name), r.isRespelt(folded, in), !s.claim.admits(folded, value):
		return false
	}
	s.claim = claim{folded: folded, value: value, in: in, own: s.claim.own || isOwn, made: true}
	return true
}

// leadsToRule reports whether a text is a path that leads to a rule: a web server that rewrites
// paths into a parameter (index.php?url=$1) adds those of the query behind it, and the last
// one counts.
func (r *compiled) leadsToRule(text string, s *headerFacts) bool {
	if !strings.ContainsAny(text, `/%\`) {
		return false
	}
	other := Request{Method: s.method, Host: s.host}
	return r.table.matchLenient(&other, "/./"+unescape(text)).Result != Unruled // the dot makes it odd
}

// isAlias reports whether a folded name is that of an ID that stands elsewhere.
// Backends that keep path, header and parameters apart are not fooled by it.
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

// isRespelt reports whether a folded name is another spelling of an ID's in its own place,
// or in the form beside the query, which servlets read as one; or that of the limit's ID,
// which need not be the order's.
func (r *compiled) isRespelt(folded string, in Location) bool {
	for i := range r.IDs {
		own := r.IDs[i].In
		if folded == r.aliases[i] && (own == in || own == InQuery && in == InForm || own == InForm && in == InQuery || !r.isOrder(i)) {
			return true
		}
	}
	return false
}

// agrees reports whether what a request claims beside its ID is that ID.
func (c *claim) agrees(r *compiled, m *Match) bool {
	switch {
	case m.Result != Named:
		return !c.own
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
