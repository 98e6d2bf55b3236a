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
	// minSession is the length of the shortest session, in bytes: 64 random bits in hexadecimal (OWASP,
	// Session Management Cheat Sheet).
	minSession = 16
	// encryptedCookie begins a cookie of Laravel: {"iv": in base64.
	encryptedCookie = "eyJpdiI6"
)

// hash returns the canonical form of a Hashed ID: 128 bits of HMAC-SHA256. Letters of both cases
// are one: many databases compare them so, and a session would have two locks.
func (f *Format) hash(text string) (string, bool) {
	if text == "" || len(text) > maxHashed || !f.isToken(text) {
		return "", false
	}
	text, ok := f.session(text)
	if !ok {
		return "", false
	}
	mac := hmac.New(sha256.New, []byte(f.Key))
	mac.Write([]byte(strings.ToLower(text)))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]), true
}

// session returns the part of a token by which a backend finds the session: several tokens may have
// it. It returns false if backends may find different sessions.
func (f *Format) session(text string) (string, bool) {
	scheme, token, hasScheme := strings.Cut(text, " ")
	switch {
	case !hasScheme: // many backends accept a token without its scheme
		token = text
	case strings.EqualFold(scheme, "Basic"):
		plain, err := base64.StdEncoding.Strict().DecodeString(token) // others read more spellings
		return string(plain), err == nil && len(plain) > 0
	}
	switch {
	case strings.HasPrefix(token, encryptedCookie):
		return "", false // each answer has another one for the same session
	case strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") >= 2: // a JWT: it begins with {"
		token = token[:strings.LastIndexByte(token, '.')] // its signature has several spellings in base64
	case !f.AsHeader && len(token) > minSession:
		if i := strings.IndexAny(token[minSession:], ".!"); i >= 0 {
			if i += minSession; len(token)-i-1 > i {
				return "", false // the text behind the dot may be the session, and that before it the same for all
			}
			token = token[:i] // servlet containers drop the name of a node
		}
	}
	return token, true
}

// isToken accepts what every backend reads alike. In a header, nothing is decoded. Elsewhere a
// backend may decode a text, or cut it at a separator: old servlet containers do so at =, / and @.
func (f *Format) isToken(text string) bool {
	blanks := 0
	for i := range len(text) {
		c := text[i]
		switch {
		case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._~!-", c) >= 0:
		case f.AsHeader && strings.IndexByte("+/=:", c) >= 0:
		case f.AsHeader && c == ' ' && 0 < i && i < len(text)-1 && blanks == 0: // "Bearer x"
			blanks++
		default:
			return false
		}
	}
	return true
}
