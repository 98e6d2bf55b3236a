package bundle

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ordergate/ordergate/internal/lazyregexp"
)

const (
	hidden = "(hidden)"
	// shortSecret is the length below which a secret is hidden as a whole word only: as a part of
	// words it would be everywhere.
	shortSecret = 5
)

// patterns match what looks like a secret, whichever it is, as their last group.
var patterns = []lazyregexp.Regexp{
	lazyregexp.New(`(//)([^/\s"'@]*:[^/\s"'@]*)@`),                                               // of a URL
	lazyregexp.New(`(^|[\s"'=])([^\s"'=:@/]+:[^\s"'@]+)@[a-z0-9]*\(`),                            // of MySQL's data source name
	lazyregexp.New(`(?i)(\b(?:password|passwd|pwd)[ \t]*[=:][ \t]*)("[^"]*"|'[^']*'|[^\s&"']+)`), // of PostgreSQL's, and of YAML
	lazyregexp.New(`(?i)(\bbearer[ \t]+)([A-Za-z0-9._~+/=-]+)`),
}

// Scrubber removes secrets from texts.
type Scrubber struct {
	words *strings.Replacer
	short *regexp.Regexp // nil: there is none
}

// NewScrubber returns a scrubber that removes texts, and what looks like a password. It finds
// them in URLs, in quotes and in JSON, too.
func NewScrubber(secrets []string) *Scrubber {
	s := &Scrubber{}
	var forms, short []string
	for _, secret := range secrets {
		if secret == "" || strings.Contains(hidden, secret) {
			continue
		}
		if len(secret) < shortSecret {
			short = append(short, regexp.QuoteMeta(secret))
			continue
		}
		quoted, encoded := strconv.Quote(secret), []byte(nil)
		encoded, _ = json.Marshal(secret) // never fails for a text
		forms = append(forms, secret, quoted[1:len(quoted)-1], string(encoded[1:len(encoded)-1]), url.QueryEscape(secret), url.PathEscape(secret))
	}
	// The longest first, or what is left of it would show.
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, form := range slices.Compact(forms) {
		pairs = append(pairs, form, hidden)
	}
	s.words = strings.NewReplacer(pairs...)
	if short != nil {
		s.short = regexp.MustCompile(`(^|[^\pL\pN])(` + strings.Join(short, "|") + `)($|[^\pL\pN])`)
	}
	return s
}

// Scrub returns a text without secrets.
func (s *Scrubber) Scrub(text []byte) []byte {
	out := s.words.Replace(string(text))
	for _, pattern := range patterns {
		p := pattern.Compiled()
		out = p.ReplaceAllStringFunc(out, func(found string) string {
			at := p.FindStringSubmatchIndex(found)
			return found[:at[4]] + hidden + found[at[5]:]
		})
	}
	for range 2 { // two of them may share the character between them
		if s.short == nil {
			break
		}
		out = s.short.ReplaceAllString(out, "${1}"+hidden+"${3}")
	}
	return []byte(out)
}
