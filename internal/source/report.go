package source

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

const (
	// MaxIDBytes is the length of the longest ID.
	MaxIDBytes = 256

	// namedBad is how many of those without an ID are named.
	maxListedBad = 5
)

// Report says what a read came to.
type Report struct {
	IDs     int64 // given to the caller
	Skipped int64 // lines or rows that hold something, but no ID
	First   []Bad // the first few of those
	// Numbered says that the IDs are whole numbers in the order of which the table is read:
	// see [Mark.Number]. Only [Table.Tail] says it.
	Numbered bool
}

// Bad is a line or a row without an ID that an order can have.
type Bad struct {
	Where  string // "line 7", "id = 7"
	Reason string
}

// String returns "line 7: not UTF-8".
func (b Bad) String() string { return b.Where + ": " + b.Reason }

// bad counts one. Where is asked only of those that are named.
func (r *Report) addBad(where func() string, reason string) {
	r.Skipped++
	if len(r.First) < maxListedBad {
		r.First = append(r.First, Bad{Where: where(), Reason: reason})
	}
}

// malformed returns why an ID can be no order's, "" if it can.
func checkID(id []byte) string {
	switch {
	case len(id) == 0:
		return "the ID is empty"
	case len(id) > MaxIDBytes:
		return fmt.Sprintf("an ID of more than %d bytes", MaxIDBytes)
	case isPlainASCII(id):
		return ""
	case bytes.ContainsFunc(id, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "control characters"
	case !utf8.Valid(id):
		return "not UTF-8"
	}
	return ""
}

// plain reports whether there are only printable ASCII characters: nearly always,
// and five times as fast as to look at runes.
func isPlainASCII(id []byte) bool {
	for _, c := range id {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// strange is the reason of an ID that the caller's Valid refuses.
func invalidID(id []byte) string {
	return fmt.Sprintf("%q does not have the form of an order ID", truncate(id))
}

// truncate keeps a line of the log readable.
func truncate(text []byte) []byte {
	const enough = 40
	return text[:min(len(text), enough)]
}
