package spelling

import (
	"regexp"
	"strings"
	"testing"
)

// TestFind has columns and patterns, and two texts that the column takes for the same.
func TestFind(t *testing.T) {
	cases := Bytewise()
	for c := byte('a'); c <= 'z'; c++ {
		cases.Same(c, c-'a'+'A')
	}
	similar := Bytewise()
	similar.Same('i', 'y')
	marks := Bytewise()
	marks.Ignored['-'] = true
	zeros := Bytewise()
	zeros.Zeros = true
	number := Bytewise()
	number.Zeros, number.Tail = true, true
	for _, tt := range []struct {
		name    string
		equal   *Equality
		pattern string
		least   int
		folds   bool
		want    string // "": there are none
	}{
		{"bytes", Bytewise(), `[A-Za-z0-9-]+`, 1, false, ""},
		{"one case", cases, `[A-Z]{2}-[0-9]+`, 1, false, ""},
		{"one case with a literal of another", cases, `ORD-[a-z]{3}`, 1, false, ""},
		{"both cases", cases, `[A-Za-z]{2}-[0-9]+`, 1, false, "AA-0 Aa-0"},
		{"both cases in a flag", cases, `(?i)ord-[0-9]+`, 1, false, "ORD-0 ORd-0"},
		{"two alternatives", cases, `[a-f]{3}|[A-F]{3}`, 1, false, "AAA aaa"},
		{"two alternatives that differ", cases, `[a-c]{3}|[D-F]{3}`, 1, false, ""},
		{"both cases that fold", cases, `[A-Za-z]{2}-[0-9]+`, 1, true, ""},
		{"long enough", cases, `[A-Za-z]+`, 4, false, "AAAA AAAa"},
		{"letters that are similar", similar, `[a-z]+`, 1, true, "i y"},
		{"anchors", cases, `^[A-Za-z]$`, 1, false, "A a"},
		{"marks", marks, `[0-9-]{1,4}`, 1, false, "- --"},
		{"marks in their place", marks, `[0-9]{2}-[0-9]{2}`, 1, false, ""},
		{"zeros", zeros, `A[0-9]+`, 1, false, "A0 A00"},
		{"no zeros in front", zeros, `A[1-9][0-9]*`, 1, false, ""},
		{"numbers", number, `[1-9][0-9]*`, 1, false, ""},
		{"zeros in front of numbers", number, `[0-9]{3,4}`, 1, false, "000 0000"},
		{"text behind numbers", number, `[1-9][0-9]{0,5}[a-z]?`, 1, false, "1 1a"},
		{"a long pattern", cases, `[0-9A-Z]{1,64}`, 1, false, ""},
		{"an ambiguous pattern", cases, `([0-9A-Z]{1,30}-?){1,4}`, 8, false, ""},
		{"a very ambiguous pattern", Bytewise(), `(?:(?:[A-Z0-9]{0,9}){0,6}){0,6}`, 1, false, ""},
		{"a very ambiguous pattern, and one case", cases, `(?:(?:[A-Z0-9]{0,9}){0,6}){0,6}`, 1, false, ""},
		{"the longest pattern", cases, `[!-~]{1,256}`, 1, true, ""},
	} {
		whole := regexp.MustCompile(`\A(?:` + tt.pattern + `)\z`)
		a, b, found, err := Find(tt.pattern, tt.least, tt.folds, tt.equal, func(a, b string) bool {
			return whole.MatchString(a) && whole.MatchString(b) && len(a) >= tt.least && len(b) >= tt.least
		})
		if got := strings.TrimSpace(a + " " + b); err != nil || got != tt.want || found != (tt.want != "") {
			t.Errorf("%s: %q, %v, %v, want %q", tt.name, got, found, err, tt.want)
		}
	}
	// Those that the caller does not accept are left out.
	tried := 0
	if _, _, found, _ := Find(`[A-Za-z]{1,2}`, 1, false, cases, func(string, string) bool { tried++; return false }); found || tried < 2 {
		t.Errorf("found %v after %d", found, tried)
	}
}
