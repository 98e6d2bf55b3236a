package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Violation is one fault of a configuration.
type Violation struct {
	File    string // as given to Load; "environment" for a variable; empty for a Config made in Go
	Line    int    // from 1; 0 without a line
	Path    string // "rules[1].id.format", or the variable's name; empty for the file as a whole
	Message string // one line: the fault, and the allowed values
}

// String returns the violation as one line, "file:line: path: message". It leaves out empty
// parts.
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

// InvalidError holds all violations of a configuration, sorted by line. There is at least one.
type InvalidError struct{ Violations []Violation }

// Error returns the violations, one in each line.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Violations))
	for i, v := range e.Violations {
		lines[i] = v.String()
	}
	return strings.Join(lines, "\n")
}

// invalid sorts the violations by line and returns them as an [*InvalidError], or nil if there
// are none.
func invalid(violations []Violation) error {
	if len(violations) == 0 {
		return nil
	}
	// The sort is stable, so violations of the same line keep the order in which they were
	// found.
	slices.SortStableFunc(violations, func(a, b Violation) int { return cmp.Compare(a.Line, b.Line) })
	return &InvalidError{Violations: violations}
}

// maxQuoted bounds the part of a value that a message quotes, in bytes.
const maxQuoted = 60

// quote returns a value in quotes for a message, on one line and cut after maxQuoted bytes.
func quote(text string) string {
	if len(text) > maxQuoted {
		return strconv.Quote(strings.ToValidUTF8(text[:maxQuoted], "")) + "..."
	}
	return strconv.Quote(text)
}

// oneLine replaces unprintable characters, such as line breaks, with spaces. It is for errors of
// other packages, which may repeat text of the user.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// Report returns problems that a caller found after [Load] as an [*InvalidError]; nil if there
// are none. It adds the line in the file at path, or the variable, that set the value at the
// problem's Path. Report reads the file again. It uses only Path and Message of each problem.
func Report(path string, getenv func(string) string, problems []Violation) error {
	if len(problems) == 0 {
		return nil
	}
	data, err := readConfiguration(path)
	if err != nil {
		return err
	}
	doc := newDocument(path)
	if tree := doc.read(data); tree != nil {
		doc.environment(tree, getenv)
	}
	doc.violations = nil // Load reported these
	for _, p := range problems {
		doc.report(p.Path, oneLine(p.Message))
	}
	return invalid(doc.violations)
}
