package order

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Kind names a family of ID formats.
type Kind int8

// The kinds of ID.
const (
	Digits  Kind = iota // ASCII digits without a leading zero (0 itself is one)
	UUID                // 8-4-4-4-12 hexadecimal digits; canonical in lower case
	Pattern             // what a regular expression matches as a whole
)

// MaxIDLength bounds every ID, in bytes.
const MaxIDLength = 256

// Format decides which texts are order IDs. Everything else is refused, never
// trimmed or repaired: what one backend trims, another takes for a different
// order.
type Format struct {
	Kind     Kind
	Min, Max int            // length in bytes, inclusive; not used with UUID
	Pattern  *regexp.Regexp // with kind Pattern, see [CompilePattern]
}

// CompilePattern compiles an RE2 expression so that it has to match a whole ID.
func CompilePattern(expr string) (*regexp.Regexp, error) {
	// Compiled by itself first: "a)|(b" must not escape the anchors below.
	if _, err := regexp.Compile(expr); err != nil {
		return nil, fmt.Errorf("compiling pattern: %w", err)
	}
	return regexp.Compile(`\A(?:` + expr + `)\z`)
}

func (f *Format) check() error {
	switch {
	case f.Kind == UUID:
		return nil
	case f.Min < 1 || f.Max < f.Min || f.Max > MaxIDLength:
		return fmt.Errorf("ID lengths %d to %d are not within 1 to %d", f.Min, f.Max, MaxIDLength)
	case f.Kind == Pattern && f.Pattern == nil:
		return errors.New("no pattern")
	}
	return nil
}

// Canonical returns the one spelling of an ID, or false when the text is none.
// It is idempotent, takes linear time and allocates only for a UUID that has
// upper-case letters.
func (f *Format) Canonical(text string) (string, bool) {
	switch f.Kind {
	case Digits:
		return text, f.lengthOK(text) && isDigits(text)
	case UUID:
		return canonicalUUID(text)
	case Pattern:
		return text, f.lengthOK(text) && isVisibleASCII(text) && f.Pattern.MatchString(text)
	}
	return "", false
}

func (f *Format) lengthOK(text string) bool { return f.Min <= len(text) && len(text) <= f.Max }

func isDigits(text string) bool {
	if text[0] == '0' && len(text) > 1 {
		return false // 042 and 42 are one order to a backend that parses numbers
	}
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return true
}

// isVisibleASCII keeps what backends fold, decode or strip (white space,
// escapes, non-ASCII) out of IDs whatever the user's pattern admits.
func isVisibleASCII(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '%' || c == ';' {
			return false
		}
	}
	return true
}

func canonicalUUID(text string) (string, bool) {
	if len(text) != 36 {
		return "", false
	}
	upper := false
	for i := range len(text) {
		c := text[i]
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if c != '-' {
				return "", false
			}
		case '0' <= c && c <= '9' || 'a' <= c && c <= 'f':
		case 'A' <= c && c <= 'F':
			upper = true
		default:
			return "", false
		}
	}
	if upper {
		return strings.ToLower(text), true
	}
	return text, true
}
