package extauthz

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/gate"
)

// httpReply is an answer to a sub-request. It is read-only and shared.
type httpReply struct {
	status int
	header http.Header
	body   string // shared with the rule
}

func newHTTPReply(status int, body string, headers ...gate.Header) *httpReply {
	r := &httpReply{status: status, header: make(http.Header), body: body}
	for _, h := range headers {
		r.header.Set(h.Name, h.Value)
	}
	r.header.Set("Content-Length", strconv.Itoa(len(body)))
	// A proxy that caches 404 or 403 would refuse an order that was created later.
	r.header.Set("Cache-Control", "no-store")
	return r
}

// misconfigured is the answer to a sub-request of a misconfigured proxy.
func misconfigured(status int, text string) *httpReply {
	return newHTTPReply(status, "ordergate: "+text+"\n", gate.Header{Name: "Content-Type", Value: "text/plain"})
}

func (r *httpReply) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.WriteHeader(r.status)
	_, _ = io.WriteString(w, r.body) // ignored: the proxy may have gone away
}

// fields are the headers of an original request, names in lower case. They
// implement order.Header.
type fields []field

type field struct{ name, value string }

// newFields returns the headers of a sub-request. It leaves out the excepted ones (as
// net/http spells them), which the proxy has set, and Content-Length, which describes the
// sub-request's own body.
func newFields(header http.Header, except ...string) fields {
	f := make(fields, 0, len(header))
	for name, values := range header {
		if name == "Content-Length" || slices.Contains(except, name) {
			continue
		}
		name = strings.ToLower(name)
		for _, v := range values {
			f = append(f, field{name, v})
		}
	}
	return f
}

// Next implements order.Header. The cursor is an index.
func (f fields) Next(cursor int) (name, value string, next int) {
	if cursor >= len(f) {
		return "", "", -1
	}
	return f[cursor].name, f[cursor].value, cursor + 1
}
