package source

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

const (
	// MaxIDBytes is the length of the longest ID.
	MaxIDBytes = 256

	// maxListedBad bounds the bad lines or rows in a report.
	maxListedBad = 5
)

// Report is the result of a read.
type Report struct {
	IDs     int64 // passed to the caller
	Skipped int64 // lines or rows with content, but without a usable ID
	First   []Bad // the first few of those
	// Numbered means that the IDs are integers and the table is read in their order: see
	// [Mark.Number]. Only [Table.Tail] sets it.
	Numbered bool
}

// Bad is a line or a row without a usable order ID.
type Bad struct {
	Where  string // "line 7", "id = 7"
	Reason string
}

// String returns "line 7: not UTF-8".
func (b Bad) String() string { return b.Where + ": " + b.Reason }

// addBad counts a bad line or row. It calls where only for those in the report.
func (r *Report) addBad(where func() string, reason string) {
	r.Skipped++
	if len(r.First) < maxListedBad {
		r.First = append(r.First, Bad{Where: where(), Reason: reason})
	}
}

// checkID returns the reason why an ID is no order's, "" if it may be one.
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

// isPlainASCII reports whether an ID has only printable ASCII characters. Nearly all have, and this
// is five times as fast as a check of runes.
func isPlainASCII(id []byte) bool {
	for _, c := range id {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// invalidID is the reason for an ID that the caller's Valid refuses.
func invalidID(id []byte) string {
	return fmt.Sprintf("%q does not have the form of an order ID", truncate(id))
}

// truncate keeps log lines short.
func truncate(text []byte) []byte {
	const enough = 40
	return text[:min(len(text), enough)]
}
