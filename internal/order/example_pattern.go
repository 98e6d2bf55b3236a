package order

import (
	"regexp/syntax"
	"strings"
)

const (
	// maxExtra bounds the repetitions beyond the least that are tried, and maxVariants the branches of
	// alternatives.
	maxExtra, maxVariants = 64, 16
	// maxExample bounds a text that is tried, in bytes.
	maxExample = 1024
)

// examplePattern returns a text that the pattern matches. It tries texts of growing length, and the
// branches of alternatives together: by far not all texts.
func (f *Format) examplePattern() (text string, ok bool) {
	tree, err := syntax.Parse(f.Pattern.String(), syntax.Perl)
	if err != nil {
		return "", false
	}
	tree = tree.Simplify()
	for variant := range maxVariants {
		for extra := range maxExtra {
			g := generator{extra: extra, variant: variant}
			g.write(tree)
			if _, ok := f.Canonical(g.text.String()); ok {
				return g.text.String(), true
			}
		}
	}
	return "", false
}

// generator writes a text that a pattern matches.
type generator struct {
	text    strings.Builder
	extra   int // repetitions that may still be added to the least
	variant int // of alternatives
}

func (g *generator) write(re *syntax.Regexp) {
	if g.text.Len() > maxExample {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		g.text.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		g.text.WriteRune(exampleRune(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		g.text.WriteByte('9')
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			g.write(sub)
		}
	case syntax.OpAlternate:
		g.write(re.Sub[g.variant%len(re.Sub)])
	case syntax.OpPlus:
		g.write(re.Sub[0])
		g.more(re.Sub[0], -1)
	case syntax.OpStar:
		g.more(re.Sub[0], -1)
	case syntax.OpQuest:
		g.more(re.Sub[0], 1)
	}
}

// more repeats a part as often as is allowed.
func (g *generator) more(re *syntax.Regexp, most int) {
	for ; g.extra > 0 && most != 0; most-- {
		g.extra--
		g.write(re)
	}
}

// exampleRune returns a character of a class: a large digit or letter, if there is one.
func exampleRune(ranges []rune) rune {
	for _, c := range "987654321zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA0-_.~!$*:@='()" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= c && c <= ranges[i+1] {
				return c
			}
		}
	}
	if len(ranges) == 0 {
		return '9'
	}
	return ranges[0]
}
