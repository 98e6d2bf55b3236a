package gate

import (
	"strings"
	"testing"
)

// TestPlain has texts that a log, a terminal or a page could obey.
func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "",
		"1001":                    "1001",
		"SO:2026-1_a.b":           "SO:2026-1_a.b",
		"<script>":                "%3Cscript%3E",
		"a b\"c'd\\e`f&g%h\n\x1b": "a%20b%22c%27d%5Ce%60f%26g%25h%0A%1B",
		"ä\u009b\xff":             "%C3%A4%C2%9B%FF",
		strings.Repeat("x", 256):  strings.Repeat("x", 256),
		strings.Repeat("x", 9999): strings.Repeat("x", 254) + "...",
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := plain(strings.Repeat("\xff", 9999)); len(got) > maxPlain+3 {
		t.Errorf("%d bytes", len(got))
	}
}
