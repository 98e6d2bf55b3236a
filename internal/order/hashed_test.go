package order

import (
	"strings"
	"testing"
)

// TestHashed has tokens whose canonical form is a keyed hash, and texts that are none.
func TestHashed(t *testing.T) {
	f, keyed, header := Format{Kind: Hashed}, Format{Kind: Hashed, Key: "secret"}, Format{Kind: Hashed, AsHeader: true}
	hash := func(f Format, text string) string {
		id, ok := f.Canonical(text)
		if !ok || len(id) != hashedBytes || strings.Contains(id, text) {
			t.Errorf("%q becomes %q, %v", text, id, ok)
		}
		return id
	}
	if hash(f, "Abc") != hash(f, "aBC") || hash(f, "abc") != hash(header, "abc") {
		t.Error("one token has two hashes")
	}
	if hash(f, "abc") == hash(f, "abd") || hash(f, "abc") == hash(keyed, "abc") {
		t.Error("two tokens have one hash")
	}
	for _, text := range []string{"a.b_c~d!e-f", strings.Repeat("a", maxHashed)} {
		hash(f, text)
	}
	for _, text := range []string{"Bearer a.b-c", "Basic YTpi+/=="} {
		hash(header, text)
		if _, ok := f.Canonical(text); ok {
			t.Errorf("%q is accepted outside of a header", text)
		}
	}
	for _, text := range []string{"", "a%41", "a,b", "a;b", `"a"`, `a\b`, "a\tb", "ä", "a  b", " a", "a ", "a{b}", strings.Repeat("a", maxHashed+1)} {
		for _, f := range []Format{f, header} {
			if id, ok := f.Canonical(text); ok {
				t.Errorf("%q becomes %q", text, id)
			}
		}
	}
}
