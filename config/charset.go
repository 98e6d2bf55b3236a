package config

import (
	"regexp/syntax"
	"strings"
	"unicode"
)

// charset is a set of ASCII characters, a bit for each.
type charset [2]uint64

func (s *charset) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *charset) has(c byte) bool { return c < 0x80 && s[c>>6]>>(c&63)&1 == 1 }
func (s *charset) union(o charset) { s[0], s[1] = s[0]|o[0], s[1]|o[1] }
func (s *charset) meets(o charset) bool {
	return s[0]&o[0]|s[1]&o[1] != 0
}

func charsetOf(chars string) (s charset) {
	for i := range len(chars) {
		s.add(chars[i])
	}
	return s
}

var (
	digitChars = charsetOf("0123456789")
	uuidChars  = map[string]charset{
		CaseLower: charsetOf("0123456789abcdef-"), CaseUpper: charsetOf("0123456789ABCDEF-"), CaseAsIs: charsetOf("0123456789abcdefABCDEF-"),
	}
	// safeChars are those that package order accepts in an ID of any format.
	safeChars = func() (s charset) {
		for c := byte('!'); c < 0x7f; c++ {
			if strings.IndexByte(`%;,/\?#&+"{}`, c) < 0 {
				s.add(c)
			}
		}
		return s
	}()
	// anyID stands for some character of any ID, and is none of a literal text. It is the only
	// one in the IDs of a lock that no rule uses.
	anyID = charset{1, 0}
)

// charsOf returns the characters that IDs of an entry can have. For a pattern it may return
// more: those of any part of the expression.
func charsOf(id ID) charset {
	switch id.Format {
	case FormatUUID:
		return uuidChars[id.Case]
	case FormatPattern:
		flags := syntax.Perl
		if id.FoldsCase() {
			flags |= syntax.FoldCase
		}
		re, err := syntax.Parse(id.Pattern, flags)
		if err != nil {
			return safeChars
		}
		s := charsOfExpression(re)
		return charset{s[0] & safeChars[0], s[1] & safeChars[1]}
	}
	return digitChars
}

func charsOfExpression(re *syntax.Regexp) (s charset) {
	switch re.Op {
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return safeChars
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			addRune(&s, r)
			for other := unicode.SimpleFold(r); re.Flags&syntax.FoldCase != 0 && other != r; other = unicode.SimpleFold(other) {
				addRune(&s, other)
			}
		}
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= min(re.Rune[i+1], unicode.MaxASCII); r++ {
				addRune(&s, r)
			}
		}
	}
	for _, sub := range re.Sub {
		s.union(charsOfExpression(sub))
	}
	return s
}

func addRune(s *charset, r rune) {
	if r <= unicode.MaxASCII {
		s.add(byte(r))
	}
}

// keyToken is a literal character of a key, or a variable: one or more characters of a set.
type keyToken struct {
	char  byte
	chars *charset // nil: a literal character
}

// tokens returns the tokens of a key.
func (t KeyTemplate) tokens(chars map[string]charset) (all []keyToken) {
	for i, text := range t.Texts {
		for n := range len(text) {
			all = append(all, keyToken{char: text[n]})
		}
		if i < len(t.Names) {
			s := chars[t.Names[i]]
			s.union(anyID)
			all = append(all, keyToken{chars: &s})
		}
	}
	return all
}

// compatible reports whether a character can belong to both tokens.
func (k keyToken) compatible(o keyToken) bool {
	switch {
	case k.chars != nil && o.chars != nil:
		return k.chars.meets(*o.chars)
	case k.chars != nil:
		return k.chars.has(o.char)
	case o.chars != nil:
		return o.chars.has(k.char)
	}
	return k.char == o.char
}

// meet reports whether two templates can have the same key. It compares characters and ignores
// lengths and patterns, so it may return true for templates that cannot.
func meet(a, b []keyToken) bool {
	// A state is a pair of the tokens that the next character belongs to.
	type state struct{ a, b int }
	seen, queue := make([]bool, len(a)*len(b)), append(make([]state, 0, len(a)+len(b)), state{})
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if s.a == len(a) || s.b == len(b) {
			if s.a == len(a) && s.b == len(b) {
				return true
			}
			continue
		}
		at := s.a*len(b) + s.b
		if seen[at] || !a[s.a].compatible(b[s.b]) {
			continue
		}
		seen[at] = true
		queue = append(queue, state{s.a + 1, s.b + 1})
		if a[s.a].chars != nil {
			queue = append(queue, state{s.a, s.b + 1})
		}
		if b[s.b].chars != nil {
			queue = append(queue, state{s.a + 1, s.b})
		}
		if a[s.a].chars != nil && b[s.b].chars != nil {
			queue = append(queue, state{s.a, s.b})
		}
	}
	return false
}

// isUnambiguous reports whether different values of the variables always make different keys.
// It suffices that one can find the end of each variable but the last from the front: the
// character behind it is not one of the variable's. Or its beginning, from the back.
func (t KeyTemplate) isUnambiguous(chars map[string]charset) (name, next string, ok bool) {
	fromFront, fromBack := true, true
	for i := 1; i < len(t.Names); i++ {
		text := t.Texts[i]
		before, after := chars[t.Names[i-1]], chars[t.Names[i]]
		if text == "" || before.has(text[0]) {
			if fromFront {
				name, next = t.Names[i-1], text
			}
			fromFront = false
		}
		if text == "" || after.has(text[len(text)-1]) {
			fromBack = false
		}
	}
	return name, next, fromFront || fromBack
}
