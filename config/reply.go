package config

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

var replyType = reflect.TypeFor[Reply]()

// Reply is an answer of ordergate in place of the backend.
type Reply struct {
	// Status is one of an answer with a body: not 204, 205 and 304. A redirect has a location in
	// Headers.
	Status      int    `mapstructure:"status" min:"200" max:"599"`
	ContentType string `mapstructure:"content_type"` // default application/json
	Body        string `mapstructure:"body"`         // at most 64 KiB
	BodyFile    string `mapstructure:"body_file"`    // read at start and at each reload, in place of Body
	// Headers maps names, in any case, to values.
	Headers map[string]string `mapstructure:"headers" items:"16 headers" form:"header"`
	// RetryAfter is sent in whole seconds, rounded up; 0 sends none.
	RetryAfter time.Duration `mapstructure:"retry_after" min:"0s" max:"24h"`
}

func (r *Reply) redirects() bool { return r.Status >= 300 && r.Status < 400 }

func (r *Reply) ensureDefaults(doc *document, path string, byDefault Reply) {
	given := doc.mappings[path]
	fill(given, "status", &r.Status, byDefault.Status)
	if !r.redirects() && r.ContentType == "" { // the default is JSON, and a redirect needs none
		fill(given, "body", &r.Body, byDefault.Body)
	}
	fill(given, "retry_after", &r.RetryAfter, byDefault.RetryAfter)
	if r.BodyFile == "" {
		return
	}
	if doc.given(path + ".body") {
		doc.report(path+".body_file", "excludes body: give one of the two")
		return
	}
	body, err := readRegularFile(r.BodyFile, maxBody)
	if err == nil && len(body) == 0 {
		err = errors.New("the file is empty")
	}
	if err != nil {
		doc.report(path+".body_file", "reading the body: "+oneLine(err.Error()))
	}
	r.Body = string(body)
}

// setHeaders are headers of a reply that have a key of their own, or that Envoy sets.
var setHeaders = []string{"content-type", "retry-after", "date", "server", "content-encoding"}

const maxReplyHeader = 4096 // bytes

func (v *validator) reply(path string, r Reply) {
	switch {
	case r.Status == http.StatusNoContent || r.Status == http.StatusResetContent || r.Status == http.StatusNotModified:
		v.reject(path+".status", "%d is an answer without a body, which a proxy may take for another: give one from 200 with a body", r.Status)
	case r.redirects() && r.Headers["location"] == "":
		v.reject(path+".status", "%d is a redirect, and headers have no location: give it one", r.Status)
	}
	switch {
	case len(r.Body) > maxBody:
		v.reject(path+".body", "is %d bytes long: at most %d are allowed", len(r.Body), maxBody)
	case !utf8.ValidString(r.Body):
		v.reject(path+".body_file", "the file is not UTF-8")
	}
	if r.ContentType != "" {
		_, _, err := mime.ParseMediaType(r.ContentType)
		switch at := path + ".content_type"; {
		case err != nil || !strings.Contains(r.ContentType, "/") || !headerValue(r.ContentType):
			v.reject(at, "%s is not a media type, such as text/html; charset=utf-8", quote(r.ContentType))
		case r.Body == "" && r.BodyFile == "" && !r.redirects():
			v.reject(at, "is for a body, and there is none of this type: give body or body_file")
		}
	}
	for _, name := range v.headerNames(path+".headers", r.Headers) {
		switch at := path + ".headers"; {
		case slices.Contains(connectionHeaders, name) || slices.Contains(setHeaders, name) ||
			strings.HasPrefix(name, "x-ordergate-") || strings.HasPrefix(name, "x-envoy-") || strings.HasPrefix(name, "grpc-"):
			v.reject(at, "%s has a key of its own, belongs to the connection, or is set by Envoy or ordergate: remove it", quote(name))
		case len(r.Headers[name]) > maxReplyHeader || !headerValue(r.Headers[name]):
			v.reject(join(at, name), "is not a value of a header: 1 to %d visible characters of ASCII, with blanks between them", maxReplyHeader)
		}
	}
}

// headerValue reports whether a text can be the value of a header.
func headerValue(text string) bool {
	return text != "" && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// connectionHeaders belong to one connection, or frame its messages (RFC 9110, 7.6.1).
var connectionHeaders = []string{
	"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "content-length",
}

// removedHeaders are those that Envoy or ordergate removes from requests, besides ordergate's
// own.
var removedHeaders = []string{"expect", "accept-encoding", "range", "if-range", "x-original-url", "x-rewrite-url"}

// unstoredHeaders are headers of answers that belong to one client, or that ordergate sets.
var unstoredHeaders = []string{"set-cookie", "age", "date", "content-encoding", "vary"}

// keyHeader rejects a header that cannot be a part of a key: it is not of the call, or an
// adapter may never see it.
func (v *validator) keyHeader(path, name string) {
	switch {
	case name == "host":
		v.reject(path, "the host counts already: remove it")
	case slices.Contains(connectionHeaders, name):
		v.reject(path, "%s belongs to one connection, not to the call: name another header, such as x-tenant", quote(name))
	case slices.Contains(removedHeaders, name) || strings.HasPrefix(name, "x-ordergate-"):
		v.reject(path, "%s is removed from requests: name another header, such as x-tenant", quote(name))
	}
}

// storedHeaderProblem returns the fault of a header that cannot be stored with an answer, or "".
func storedHeaderProblem(name string) string {
	switch {
	case !headerName.MatchString(name):
		return fmt.Sprintf("%s is not the name of a header", quote(name))
	case strings.HasPrefix(name, "access-control-") || name == "timing-allow-origin":
		return fmt.Sprintf("%s cannot be stored: it depends on the Origin of the request", quote(name))
	case slices.Contains(connectionHeaders, name) || slices.Contains(unstoredHeaders, name) ||
		strings.HasPrefix(name, "x-ordergate-") || strings.HasPrefix(name, "x-envoy-"):
		return fmt.Sprintf("%s cannot be stored: it is not of the answer alone, or ordergate sets it", quote(name))
	}
	return ""
}
