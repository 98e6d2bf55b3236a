// Package lazyregexp compiles regular expressions at their first use. Compiling those that a command
// does not use would take milliseconds of its start.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression that is compiled at its first use. It is safe for concurrent use.
type Regexp struct {
	text     string
	compiled func() *regexp.Regexp
}

// New returns an expression. Its first use panics if the text is none.
func New(text string) Regexp {
	return Regexp{text, sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// String returns the text of the expression.
func (r Regexp) String() string { return r.text }

// MatchString is that of [regexp.Regexp].
func (r Regexp) MatchString(text string) bool { return r.compiled().MatchString(text) }

// Compiled returns the expression with all of its methods.
func (r Regexp) Compiled() *regexp.Regexp { return r.compiled() }
