package order

import (
	"strings"
	"testing"
)

// TestHashed has tokens whose canonical form is a keyed hash, and texts that are none.
func TestHashed(t *testing.T) {
	f, keyed, header := Format{Kind: Hashed}, Format{Kind: Hashed, Key: "secret"}, Format{Kind: Hashed, AsHeader: true}
	const session = "4F2A4F2A4F2A4F2A"
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
	for f, sets := range map[Format][][]string{
		f: {
			{"eyJx.y.Zw", "eyJx.y.Zx", "eyJx.y.Zw!"}, {"eyJx"}, {"eyJy"}, {"v1.a"}, {"v1.b"}, {"a!b"}, {"a"},
			{session + ".node1", session + ".node2", session, "4f2a4f2a4f2a4f2a!1!2", session + ".x.y"}, {session + "B.node1"},
		},
		header: {{"Bearer eyJx.y.Zw", "bearer eyJx.y.Zw==", "eyJx.y.Zw!", "Token eyJx.y.Z~w"}, {"Bearer v1.a", "v1.a"}, {"Bearer v1.b"}, {"Basic YTpi"}, {"Basic YTpj"}},
	} {
		seen := map[string]int{}
		for i, set := range sets {
			for _, text := range set {
				if j, ok := seen[hash(f, text)]; ok && i != j {
					t.Errorf("%q has the hash of %q", text, sets[j])
				}
				seen[hash(f, text)] = i
			}
		}
		if len(seen) != len(sets) {
			t.Errorf("%d sessions have %d hashes: %q", len(sets), len(seen), sets)
		}
	}
	for _, text := range []string{"a.b_c~d!e-f", strings.Repeat("a", maxHashed)} {
		hash(f, text)
	}
	for _, text := range []string{"Bearer a.b-c", "Basic YTpi+w=="} {
		hash(header, text)
		if _, ok := f.Canonical(text); ok {
			t.Errorf("%q is accepted outside of a header", text)
		}
	}
	if id, ok := f.Canonical("everybodys-prefix.4f2a4f2a4f2a4f2a4f2a"); ok {
		t.Errorf("what may be one prefix of all sessions becomes %q", id)
	}
	for _, text := range []string{"", "a%41", "a,b", "a;b", `"a"`, `a\b`, "a\tb", "ä", "a  b", "a b c", " a", "a ", "a{b}", "Basic YTpi!", "basic YTpi=", "BASIC YTpj==", "Basic YTq", "Basic a.b", "eyJpdiI6Ingi", "Bearer eyJpdiI6Ingi", strings.Repeat("a", maxHashed+1)} {
		for _, f := range []Format{f, header} {
			if id, ok := f.Canonical(text); ok {
				t.Errorf("%q becomes %q", text, id)
			}
		}
	}
}
