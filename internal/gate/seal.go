package gate

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// Seal hides the target of a request between ext_authz and ext_proc, where only ext_proc can
// restore it. A request that skips ext_proc reaches the backend with a path that it does not serve,
// so nothing is settled without a lock, and no order is created without being learned.
//
// The two filters may be served by different instances, so these share a key. A Seal is safe for
// concurrent use.
type Seal struct{ keys atomic.Pointer[[]sealKey] }

// SealKeySize is the size of a key, in bytes.
const SealKeySize = 32

type sealKey struct {
	bytes [SealKeySize]byte
	aead  cipher.AEAD
}

// sealedPath begins the path of a sealed request. An access log shows it if the request has not
// reached ext_proc.
const sealedPath = "/.ordergate/not-bracketed?ordergate="

// NewSeal returns a Seal with a random key.
func NewSeal() *Seal {
	var key [SealKeySize]byte
	_, _ = rand.Read(key[:]) // it never fails
	s := new(Seal)
	s.Use(key)
	return s
}

// Key returns the key that Hide uses.
func (s *Seal) Key() [SealKeySize]byte { return (*s.keys.Load())[0].bytes }

// Use has Hide use a key. Reveal also accepts the one before. Calls must not overlap.
func (s *Seal) Use(key [SealKeySize]byte) {
	var keys []sealKey
	if old := s.keys.Load(); old != nil {
		if (*old)[0].bytes == key {
			return
		}
		keys = (*old)[:1]
	}
	block, _ := aes.NewCipher(key[:]) // an error is about the size
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	keys = append([]sealKey{{key, aead}}, keys...)
	s.keys.Store(&keys)
}

// Hide returns the path in place of a request's target. The method is sealed, too.
func (s *Seal) Hide(method, target string) string {
	sealed := (*s.keys.Load())[0].aead.Seal(nil, nil, []byte(target), []byte(method))
	return sealedPath + base64.RawURLEncoding.EncodeToString(sealed)
}

// IsSealed reports whether a path is one of Hide, or is meant to look like one.
func IsSealed(path string) bool { return strings.HasPrefix(path, sealedPath) }

// Reveal returns the target that a path hides. It returns false for a path that was sealed with
// another key, or by a client.
func (s *Seal) Reveal(method, path string) (target string, ok bool) {
	sealed, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(path, sealedPath))
	if err != nil {
		return "", false
	}
	for _, key := range *s.keys.Load() {
		if plain, err := key.aead.Open(nil, nil, sealed, []byte(method)); err == nil {
			return string(plain), true
		}
	}
	return "", false
}

// Unrevealed is the answer to a request with a path that Reveal does not accept.
func Unrevealed() (Reply, Verdict) {
	return Reply{Status: http.StatusServiceUnavailable, Body: `{"error":"try again"}`, RetryAfter: time.Second}, VerdictUnavailable
}
