package order

import (
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/headername"
)

// headerFacts are the facts about a request, most of which its headers state, that rules use.
type headerFacts struct {
	reason      Reason // why the request is refused, if it is
	contentType string
	types       int // how many Content-Types
	encoded     bool
	form        bool  // a Content-Type says that the body may be read as parameters
	json        bool  // a Content-Type says that the body is some kind of JSON
	oddCharset  bool  // a Content-Type says that letters are not those of ASCII
	announced   bool  // the headers say that there is a body
	hasBody     bool  // not certainly empty
	claim       claim // of an order
	partClaim   claim
	names       bool // a header names an order by another rule's location
	method      string
	host        string
	way         way
}

// readHeaders reads the headers once, and records IDs in them.
func (r *compiled) readHeaders(header Header, into []idText, s *headerFacts) {
	s.hasBody = true
	for name, value := range All(header) {
		if reason := r.readHeader(name, value, s, into); reason != NoReason && s.reason == NoReason {
			s.reason = reason
		}
	}
}

func (r *compiled) readHeader(name, value string, s *headerFacts, into []idText) Reason {
	switch dashed(name) {
	case headerMethodOverride, "x-http-method", "x-method-override", "x-original-method":
		if !r.AdmitsMethod(value) { // an allowed method leads to the same rule
			return MethodOverride
		}
	case "x-original-url", "x-rewrite-url", "x-forwarded-prefix":
		return URLOverride
	case "content-type":
		s.contentType = value
		s.types++
		kind := formsOf(value)
		s.form = s.form || kind&(urlencoded|multipart) != 0
		s.json = s.json || kind&members != 0
		s.oddCharset = s.oddCharset || hasOddCharset(value)
	case "content-encoding":
		s.encoded = s.encoded || !strings.EqualFold(value, "identity")
	case "content-length":
		if value == "0" {
			s.hasBody = false
		} else {
			s.announced = true
		}
	case "transfer-encoding":
		s.announced = true
	case "cookie":
		return r.readParameters(cookies(value), InCookie, into, s)
	case "connection":
		// A proxy may remove the headers that it names before the backend.
		return r.connectionRemovesID(value)
	}
	if IsOurs(name) && !strings.HasPrefix(name, ownPrefix) { // the adapters remove the plain spellings
		return HeaderAlias
	}
	s.names = s.names || r.isForeignHeader(name)
	return r.readIDHeader(name, value, into)
}

// overrideLengths has a bit for the length of each header name that changes the request.
const overrideLengths = 1<<len("x-http-method") | 1<<len("x-original-url") | 1<<len("x-method-override") |
	1<<len("x-forwarded-prefix") | 1<<len(headerMethodOverride)

// dashed returns a header's name as CGI and PHP may read it, if the name may change the
// request: X_HTTP.Method-Override is X-HTTP-Method-Override. The compiler inlines it, which
// saves a call for nearly all headers.
func dashed(name string) string {
	if overrideLengths>>len(name)&1 == 0 || name[0] != 'x' {
		return name
	}
	return withDashes(name)
}

func withDashes(name string) string {
	for i := range len(name) {
		if headername.FoldByte(name[i]) != name[i] {
			folded := []byte(name)
			for i := range folded {
				folded[i] = headername.FoldByte(folded[i])
			}
			return string(folded)
		}
	}
	return name
}

// respellsURL reports whether a header overrides the URL in a spelling that only CGI
// accepts (X.Original.URL). The adapters remove the plain spellings.
func (req *Request) respellsURL() bool {
	for name := range All(req.Header) {
		switch plain := dashed(name); plain {
		case "x-original-url", "x-rewrite-url":
			if plain != name {
				return true
			}
		}
	}
	return false
}

// readIDHeader records a header that is an ID, and refuses one that a backend may take for
// it: CGI turns both X-Order-Id and X_Order_Id into HTTP_X_ORDER_ID.
func (r *compiled) readIDHeader(name, value string, into []idText) Reason {
	for i := range r.IDs {
		if r.IDs[i].In != InHeader {
			continue
		}
		if name == r.IDs[i].Name {
			into[i].text = value
			into[i].times++
		} else if headername.Equal(name, r.IDs[i].Name) {
			return HeaderAlias
		}
	}
	return NoReason
}

func (r *compiled) connectionRemovesID(tokens string) Reason {
	for i := range r.IDs {
		if r.IDs[i].In != InHeader {
			continue
		}
		for token := range strings.SplitSeq(tokens, ",") {
			if strings.EqualFold(strings.TrimSpace(token), r.IDs[i].Name) {
				return HeaderAlias
			}
		}
	}
	return NoReason
}

// mediaType reports whether the request has exactly one Content-Type, of the given type,
// and with no parameter except charset=utf-8.
func (s *headerFacts) mediaType(want string) bool {
	base, parameter, _ := strings.Cut(s.contentType, ";")
	if s.types != 1 || !strings.EqualFold(strings.TrimSpace(base), want) {
		return false
	}
	parameter = strings.TrimSpace(parameter)
	return parameter == "" || strings.EqualFold(parameter, "charset=utf-8") || strings.EqualFold(parameter, `charset="utf-8"`)
}

// asciiCharsets begin the names of the charsets whose ASCII letters are one byte each, and of which
// no other byte is one.
var asciiCharsets = []string{"utf-8", "utf8", "us-ascii", "ascii", "latin", "iso-8859-", "iso8859", "windows-125", "cp125", "gb", "big5", "euc-", "shift_jis", "windows-31j", "koi8-"}

// hasOddCharset reports whether a Content-Type names any other charset, such as UTF-16 or EBCDIC.
// Tomcat decodes the names of a form by it, and those of a query with useBodyEncodingForURI. Spring
// decodes the value of a field by that of its part.
func hasOddCharset(contentType string) bool {
	for _, rest, found := strings.Cut(lower(contentType), "charset"); found; _, rest, found = strings.Cut(rest, "charset") {
		rest = strings.TrimLeft(rest, " \t=*'\"")
		if !slices.ContainsFunc(asciiCharsets, func(begin string) bool { return strings.HasPrefix(rest, begin) }) {
			return true
		}
	}
	return false
}

func (req *Request) hasOddCharset() bool {
	for name, value := range All(req.Header) {
		if name == "content-type" && hasOddCharset(value) {
			return true
		}
	}
	return false
}
