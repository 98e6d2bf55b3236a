package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLiteralNames has keys of locks with braces that name no part: some are refused, some are
// warned of, and others are hash tags without doubt.
func TestLiteralNames(t *testing.T) {
	const (
		plain   = `settle: {lock: a}`
		once    = `settle: {lock: a, once: {}}`
		undo    = `settle: {lock: a, once: {name: s}}}` + "\n  - " + `{name: undo, match: {methods: [POST], path: "/u/{id}"}, id: {path: id}, settle: {lock: a, once: {forget: true}}`
		byKey   = `settle: {lock: a}, once: {by: body, scope: []}`
		shop    = `parts: {shop: {header: x-shop}}, settle: {lock: a}`
		limited = `settle: {lock: b, limit: {lock: a, id: {header: x-merchant}}}`
		other   = "\n  - " + `{name: l, match: {methods: [GET], path: "/o/{id}"}, id: {path: id}, parts: {tenant: {header: x-tenant}}, lookup: {filter: orders}`
	)
	const refused = ` has {tenant} in it, and no rule with this lock has such a part, so it would be the same text for all orders: write the part into parts of rule "s", or leave the braces out`
	const warned = `has {tenant} in it, and no rule with this lock has such a part: it is the same text for all orders`
	for _, tt := range []struct {
		name, key, rule string
		want            string // "": no line
		bad             bool
	}{
		{"a settlement", "order:lock:{tenant}:{id}", plain, warned, false},
		{"stored answers", "order:lock:{tenant}:{id}", once, refused, true},
		{"forgotten answers", "order:lock:{tenant}:{id}", undo, refused, true},
		{"answers by a key", "order:lock:{tenant}:{id}", byKey, warned, false},
		{"another part", "order:{tenant}:{shop}/{id}", shop, refused, true},
		{"a limit", "merchant:{tenant}:{id}", limited, warned, false},
		{"a hash tag with stored answers", "{tenant}:{id}", once, warned, false},
		{"the name of a part at the beginning", "{tenant}:{id}", once + "}" + other, refused, true},
		{"a hash tag that is no name", "{order:lock}:{id}", once, "", false},
		{"around the ID", "order:lock:{{id}}", once, "", false},
		{"in upper case", "order:{SHOP}:{id}", once, "", false},
		{"a part", "order:{shop}/{id}", shop, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f.yaml")
			text := "filters: {orders: {parts: [tenant]}}\n"
			if !strings.Contains(tt.rule, "lookup") {
				text = "\n"
			}
			kind := ""
			if tt.rule == limited {
				kind = ", kind: semaphore, permits: 2"
			}
			text += "locks: {a: {key: '" + tt.key + "'" + kind + "}, b: {key: 'b:{id}'}}\nrules:\n  - {name: s, match: {methods: [POST], path: \"/o/{id}\"}, id: {path: id}, " + tt.rule + "}\n"
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, aside, err := loadWith(path, Options{})
			var got, want string
			switch {
			case err != nil:
				got = err.Error()
			case len(aside.Parts) > 0:
				got = aside.Parts[0].String()
			}
			if tt.want != "" {
				want = path + ":2: locks.a.key: " + tt.want
			}
			if tt.bad {
				want = path + `:2: locks.a.key: "` + tt.key + `"` + tt.want
			}
			if diff := cmp.Diff(want, got); diff != "" || (err != nil) != tt.bad {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
