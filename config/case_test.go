package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOneCasePerLock has rules with one lock, under which an order has to have one key.
func TestOneCasePerLock(t *testing.T) {
	rule := func(path, lock, id string) string {
		return `{name: ` + path + `, match: {methods: [POST], path: "/` + path + `/{id}"}, id: {path: id, ` + id + `}, settle: {lock: ` + lock + `}}`
	}
	const pattern = `format: pattern, pattern: "[A-Z]+"`
	for _, tt := range []struct {
		name, a, b string
		want       []string
	}{
		{"the same", rule("a", "orders", "format: uuid"), rule("b", "orders", "format: uuid, case: lower"), nil},
		{"another lock", rule("a", "orders", "format: uuid"), rule("b", "others", "format: uuid, case: upper"), nil},
		{"another", rule("a", "orders", "format: uuid"), rule("b", "orders", "format: uuid, case: upper"), []string{
			`f.yaml:5: rules[1].id.case: "upper" differs from that of rules[0].id, which has the same lock "orders": an order would have two keys; give both the same`,
		}},
		{"by default", rule("a", "orders", pattern+", case: lower"), rule("b", "orders", pattern), []string{
			`f.yaml:5: rules[1].id.case: "as_is" differs from that of rules[0].id, which has the same lock "orders": an order would have two keys; give both the same`,
		}},
		{"in one rule", `{name: a, match: {methods: [GET], path: "/a/{id}"}, id: [{path: id, format: uuid}, {header: x-id, format: uuid, case: upper}], lookup: {filter: all}}`,
			rule("b", "orders", "format: uuid"), []string{`f.yaml:4: rules[0].id[1].case: "upper" differs from that of rules[0].id[0]: a request with both is refused; give both the same`}},
		{"of a limit", `{name: a, match: {methods: [POST], path: "/a/{id}"}, id: {path: id}, settle: {lock: orders, limit: {lock: few, id: {query: m, format: uuid}}}}`,
			`{name: b, match: {methods: [POST], path: "/b/{id}"}, id: {path: id}, settle: {lock: orders, limit: {lock: few, id: {query: m, format: uuid, case: as_is}}}}`, []string{
				`f.yaml:5: rules[1].settle.limit.id.case: "as_is" differs from that of rules[0].settle.limit.id, which has the same lock "few": an order would have two keys; give both the same`,
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "redis: {mode: embedded}\nfilters: {all: {}}\nlocks: {orders: {}, others: {key: \"o:{id}\"}, few: {kind: semaphore, permits: 2, key: \"few:{id}\"}}\nrules: [" + tt.a + ",\n" + tt.b + "]\n"
			if tt.want == nil {
				mustParse(t, text, nil)
				return
			}
			got := violations(t, text, nil)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}
