package locking

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/ordergate/ordergate/config"
)

func TestComposedKeys(t *testing.T) {
	for _, tt := range []struct {
		template string
		names    []string
		observe  bool
		id, want string
	}{
		{"order:lock:{id}", nil, false, "42", "order:lock:42"},
		{"order:lock:{tenant}:{id}", []string{"tenant"}, false, "acme/42", "order:lock:acme:42"},
		{"order:lock:{tenant}:{id}", []string{"tenant"}, true, "acme/42", "order:lock:acme:42:observe"},
		{"order:{id}:of:{tenant}", []string{"tenant"}, false, "acme/42", "order:42:of:acme"},
		{"order:lock:{{tenant}:{id}}", []string{"tenant"}, false, "acme/42", "order:lock:{acme:42}"},
		{"{orders}:{tenant}:{shop}:{id}", []string{"tenant", "shop"}, false, "acme/7/42", "{orders}:acme:7:42"},
		{"{orders}:{shop}:{id}:{tenant}", []string{"tenant", "shop"}, false, "acme/7/42", "{orders}:7:42:acme"},
		{"order:lock:{tenant}:{id}", nil, false, "42", "order:lock:{tenant}:42"},
		{"order:lock:{tenant}:{id}", nil, false, probeID, "order:lock:{tenant}:" + probeID},
		{"order:lock:{tenant}:{id}", []string{"tenant"}, false, "acme/{id}", "order:lock:acme:{id}"}, // of many
	} {
		l := newGateLocker(config.Lock{Key: tt.template}, 0, tt.observe).withParts(tt.names)
		if got := l.Key(tt.id); got != tt.want {
			t.Errorf("%s: key %q of %q, want %q", tt.template, got, tt.id, tt.want)
		}
	}
}

// TestComposedKeysDiffer draws pairs of orders of two tenants: with a character between them
// that neither can have, different orders have different keys.
func TestComposedKeysDiffer(t *testing.T) {
	l := newGateLocker(config.Lock{Key: "k:{tenant}/{id}"}, 0, false).withParts([]string{"tenant"})
	text := rapid.StringMatching(`[ab:]{1,3}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "tenant")+"/"+text.Draw(t, "id"), text.Draw(t, "tenant")+"/"+text.Draw(t, "id")
		if (l.Key(a) == l.Key(b)) != (a == b) {
			t.Fatalf("%q and %q have keys %q and %q", a, b, l.Key(a), l.Key(b))
		}
	})
}

func BenchmarkKey(b *testing.B) {
	for name, parts := range map[string][]string{"none": nil, "one": {"tenant"}} {
		template, id := "order:lock:{id}", "1234567890"
		if parts != nil {
			template, id = "order:lock:{tenant}:{id}", "acme/1234567890"
		}
		b.Run("parts="+name, func(b *testing.B) {
			l := newGateLocker(config.Lock{Key: template}, 0, false).withParts(parts)
			b.ReportAllocs()
			for b.Loop() {
				if l.Key(id) == "" {
					b.Fatal("no key")
				}
			}
		})
	}
}
