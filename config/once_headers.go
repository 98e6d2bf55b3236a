package config

import (
	"slices"
	"strings"
)

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

// storedHeader rejects a header that cannot be stored with an answer.
func (v *validator) storedHeader(path, name string) {
	switch {
	case strings.HasPrefix(name, "access-control-") || name == "timing-allow-origin":
		v.reject(path, "%s cannot be stored: it depends on the Origin of the request", quote(name))
	case slices.Contains(connectionHeaders, name) || slices.Contains(unstoredHeaders, name) ||
		strings.HasPrefix(name, "x-ordergate-") || strings.HasPrefix(name, "x-envoy-"):
		v.reject(path, "%s cannot be stored: it is not of the answer alone, or ordergate sets it", quote(name))
	}
}
