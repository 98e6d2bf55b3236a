package order

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxScreened bounds a form that is read because its fields may choose what runs, or the
// method; bytes.
const maxScreened = 1 << 20

// screening checks the parameters of a request to a path at which some backend chooses by
// them what it runs.
type screening struct {
	table  *Table
	req    *Request
	orders bool // the path is a front controller without rules by a parameter: names of orders count
	noForm bool // another check reads the form
	query  string
	mounts []*mount // to which the path leads
	chosen bool     // the rules for what the query chooses were tried: the path is theirs

	choices []choice
	methods []string // that a backend may use for the request
	rule    int      // to which a path in a parameter leads, or -1
}

// screen returns why the request is refused, or Unruled.
func (s *screening) screen() Match {
	_, s.query, _ = strings.Cut(s.req.Target, "?")
	guard := s.table.guardRule(s.req)
	if guard < 0 {
		return Match{Rule: -1}
	}
	if s.table.lenient.indexPHP { // then paths in parameters count
		s.methods, _, _ = s.table.otherMethods(s.req, true)
		s.methods = append(s.methods, s.req.Method)
	}
	reason := s.readParameters(s.query, InQuery)
	if s.query != "" && s.req.hasOddCharset() {
		reason = ContentType
	}
	if reason == NoReason && (s.orders || len(s.table.selectors) > 0) {
		reason = s.readCookies()
	}
	result := Unruled
	if reason == NoReason && !s.noForm {
		result, reason = s.req.eachField(s.table.lenient.members, func(name, value string) Reason { return s.readParameter(name, value, InForm) })
	}
	if s.rule >= 0 {
		guard = s.rule
	}
	return screenedMatch(guard, result, reason)
}

// guardRule returns the rule whose reply refuses a request that no rule matches. It is the
// first rule that lets no other methods pass, because its calls need a lock. Without one it
// is the first rule.
func (t *Table) guardRule(req *Request) int {
	first := -1
	for i := range t.rules {
		r := &t.rules[i]
		if r.Pass || !r.AdmitsHost(req.Host) {
			continue
		}
		if !r.OtherMethods {
			return i
		}
		if first < 0 {
			first = i
		}
	}
	return first
}

func (s *screening) readParameters(text string, in Location) Reason {
	return eachPart(text, func(name, value string) Reason { return s.readParameter(name, value, in) })
}

// eachPart calls see with each parameter until see returns a reason. More parameters than
// PHP reads of a request are a reason, too.
func eachPart(text string, see func(name, value string) Reason) Reason {
	n := 0
	for list := parameters(text); ; {
		pair, ok := list.nextPair()
		if !ok {
			return NoReason
		}
		for part := range strings.SplitSeq(pair, ";") { // a separator to some
			if n++; n > maxFields {
				return TooManyParameters
			}
			name, value, _ := strings.Cut(part, "=")
			if reason := see(name, value); reason != NoReason {
				return reason
			}
		}
	}
}

func (s *screening) readCookies() Reason {
	for name, value := range All(s.req.Header) {
		if name != "cookie" {
			continue
		}
		if reason := eachParameter(cookies(value), func(name, value string) Reason { return s.readParameter(name, value, InCookie) }); reason != NoReason {
			return reason
		}
	}
	return NoReason
}

// readParameter checks one parameter.
func (s *screening) readParameter(name, value string, in Location) Reason {
	t := s.table
	alias := ParameterAlias
	if in == InCookie {
		alias = CookieAlias
	}
	if hasControl(name) && in != InCookie {
		return alias
	}
	folded := foldName(name)
	switch {
	case in == InCookie && s.query == "" && t.cookies[name] != nil:
		return NoReason // a browser sends it with every request, and nothing here chooses what runs
	case t.isSelector(folded):
		if !s.choose(folded, name, value, in) {
			return alias
		}
		return NoReason
	case s.orders && (in == InQuery && isRoutingName(folded) || t.namesOrder(folded, name, value, in)):
		return FrontController
	case !t.lenient.indexPHP || in == InCookie:
		return NoReason
	}
	// A parameter that contains a path, or is one: /index.php?/orders/42/settle
	for _, text := range [2]string{name, value} {
		if text = unescape(text); text == "" {
			continue
		}
		for _, method := range s.methods {
			r := Request{Method: method, Host: s.req.Host}
			if m := t.matchText(&r, text, s.mounts); m.Result != Unruled {
				s.rule = m.Rule
				return FrontController
			}
		}
	}
	return NoReason
}

// namesOrder reports whether some rule reads an order's ID by this name, or below it. A cookie
// must also have the value of an ID, because many cookies are named id.
func (t *Table) namesOrder(folded, name, value string, in Location) bool {
	step := firstStep(name)
	for i := range t.orders {
		r := &t.orders[i]
		for j := range r.orders {
			if r.aliases[j] != folded && (r.above[j] == "" || r.above[j] != step) {
				continue
			}
			if _, ok := r.IDs[j].Format.Canonical(value); in != InCookie || ok {
				return true
			}
		}
	}
	return false
}

// form is a set of the ways in which a body may be read as parameters.
type form int8

const (
	urlencoded form = 1 << iota
	multipart
	members // of JSON

	noForm form = 0
)

// formsOf derives the set from a Content-Type, even from a malformed one. Tomcat and Spring
// treat each multipart type as a form. The word "form" counts only as a whole word:
// "platform" does not.
func formsOf(contentType string) (kind form) {
	contentType = lower(contentType)
	if strings.Contains(contentType, "json") {
		kind |= members
	}
	if strings.Contains(contentType, "multipart") {
		return kind | multipart
	}
	for word := range strings.FieldsFuncSeq(contentType, func(c rune) bool { return c < 'a' || c > 'z' }) {
		if word == "form" || word == "urlencoded" {
			kind |= urlencoded
		}
	}
	return kind
}

// form derives the set from the headers, and why no backend's reading of the body is certain.
func (req *Request) form() (kind form, unreadable Reason) {
	if req.BodyState == BodyComplete && len(req.Body) == 0 {
		return noForm, NoReason
	}
	for name, value := range All(req.Header) {
		switch name {
		case "content-length":
			if value == "0" {
				return noForm, NoReason
			}
		case "content-encoding":
			if !strings.EqualFold(value, "identity") {
				unreadable = ContentEncoding
			}
		case "content-type":
			kind |= formsOf(value)
			if hasOddCharset(value) {
				unreadable = ContentType
			}
		}
	}
	return kind, unreadable
}

// eachField calls see with each field of a form until see returns a reason. With json it
// also reads the members of JSON. NeedsBody means that the form was not read yet.
func (req *Request) eachField(json bool, see func(name, value string) Reason) (Result, Reason) {
	kind, unreadable := req.form()
	if !json {
		kind &^= members
	}
	switch {
	case kind == noForm:
		return Unruled, NoReason
	case unreadable != NoReason:
		return Ambiguous, unreadable
	case req.BodyState == BodyCut, len(req.Body) > maxScreened,
		req.BodyState == BodyUnseen && announcedSize(req.Header) > maxScreened:
		return TooLarge, BodyTooLarge
	case req.BodyState == BodyUnseen:
		return NeedsBody, NoReason
	}
	reason := NoReason
	if kind&multipart != 0 {
		reason = eachName(req.Body, see)
	}
	if kind&urlencoded != 0 && reason == NoReason {
		reason = eachPart(string(req.Body), see)
	}
	if kind&members != 0 && reason == NoReason {
		reason = eachMember(req.Body, see)
	}
	return Unruled, reason
}

// eachName calls see with every text that a backend may take for the name of a field in a
// multipart form. Parsers differ in which of several names counts, in quotes, and in where
// a line ends. It includes text of a file that looks like a name. More names than PHP reads
// fields of a request are a reason to refuse it.
func eachName(body []byte, see func(name, value string) Reason) Reason {
	folded := bytes.ToLower(body)
	if len(folded) != len(body) { // some letters take more bytes in lower case
		folded = body
	}
	if transferEncoded(folded) {
		return ContentEncoding
	}
	for at, n := 0, 0; ; {
		i := bytes.Index(folded[at:], []byte("name"))
		if i < 0 {
			return NoReason
		}
		at += i + len("name")
		text := bytes.TrimLeftFunc(body[at:], isBetweenName)
		if len(text) == 0 || text[0] != '=' {
			continue
		}
		if n++; n > maxFields {
			return TooManyParameters
		}
		// PHP drops any number of blanks before a name.
		quoted := bytes.TrimLeft(bytes.TrimLeft(text[1:], " \t\r\n"), "\"' \t\\")
		isWhole := at == len("name") || strings.IndexByte("abcdefghijklmnopqrstuvwxyz_-", folded[at-len("name")-1]) < 0 // not filename
		if isWhole && (bytes.IndexByte(body[at:len(body)-len(text)], '*') >= 0 || bytes.HasPrefix(quoted, []byte("=?"))) {
			return ParameterAlias // Tomcat decodes it, by RFC 2231 or RFC 2047
		}
		if len(quoted) > maxName {
			quoted = quoted[:maxName]
			if bytes.IndexByte(quoted, '[') >= 0 {
				quoted = append(slices.Clone(quoted), ']') // the bracket may be closed after the cut
			}
		}
		value := fieldValue(body[at:])
		for _, ends := range [3]string{"\"'", " \t\r\n", ";\r\n"} {
			name := quoted
			if end := bytes.IndexAny(name, ends); end >= 0 {
				name = name[:end]
			}
			name = bytes.Map(func(r rune) rune {
				if strings.ContainsRune(`"'\`, r) {
					return -1
				}
				return r
			}, name)
			if reason := see(string(name), value); reason != NoReason {
				return reason
			}
		}
	}
}

// transferEncoded reports whether a part of a form in lower case may be in base64 or quoted-printable:
// Undertow decodes the values of such fields.
func transferEncoded(folded []byte) bool {
	for {
		_, rest, found := bytes.Cut(folded, []byte("transfer-encoding"))
		if !found {
			return false
		}
		encoding := bytes.TrimLeft(rest, " \t\r\n:")
		if !bytes.HasPrefix(encoding, []byte("8bit")) && !bytes.HasPrefix(encoding, []byte("7bit")) && !bytes.HasPrefix(encoding, []byte("binary")) {
			return true
		}
		folded = rest
	}
}

// isBetweenName reports whether parsers drop a character between name and the equals sign: name*0= of
// RFC 2231, and all that is blank to Java, also at the beginning of another line.
func isBetweenName(c rune) bool { return c <= ' ' || c > '~' || c == '*' || '0' <= c && c <= '9' }

// eachMember calls see with the members of a JSON object, without nested ones. A value that
// is neither a string nor a number is passed as unreadable.
func eachMember(body []byte, see func(name, value string) Reason) Reason {
	dec := jsonDecoder(body)
	if dec.PeekKind() != '{' { // it has no names
		if err := dec.SkipValue(); err != nil && !errors.Is(err, io.EOF) {
			return BadJSON
		}
	} else {
		_, _ = dec.ReadToken() // the bracket
		for n := 0; dec.PeekKind() != '}'; n++ {
			name, value, err := nextMember(dec)
			switch {
			case err != nil:
				return BadJSON
			case n == maxFields:
				return TooManyParameters
			}
			if reason := see(name, value); reason != NoReason {
				return reason
			}
		}
		_, _ = dec.ReadToken()
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return BadJSON
	}
	return NoReason
}

func nextMember(dec *jsontext.Decoder) (name, value string, err error) {
	t, err := dec.ReadToken()
	if err != nil {
		return "", "", err
	}
	name = t.String()
	value, err = memberValue(dec)
	return name, value, err
}

// memberValue reads the value of a member: that of a string or a number, else unreadable.
func memberValue(dec *jsontext.Decoder) (string, error) {
	if kind := dec.PeekKind(); kind != '"' && kind != '0' {
		return unreadable, dec.SkipValue()
	}
	t, err := dec.ReadToken()
	if err != nil {
		return unreadable, err
	}
	return t.String(), nil
}

// unreadable replaces the value of a field if backends may read it differently.
const unreadable = "\x00"

// fieldValue returns the text between the header of a part and the next boundary.
func fieldValue(text []byte) string {
	text = text[:min(len(text), maxHeader)]
	header, value, ok := bytes.Cut(text, []byte("\r\n\r\n"))
	if !ok || bytes.Count(header, []byte("\n")) != bytes.Count(header, []byte("\r\n")) || // PHP ends lines there, and Tomcat none
		bytes.IndexByte(header, 0) >= 0 || hasOddCharset(string(header)) { // PHP ends a header at a NUL
		return unreadable
	}
	end := bytes.Index(value, []byte("\n--"))
	if end < 0 || end > maxName {
		return unreadable
	}
	return string(bytes.TrimSuffix(value[:end], []byte("\r")))
}

const (
	// maxFields bounds the parameters that are checked in a query or a form. It is PHP's
	// default of max_input_vars.
	maxFields = 1000
	// maxName bounds the name of a field, in bytes: no name of an ID is longer.
	maxName = 512
	// maxHeader bounds the header of a part together with its value, in bytes.
	maxHeader = 8192
)
