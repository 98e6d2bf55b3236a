package order

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxScreened bounds a form that is looked into because its fields may choose what runs,
// or which method counts; bytes.
const maxScreened = 1 << 20

// screening looks through the parameters of a request to a path at which some backend
// chooses by them what it runs.
type screening struct {
	table  *Table
	req    *Request
	script bool // the path is a PHP script's: routes count
	orders bool // it is a front controller's: so do names of orders
	noForm bool // the form is judged elsewhere
	chosen bool // rules have been looked for by what the query chooses: the path is theirs

	choices []choice
	methods []string // that it may count as one under
	rule    int      // that a path in a parameter leads to, or -1
}

// screen returns why the request is refused, or Unruled.
func (s *screening) screen() Match {
	_, query, _ := strings.Cut(s.req.Target, "?")
	guard := s.table.guardRule(s.req)
	if guard < 0 {
		return Match{Rule: -1}
	}
	if s.script {
		s.methods, _, _ = s.table.otherMethods(s.req, true)
		s.methods = append(s.methods, s.req.Method)
	}
	reason := s.readParameters(query, InQuery)
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

// guardRule returns a rule to answer for a request that may be read as one under a rule: the
// first that lets no other methods pass, since its calls are bracketed, or else the first.
func (t *Table) guardRule(req *Request) int {
	first := -1
	for i := range t.rules {
		r := &t.rules[i]
		if r.Pass || !r.admitsHost(req.Host) {
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

// eachPart calls see with parameters until it gives a reason. More than PHP reads of a
// request give one.
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
	for name, value := range all(s.req.Header) {
		if name != "cookie" {
			continue
		}
		if reason := eachParameter(cookies(value), func(name, value string) Reason { return s.readParameter(name, value, InCookie) }); reason != NoReason {
			return reason
		}
	}
	return NoReason
}

// readParameter judges one parameter.
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
	case t.isSelector(folded):
		if !s.choose(folded, name, value, in) {
			return alias
		}
		return NoReason
	case s.script && in == InQuery && isRoutingName(folded):
		return FrontController
	case s.orders && t.namesOrder(folded, value, in):
		return FrontController
	case !s.script || in == InCookie:
		return NoReason
	}
	// A parameter that holds a path, or is one: /index.php?/orders/42/settle
	for _, text := range [2]string{name, value} {
		if text = unescape(text); text == "" {
			continue
		}
		for _, method := range s.methods {
			r := Request{Method: method, Host: s.req.Host}
			if m := t.matchLenient(&r, "/./"+text); m.Result != Unruled { // the dot makes it odd
				s.rule = m.Rule
				return FrontController
			}
		}
	}
	return NoReason
}

// namesOrder reports whether a folded name is one by which some rule reads an order's ID.
// A cookie has to hold one, too: there are many that are called id.
func (t *Table) namesOrder(folded, value string, in Location) bool {
	for i := range t.orders {
		r := &t.orders[i]
		for j := range r.IDs {
			if !r.isOrder(j) || r.aliases[j] != folded {
				continue
			}
			if _, ok := r.IDs[j].Format.Canonical(value); in != InCookie || ok {
				return true
			}
		}
	}
	return false
}

// form is how a body may be read as parameters, in each way of these.
type form int8

const (
	urlencoded form = 1 << iota
	multipart
	members // of JSON

	noForm form = 0
)

// formsOf tells it by a Content-Type, also by one that is odd. To Tomcat and Spring each
// multipart type is a form. The word form counts only by itself: platform is none.
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

// form tells by the headers; encoded tells that the body has a Content-Encoding.
func (req *Request) form() (kind form, encoded bool) {
	if req.BodyState == BodyComplete && len(req.Body) == 0 {
		return noForm, false
	}
	for name, value := range all(req.Header) {
		switch name {
		case "content-length":
			if value == "0" {
				return noForm, false
			}
		case "content-encoding":
			encoded = encoded || !strings.EqualFold(value, "identity")
		case "content-type":
			kind |= formsOf(value)
		}
	}
	return kind, encoded
}

// eachField calls see with the fields of a form until it gives a reason, json: also with the
// members of JSON. NeedsBody tells that the form is yet to be seen.
func (req *Request) eachField(json bool, see func(name, value string) Reason) (Result, Reason) {
	kind, encoded := req.form()
	if !json {
		kind &^= members
	}
	switch {
	case kind == noForm:
		return Unruled, NoReason
	case encoded:
		return Ambiguous, ContentEncoding
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

// eachName calls see with whatever a backend may take for the name of a field of a
// multipart form: parsers differ in which of several names counts, in quotes and in where
// a line ends. Text of a file that looks like a name is one, too; more of them than PHP
// reads fields of a request give a reason.
func eachName(body []byte, see func(name, value string) Reason) Reason {
	folded := bytes.ToLower(body)
	if len(folded) != len(body) { // letters that take more bytes in lower case
		folded = body
	}
	for at, n := 0, 0; ; {
		i := bytes.Index(folded[at:], []byte("name"))
		if i < 0 {
			return NoReason
		}
		at += i + len("name")
		text := bytes.TrimLeft(body[at:], " \t*0123456789") // name*0= of RFC 2231
		if len(text) == 0 || text[0] != '=' {
			continue
		}
		if n++; n > maxFields {
			return TooManyParameters
		}
		// PHP drops blanks before a name, however many.
		quoted := bytes.TrimLeft(bytes.TrimLeft(text[1:], " \t\r\n"), "\"' \t")
		if len(quoted) > maxName {
			quoted = quoted[:maxName]
			if bytes.IndexByte(quoted, '[') >= 0 {
				quoted = append(slices.Clone(quoted), ']') // it may be closed further on
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

// eachMember calls see with the members of a JSON object, none of which further in. What is
// neither a string nor a number has the value of a field that is not certain.
func eachMember(body []byte, see func(name, value string) Reason) Reason {
	dec := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if dec.PeekKind() != '{' { // of no names
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
	if kind := dec.PeekKind(); kind != '"' && kind != '0' {
		return name, unreadable, dec.SkipValue()
	}
	if t, err = dec.ReadToken(); err == nil {
		value = t.String()
	}
	return name, value, err
}

// unreadable stands for the value of a field that is not certain.
const unreadable = "\x00"

// fieldValue returns what stands behind the header of a part, up to the next boundary.
func fieldValue(text []byte) string {
	text = text[:min(len(text), maxHeader)]
	start := bytes.Index(text, []byte("\n\n"))
	if i := bytes.Index(text, []byte("\n\r\n")); i >= 0 && (start < 0 || i < start) {
		start = i + 1
	}
	if start < 0 || bytes.IndexByte(text[:start], 0) >= 0 { // at which a header ends, to PHP
		return unreadable
	}
	value := text[start+2:]
	end := bytes.Index(value, []byte("\n--"))
	if end < 0 || end > maxName {
		return unreadable
	}
	return string(bytes.TrimSuffix(value[:end], []byte("\r")))
}

const (
	// maxFields bounds the parameters that are looked through in a query or a form:
	// max_input_vars of PHP, by default.
	maxFields = 1000
	// maxName bounds the name of a field, in bytes: no ID's is longer.
	maxName = 512
	// maxHeader bounds the header of a part, with such a value behind it, in bytes.
	maxHeader = 8192
)
