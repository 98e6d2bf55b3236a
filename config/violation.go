package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Violation is one thing that is wrong with a configuration.
type Violation struct {
	File    string // as given to Load; "environment" for a variable; empty for a Config made in Go
	Line    int    // from 1; 0 where there is none
	Path    string // "rules[1].id.format", or the variable's name; empty for the file as a whole
	Message string // what is wrong and what is allowed, one line
}

// String returns the violation as one line, "file:line: path: message", without
// the parts that it has not.
func (v Violation) String() string {
	var b strings.Builder
	if v.File != "" {
		b.WriteString(v.File)
		if v.Line > 0 {
			b.WriteString(":" + strconv.Itoa(v.Line))
		}
		b.WriteString(": ")
	}
	if v.Path != "" {
		b.WriteString(v.Path + ": ")
	}
	b.WriteString(v.Message)
	return b.String()
}

// InvalidError holds all that is wrong with a configuration, by line; at least
// one violation.
type InvalidError struct{ Violations []Violation }

// Error returns the violations, one a line.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		lines[i] = v.String()
	}
	return strings.Join(lines, "\n")
}

// invalid returns the violations as an error, or nil when there are none.
func invalid(violations []Violation) error {
	if len(violations) == 0 {
		return nil
	}
	// Stable and without a second key: violations of one line stay in the order
	// in which they were found.
	slices.SortStableFunc(violations, func(a, b Violation) int { return cmp.Compare(a.Line, b.Line) })
	return &InvalidError{Violations: violations}
}

// maxQuoted bounds what a message repeats of a value, in bytes.
const maxQuoted = 60

// quote returns a value for a message, on one line and cut to a length that
// still reads.
func quote(text string) string {
	if len(text) > maxQuoted {
		return strconv.Quote(strings.ToValidUTF8(text[:maxQuoted], "")) + "..."
	}
	return strconv.Quote(text)
}

// oneLine keeps an error text of another package, which may repeat the user's
// own text, to one line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
