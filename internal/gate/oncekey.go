package gate

import (
	"mime"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/headername"
	"github.com/ordergate/ordergate/internal/order"
)

// OnceKey makes a key of parts of a request. Calls with the same key are the same call.
type OnceKey struct {
	Lock     Locker   // of keys
	Parts    []string // headers in lower case; "": the body
	Scope    []string // headers in lower case; keys of requests that differ in one are different
	Required bool     // a request without one of the parts is refused; otherwise it has no key
}

// HeaderIdempotencyKey is the header of draft-ietf-httpapi-idempotency-key-header-07.
const HeaderIdempotencyKey = "idempotency-key"

// maxOnceKey bounds an Idempotency-Key, in bytes. The draft leaves the bound to the server.
const maxOnceKey = 255

// maxOnceHeader bounds any other header in a key, in bytes.
const maxOnceHeader = 4096

// of returns the ID of the request's key: a hash, so that Redis does not show it. "": the
// request has no key. The reason is why it is refused.
func (k *OnceKey) of(rule string, req *order.Request) (id string, why order.Reason) {
	texts := []string{rule}
	for _, name := range k.Scope {
		value, n := onlyHeader(req.Header, name)
		switch {
		case n > 1:
			return "", order.RepeatedKey
		case len(value) > maxOnceHeader:
			return "", order.LongKey
		}
		texts = append(texts, value)
	}
	idempotency := false
	for _, part := range k.Parts {
		if part == "" {
			texts = append(texts, repeatableBody(req))
			continue
		}
		value, n := onlyHeader(req.Header, part)
		switch {
		case n > 1:
			return "", order.RepeatedKey
		case n == 0 && k.Required:
			return "", order.MissingKey
		case n == 0:
			return "", order.NoReason
		case part == HeaderIdempotencyKey:
			var ok bool
			if value, ok = idempotencyKey(value); !ok {
				return "", order.MalformedKey
			}
			idempotency = true
		case value == "":
			return "", order.MalformedKey
		case len(value) > maxOnceHeader:
			return "", order.LongKey
		}
		texts = append(texts, value)
	}
	if !idempotency { // host and target belong to what the key stands for
		texts = append(texts, req.Method, strings.ToLower(req.Host), repeatableTarget(req.Target))
	}
	return hashOf(texts...), order.NoReason
}

// repeatableTarget returns the target without the parameter _, in which jQuery sends the time so that no
// cache answers: two clicks are the same request.
func repeatableTarget(target string) string {
	path, query, _ := strings.Cut(target, "?")
	params := strings.Split(query, "&")
	rest := slices.DeleteFunc(slices.Clone(params), func(p string) bool { return strings.HasPrefix(p, "_=") })
	switch {
	case len(rest) == len(params):
		return target
	case len(rest) == 0:
		return path
	}
	return path + "?" + strings.Join(rest, "&")
}

// repeatableBody returns the body, of multipart without the boundary: clients send the same form with
// another one each time.
func repeatableBody(req *order.Request) string {
	contentType, _ := onlyHeader(req.Header, "content-type")
	mediaType, params, _ := mime.ParseMediaType(contentType)
	if strings.HasPrefix(mediaType, "multipart/") && params["boundary"] != "" {
		return strings.ReplaceAll(string(req.Body), "--"+params["boundary"], "--")
	}
	return string(req.Body)
}

// callerOf returns a hash of the headers that tell callers apart, "" if there are none of these.
// The host belongs to them: a backend makes addresses of it. A session in the path is one of a cookie.
func callerOf(scope []string, req *order.Request) string {
	if len(scope) == 0 {
		return ""
	}
	texts := []string{strings.ToLower(req.Host)}
	for _, name := range scope {
		texts = appendHeader(texts, req.Header, name)
		if session := req.SessionInPath(); name == "cookie" && session != "" {
			texts = append(texts, session)
		}
	}
	return hashOf(texts...)
}

// appendHeader appends the names and values of the headers that a backend may take for name.
func appendHeader(texts []string, header order.Header, name string) []string {
	for key, text := range order.All(header) {
		if headername.Equal(key, name) {
			texts = append(texts, key, text)
		}
	}
	return texts
}

// varyingNames are headers of requests by which answers vary (RFC 9110, 12.5.5): those of a client
// that sends the same call again are the same. CORS has all answers of a backend vary by three.
var varyingNames = [...]string{
	"accept", "accept-language", "access-control-request-headers", "access-control-request-method",
	"authorization", "cookie", "origin", "x-requested-with",
}

// varying has a hash for each of varyingNames, "" if the request has no such header.
type varying [len(varyingNames)]string

func varyingOf(req *order.Request) (v varying) {
	for i, name := range varyingNames {
		if texts := appendHeader(nil, req.Header, name); texts != nil {
			v[i] = hashOf(texts...)
		}
	}
	return v
}

// hashes returns the hashes of some headers, nil for none.
func (v *varying) hashes(names []string) map[string]string {
	if len(names) == 0 {
		return nil
	}
	hashes := make(map[string]string, len(names))
	for _, name := range names {
		hashes[name] = v[slices.Index(varyingNames[:], name)]
	}
	return hashes
}

// fit reports whether an answer is for this request, too.
func (v *varying) fit(hashes map[string]string) bool {
	for name, hash := range hashes {
		if i := slices.Index(varyingNames[:], name); i < 0 || v[i] != hash {
			return false
		}
	}
	return true
}

// onlyHeader returns the value of a header, and how often it was sent. A header that a server
// may take for it counts, too.
func onlyHeader(header order.Header, name string) (value string, n int) {
	for key, text := range order.All(header) {
		switch {
		case key == name:
			value = text
			n++
		case headername.Equal(key, name):
			n += 2 // the backend may read it in place of the other one
		}
	}
	return value, n
}

// idempotencyKey returns the content of an Idempotency-Key. The draft has a string of
// structured fields (RFC 8941, 3.3.3), which is quoted. Most clients send the content alone:
// visible ASCII without commas, since a comma joins two headers.
func idempotencyKey(value string) (string, bool) {
	inner, quoted := strings.CutPrefix(value, `"`)
	if quoted {
		var ok bool
		if inner, ok = strings.CutSuffix(inner, `"`); !ok {
			return "", false
		}
	}
	if inner == "" || len(inner) > maxOnceKey {
		return "", false
	}
	var text strings.Builder
	for i := 0; i < len(inner); i++ {
		c := inner[i]
		switch {
		case quoted && c == '\\':
			if i++; i == len(inner) || inner[i] != '"' && inner[i] != '\\' {
				return "", false
			}
			c = inner[i]
		case c < ' ' || c >= 0x7f || c == '"' || !quoted && (c == ' ' || c == ','):
			return "", false
		}
		text.WriteByte(c)
	}
	return text.String(), true
}
