// Package spelling finds two texts that a database takes for one although a rule takes them for two
// orders. [Equality] describes the database's column, and [Find] searches the texts that a pattern
// accepts. To ask the database is left to package source.
package spelling

import (
	"fmt"
	"regexp/syntax"
	"strings"
)

// ASCII is the number of characters that an Equality knows. IDs have no others.
const ASCII = 128

// Equality describes which texts a column takes for the same value.
type Equality struct {
	Class   [ASCII]byte // characters that count as the same have the same
	Ignored [ASCII]bool // characters that do not count
	Zeros   bool        // zeros in front of a number do not count
	Tail    bool        // text behind a number does not count
}

// Bytewise returns the Equality of a column to which different texts are different.
func Bytewise() *Equality {
	var e Equality
	for c := range e.Class {
		e.Class[c] = byte(c)
	}
	return &e
}

// Column is a column of a database.
type Column struct {
	Name     string
	Type     string // with its collation
	IsNumber bool
	Equality Equality
	// Same asks the database whether the column takes two texts for the same.
	Same func(one, other string) (bool, error)
}

// Same makes two characters the same.
func (e *Equality) Same(a, b byte) {
	from, to := e.Class[b], e.Class[a]
	for c := range e.Class {
		if e.Class[c] == from {
			e.Class[c] = to
		}
	}
}

// maxSteps bounds a search, to about a second.
const maxSteps = 1 << 22

// state is a place in the search: two texts that the column takes for the same so far. They have
// come to an instruction each.
type state struct {
	a, b   uint32
	length int  // of the first, at most the least length
	differ bool // they are two orders
	digit  bool // they end with a digit
	tail   bool // the second one has text behind a number
}

// step is how the search came to a state. A character 0 is none.
type step struct {
	from state
	a, b byte
}

// search has what a search needs of an expression.
type search struct {
	prog   *syntax.Prog
	equal  *Equality
	least  int
	folds  bool
	same   [ASCII][]byte // the characters that are the same as one
	reach  map[uint32]*place
	steps  map[state]step
	queue  []state
	taken  int // steps
	accept func(a, b string) bool
}

// place is where an expression may go from an instruction without a character.
type place struct {
	next [ASCII][]uint32 // by the character that follows
	end  bool            // the text may end
}

// Find returns two texts that an expression matches and that a column takes for the same. The
// expression is one of RE2 for a whole text. Least is the length of the shortest text, in bytes.
// With folds, texts that differ in case alone are one order. Find calls accept for each pair, and
// returns the first one for which it is true; false: there is none, or the search was too long.
// A column to which different texts are different has none.
func Find(expression string, least int, folds bool, equal *Equality, accept func(a, b string) bool) (a, b string, found bool, err error) {
	if *equal == *Bytewise() {
		return "", "", false, nil
	}
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return "", "", false, fmt.Errorf("parsing a pattern: %w", err)
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return "", "", false, fmt.Errorf("compiling a pattern: %w", err)
	}
	s := &search{prog: prog, equal: equal, least: least, folds: folds, accept: accept, reach: make(map[uint32]*place), steps: make(map[state]step)}
	for c := byte('!'); c < ASCII-1; c++ {
		for d := byte('!'); d < ASCII-1; d++ {
			if equal.Class[c] == equal.Class[d] {
				s.same[c] = append(s.same[c], d)
			}
		}
	}
	start := state{a: uint32(prog.Start), b: uint32(prog.Start)}
	s.steps[start] = step{}
	s.queue = append(s.queue, start)
	for i := 0; i < len(s.queue) && s.taken < maxSteps; i++ {
		if a, b, found = s.visit(start, s.queue[i]); found {
			return a, b, true, nil
		}
	}
	return "", "", false, nil
}

// visit adds the states behind one.
func (s *search) visit(start, at state) (a, b string, found bool) {
	one, two := s.from(at.a), s.from(at.b)
	if at.differ && one.end && two.end && at.length >= s.least {
		if a, b = s.texts(start, at); s.accept(a, b) {
			return a, b, true
		}
	}
	for c := byte('!'); c < ASCII-1; c++ {
		if isDigit := '0' <= c && c <= '9'; !at.tail {
			for _, d := range s.same[c] {
				next := at
				next.length, next.digit = min(at.length+1, s.least), isDigit
				next.differ = at.differ || c != d && !(s.folds && strings.EqualFold(string(c), string(d)))
				s.both(at, next, one.next[c], two.next[d], c, d)
			}
		}
		next := at
		next.differ = true
		next.tail = at.tail || s.equal.Tail && at.digit && (c < '0' || c > '9')
		if next.tail || s.equal.Ignored[c] || s.equal.Zeros && c == '0' && !at.digit {
			s.both(at, next, []uint32{at.a}, two.next[c], 0, c)
		}
	}
	return "", "", false
}

// both adds a state for each pair of instructions.
func (s *search) both(from, next state, ones, twos []uint32, c, d byte) {
	for _, next.a = range ones {
		if s.taken >= maxSteps {
			return
		}
		s.taken += len(twos)
		for _, next.b = range twos {
			if _, known := s.steps[next]; !known {
				s.steps[next] = step{from, c, d}
				s.queue = append(s.queue, next)
			}
		}
	}
}

// texts returns the texts of a state.
func (s *search) texts(start, at state) (a, b string) {
	for at != start {
		by := s.steps[at]
		if by.a != 0 {
			a = string(by.a) + a
		}
		if by.b != 0 {
			b = string(by.b) + b
		}
		at = by.from
	}
	return a, b
}

// from returns the place of an instruction.
func (s *search) from(pc uint32) *place {
	if p, known := s.reach[pc]; known {
		return p
	}
	p := &place{}
	seen := make(map[uint32]bool)
	var look func(pc uint32)
	look = func(pc uint32) {
		if seen[pc] {
			return
		}
		seen[pc] = true
		switch i := &s.prog.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			look(i.Out)
			look(i.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth: // accept checks the whole text
			look(i.Out)
		case syntax.InstMatch:
			p.end = true
		case syntax.InstFail:
		default:
			for c := range p.next {
				if i.MatchRune(rune(c)) {
					p.next[c] = append(p.next[c], i.Out)
				}
			}
		}
	}
	look(pc)
	s.reach[pc] = p
	return p
}
