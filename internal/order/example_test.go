package order

import (
	"strings"
	"testing"
	"time"
)

// TestFormatExample finds an ID of each format.
func TestFormatExample(t *testing.T) {
	formats := map[string]Format{
		"digits": {Kind: Digits, Min: 1, Max: 19}, "six digits": {Kind: Digits, Min: 6, Max: 6}, "int32": {Kind: Digits, Min: 1, Max: 19, Largest: "2147483647"},
		"text": {Kind: Digits, Min: 1, Max: 64}, "uuid": {Kind: UUID, Case: Upper}, "hashed": {Kind: Hashed, Key: "0123456789abcdef"},
		"date":      {Kind: Timestamped, Min: 18, Max: 19, Layout: "20060102150405"},
		"ms":        {Kind: Timestamped, Min: 1, Max: 19, Layout: EpochMillis, At: 2},
		"snowflake": {Kind: Snowflake, Min: 1, Max: 19, Epoch: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), Shift: 22},
	}
	for _, pattern := range []string{
		`ORD-\d{6}`, `[A-Z]{2}[0-9]+`, `(web|app)-[0-9a-f]{8}`, `.+`, `[a-z]*`, `\d{4}(-\d{4}){3}`, `(?:A|B)?\d+`, `\w{20,30}`, `[^0-9]{3}`, `a(b|cd)+e`,
	} {
		compiled, err := CompilePattern(pattern, AsIs)
		if err != nil {
			t.Fatal(err)
		}
		formats[pattern] = Format{Kind: Pattern, Min: 1, Max: 64, Pattern: compiled}
		formats["long "+pattern] = Format{Kind: Pattern, Min: 5, Max: 64, Pattern: compiled}
	}
	delete(formats, `long [^0-9]{3}`) // it has none
	for name, f := range formats {
		text, ok := f.Example()
		if _, canonical := f.Canonical(text); !ok || !canonical {
			t.Errorf("%s: %q, %v", name, text, ok)
		}
	}
	none, err := CompilePattern(strings.Repeat("é", 3), AsIs)
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := (&Format{Kind: Pattern, Min: 1, Max: 64, Pattern: none}).Example(); ok {
		t.Errorf("%q is no ID", text)
	}
}
