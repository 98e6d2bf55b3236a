package gate

import (
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestSealedTargets seals any target: it is revealed as it was, and no backend sees a part of it as
// a parameter, or in another path.
func TestSealedTargets(t *testing.T) {
	seal := NewSeal()
	rapid.Check(t, func(t *rapid.T) {
		target := "/" + string(rapid.SliceOf(rapid.Byte()).Draw(t, "target"))
		path := seal.Hide("POST", target)
		if got, ok := seal.Reveal("POST", path); !ok || got != target {
			t.Fatalf("%q is revealed as %q, %t", target, got, ok)
		}
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Path != "/.ordergate/not-bracketed" || len(u.Query()) != 2 || u.Query().Get("ordergate") != target {
			t.Fatalf("%q: %v, %v", path, u, err)
		}
		if strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q is not printable", path)
		}
		if _, ok := seal.Reveal("GET", path); ok {
			t.Fatal("revealed for another method")
		}
	})
}
