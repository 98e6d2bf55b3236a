package order

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

const (
	// hashedBytes is the length of the canonical form of a Hashed ID.
	hashedBytes = 22
	// maxHashed bounds the text of one, in bytes.
	maxHashed = 4096
)

// hash returns the canonical form of a Hashed ID: 128 bits of HMAC-SHA256. Letters of both cases
// are one: many databases compare them so, and a session would have two locks.
func (f *Format) hash(text string) (string, bool) {
	if text == "" || len(text) > maxHashed || !f.isToken(text) {
		return "", false
	}
	mac := hmac.New(sha256.New, []byte(f.Key))
	mac.Write([]byte(strings.ToLower(text)))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]), true
}

// isToken accepts what every backend reads alike. In a header, nothing is decoded. Elsewhere a
// backend may decode a text, or cut it at a separator: old servlet containers do so at =, / and @.
func (f *Format) isToken(text string) bool {
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._~!-", c) >= 0:
		case f.AsHeader && strings.IndexByte("+/=:", c) >= 0:
		case f.AsHeader && c == ' ' && 0 < i && i < len(text)-1 && text[i-1] != ' ': // "Bearer x"
		default:
			return false
		}
	}
	return true
}
