package gate

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Seal hides the target of a request between ext_authz and ext_proc, where only ext_proc restores it.
// A request that skips ext_proc reaches the backend with a path that it does not serve, so nothing is
// settled without a lock, and no order is created without being learned.
//
// A client cannot seal a target, or use a sealed path that it has seen: it would choose a route of Envoy
// by one path, and what the backend does by another. So a path that comes sealed is sealed twice. The
// two filters may be served by different instances, so these share a key. A Seal is safe for concurrent
// use.
//
// Where ext_authz is off, nothing is sealed, and ext_proc screens the request itself: see [AuthzOff]. A
// path that comes sealed there is a client's.
type Seal struct{ keys atomic.Pointer[[]SealKey] }

// AuthzOff is the metadata, a name and its value, of a stream of ext_proc for whose request ext_authz is
// off: Envoy's configuration sets it (initial_metadata), and no client can. Such a stream's first reply
// sets GuardField, true, in the dynamic metadata of GuardNamespace. Without these, Envoy's filter
// ordergate.guard refuses the request: they prove to Envoy what a seal proves to the backend.
var AuthzOff = [2]string{"x-ordergate-authz", "off"}

// See [AuthzOff].
const (
	GuardNamespace = "ordergate.guard"
	GuardField     = "seen"
)

// SealKey is the key of a [Seal].
type SealKey = [16]byte

// Envoy's access log has the sealed path of a request that ext_proc refuses, and so its target.
const (
	sealedPath   = "/.ordergate/not-bracketed?seal="
	sealedTarget = "&ordergate="
	macBytes     = 16
)

// NewSeal returns a Seal with a random key.
func NewSeal() *Seal {
	var key SealKey
	_, _ = rand.Read(key[:]) // it never fails
	s := new(Seal)
	s.keys.Store(&[]SealKey{key})
	return s
}

// Key returns the key that Hide uses.
func (s *Seal) Key() SealKey { return (*s.keys.Load())[0] }

// Use has Hide use a key. Reveal also accepts the one before. Calls must not overlap.
func (s *Seal) Use(key SealKey) {
	if before := s.Key(); before != key {
		s.keys.Store(&[]SealKey{key, before})
	}
}

// Hide returns the path in place of a request's target. The method is sealed, too.
func (s *Seal) Hide(method, target string) string {
	return sealedPath + mac(s.Key(), method, target) + sealedTarget + url.QueryEscape(target)
}

// IsSealed reports whether a path is one of Hide, or is meant to look like one.
func IsSealed(path string) bool { return strings.HasPrefix(path, sealedPath) }

// Reveal returns the target that a path hides. It returns false for a path that was sealed with
// another key, or by a client.
func (s *Seal) Reveal(method, path string) (target string, ok bool) {
	sum, escaped, ok := strings.Cut(strings.TrimPrefix(path, sealedPath), sealedTarget)
	target, err := url.QueryUnescape(escaped)
	if !ok || err != nil {
		return "", false
	}
	for _, key := range *s.keys.Load() {
		if hmac.Equal([]byte(sum), []byte(mac(key, method, target))) {
			return target, true
		}
	}
	return "", false
}

// mac returns 128 bits of HMAC-SHA256, as text. No method has a line feed.
func mac(key SealKey, method, target string) string {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(method))
	h.Write([]byte{'\n'})
	h.Write([]byte(target))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:macBytes])
}

// Unrevealed is the answer to a request with a path that Reveal does not accept.
func Unrevealed() *Answer {
	return Reply{Status: http.StatusServiceUnavailable, Body: `{"error":"try again"}`, RetryAfter: time.Second}.Answer(VerdictUnavailable)
}
