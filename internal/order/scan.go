package order

import (
	"bytes"
	"unicode/utf8"
)

// jsonScan is the quick reader of a JSON body: one pass, no allocation. It accepts only
// plain bodies, as nearly all are. For anything else (an escape in a name, a possible
// alias, an error) it gives up, and readJSON uses a complete parser. If jsonScan accepts a
// body, the parser accepts it with the same IDs: a fuzz test compares the two.
type jsonScan struct {
	rule *compiled
	body []byte
	pos  int

	names  [maxNames]span // of the open objects, outer ones first
	open   int            // how many of names are in use
	values [maxLocations]span
	found  [maxLocations]bool
}

type span struct{ from, to int }

// maxNames bounds the members of all open objects; with more, the parser decides. The scan
// compares all names with one another, which is quick for a few.
const maxNames = 64

// scanJSON reads a body and records the IDs. It returns false if the parser must decide.
func (r *compiled) scanJSON(body []byte, into []idText) bool {
	for i := range r.IDs {
		if r.IDs[i].In == InJSON && r.IDs[i].List {
			return false
		}
	}
	s := jsonScan{rule: r, body: body}
	s.peek()
	if !s.object(0, 0, true) {
		return false
	}
	if s.peek(); s.pos != len(body) || !utf8.Valid(body) {
		return false
	}
	for i := range r.IDs {
		if s.found[i] {
			v := s.values[i]
			into[i] = idText{text: string(body[v.from:v.to]), times: into[i].times + 1, offset: v.from}
		}
	}
	return true
}

// peek skips blanks and returns the next byte, 0 at the end.
func (s *jsonScan) peek() byte {
	if s.pos < len(s.body) {
		if c := s.body[s.pos]; c > ' ' {
			return c
		}
	}
	return s.skip()
}

func (s *jsonScan) skip() byte {
	for ; s.pos < len(s.body); s.pos++ {
		switch c := s.body[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// accept consumes the next byte if it is c. It does not skip blanks.
func (s *jsonScan) accept(c byte) bool {
	if s.pos < len(s.body) && s.body[s.pos] == c {
		s.pos++
		return true
	}
	return false
}

// object reads an object at a nesting depth. While onPath, its members may be step level of
// the path to an ID.
func (s *jsonScan) object(depth, level int, onPath bool) bool {
	if depth >= maxDepth || !s.accept('{') {
		return false
	}
	first := s.open
	if s.peek() == '}' {
		s.pos++
		return true
	}
	for {
		if s.peek() != '"' {
			return false
		}
		name, ok := s.stringBody(false)
		if !ok || !s.isNew(first, name) || s.peek() != ':' {
			return false
		}
		s.pos++
		s.peek()
		if !s.member(name, depth, level, onPath) {
			return false
		}
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			s.open = first // its names are forgotten
			return true
		default:
			return false
		}
	}
}

// isNew records a name, and reports whether it is new in its object.
func (s *jsonScan) isNew(first int, name span) bool {
	if s.open == maxNames {
		return false
	}
	for _, n := range s.names[first:s.open] {
		if n.to-n.from == name.to-name.from && string(s.body[n.from:n.to]) == string(s.body[name.from:name.to]) {
			return false
		}
	}
	s.names[s.open] = name
	s.open++
	return true
}

func (s *jsonScan) member(name span, depth, level int, onPath bool) bool {
	raw := s.body[name.from:name.to]
	if len(raw) > 0 && !s.rule.firstBytes[raw[0]] {
		return s.value(depth) // irrelevant to every ID
	}
	if !onPath {
		return s.isNoID(raw) && s.value(depth)
	}
	if !s.isElsewhere(raw, level) || bytes.IndexByte(raw, '.') >= 0 {
		return false
	}
	descend := false
	for i := range s.rule.IDs {
		id := &s.rule.IDs[i]
		if id.In != InJSON || level >= len(id.Members) {
			if level == 0 && !foldsDifferently(raw, s.rule.aliases[i]) {
				return false
			}
			continue
		}
		switch last := level+1 == len(id.Members); {
		case string(raw) == id.Members[level] && last:
			return s.readID(i)
		case string(raw) == id.Members[level]:
			descend = true
		case !foldsDifferently(raw, id.Members[level]), level == 0 && !foldsDifferently(raw, s.rule.aliases[i]):
			return false
		}
	}
	if descend {
		// With two IDs below different members, their paths must be told apart. That is
		// rare: leave it to the parser.
		return len(s.rule.IDs) == 1 && s.object(depth+1, level+1, true)
	}
	return s.value(depth)
}

// isNoID reports whether a name is certainly not an ID's, for backends where that matters.
func (s *jsonScan) isNoID(raw []byte) bool {
	if !profiles[s.rule.Backend].anyDepth {
		return true
	}
	for i := range s.rule.IDs {
		if s.rule.IDs[i].In == InJSON && !foldsDifferently(raw, s.rule.aliases[i]) {
			return false
		}
	}
	return true
}

// isElsewhere is isNoID for a member on the path to an ID. It accepts the ID itself.
func (s *jsonScan) isElsewhere(raw []byte, level int) bool {
	for i := range s.rule.IDs {
		id := &s.rule.IDs[i]
		if id.In == InJSON && level+1 == len(id.Members) && string(raw) == id.Members[level] {
			return true
		}
	}
	return s.isNoID(raw)
}

// foldsDifferently reports whether a name certainly folds to another name than other. It is
// false for a name that does not begin with a letter.
func foldsDifferently(raw []byte, other string) bool {
	if len(raw) == 0 || other == "" {
		return false
	}
	a, b := raw[0]|0x20, other[0]|0x20
	if a < 'a' || a > 'z' || b < 'a' || b > 'z' {
		return false
	}
	if a != b {
		return true
	}
	return foldName(string(raw)) != foldName(other)
}

// readID records the value of an ID.
func (s *jsonScan) readID(i int) bool {
	kind := s.rule.IDs[i].JSONType
	from := s.pos
	switch {
	case s.pos < len(s.body) && s.body[s.pos] == '"' && kind != OnlyNumber:
		v, ok := s.stringBody(false)
		s.values[i], s.found[i] = v, ok
	case kind != OnlyString && s.number():
		s.values[i], s.found[i] = span{from, s.pos}, true
	}
	return s.found[i]
}

func (s *jsonScan) value(depth int) bool {
	if s.pos == len(s.body) {
		return false
	}
	switch c := s.body[s.pos]; {
	case c == '"':
		_, ok := s.stringBody(true)
		return ok
	case c == '{':
		return s.object(depth+1, 0, false)
	case c == '[':
		return s.array(depth + 1)
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *jsonScan) array(depth int) bool {
	if depth >= maxDepth {
		return false
	}
	s.pos++
	if s.peek() == ']' {
		s.pos++
		return true
	}
	for {
		s.peek()
		if !s.value(depth) {
			return false
		}
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return true
		default:
			return false
		}
	}
}

func (s *jsonScan) literal(word string) bool {
	if len(s.body)-s.pos < len(word) || string(s.body[s.pos:s.pos+len(word)]) != word {
		return false
	}
	s.pos += len(word)
	return true
}

// stringBody reads a string and returns the text between its quotes. It accepts only
// escapes of one letter.
func (s *jsonScan) stringBody(escapes bool) (span, bool) {
	if !s.accept('"') {
		return span{}, false
	}
	from, body := s.pos, s.body
	for i := from; i < len(body); i++ {
		if !stringEnds[body[i]] {
			continue
		}
		switch body[i] {
		case '"':
			s.pos = i + 1
			return span{from, i}, true
		case '\\':
			if i++; !escapes || i == len(body) || !shortEscapes[body[i]] {
				return span{}, false
			}
		default: // a control byte
			return span{}, false
		}
	}
	return span{}, false
}

// stringEnds marks the bytes at which reading a string stops. shortEscapes marks the
// letters of one-letter escapes.
var stringEnds, shortEscapes = func() (ends, short [256]bool) {
	for c := range ' ' {
		ends[c] = true
	}
	ends['"'], ends['\\'] = true, true
	for _, c := range []byte(`"\/bfnrt`) {
		short[c] = true
	}
	return ends, short
}()

// number reads a number of RFC 8259, 6.
func (s *jsonScan) number() bool {
	s.accept('-')
	if !s.accept('0') && !s.digits() {
		return false
	}
	if s.accept('.') && !s.digits() {
		return false
	}
	if s.accept('e') || s.accept('E') {
		if !s.accept('+') {
			s.accept('-')
		}
		return s.digits()
	}
	return true
}

func (s *jsonScan) digits() bool {
	i, body := s.pos, s.body
	for i < len(body) && '0' <= body[i] && body[i] <= '9' {
		i++
	}
	some := i > s.pos
	s.pos = i
	return some
}
