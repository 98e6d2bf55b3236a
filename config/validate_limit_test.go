package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// limitIn returns a file with one rule that has a limit.
func limitIn(rule, limit string) string {
	return `locks: {orders: {}, merchants: {kind: semaphore, permits: 5, key: "m:{id}"}}
rules: [{name: a, match: {methods: [POST], path: "/{shop}/o/{id}"}, ` + rule + `, settle: {lock: orders, limit: ` + limit + `}}]
`
}

func TestLimits(t *testing.T) {
	const byPath = `id: {path: id}`
	for _, tt := range []struct {
		name, rule, limit string
		want              []string // without "rules[0].settle.limit"
	}{
		{"path", byPath, `{lock: merchants, id: {path: shop, format: pattern, pattern: "[a-z]+"}}`, nil},
		{"JSON", byPath, `{lock: merchants, id: {json: merchant.id2, json_type: number, max_body: 10}}`, nil},
		{"form", byPath, `{lock: merchants, id: {form: merchantId, format: uuid}}`, nil},
		{"nothing", byPath, `{}`, []string{
			`: lock is missing: give the name of a lock of kind semaphore`,
			`: id is missing: name the location of the ID that is limited`,
		}},
		{"no place", byPath, `{lock: merchants, id: {format: digits}}`, []string{`.id: does not name the ID's location: give exactly one of path, query, header, json, form, cookie`}},
		{"two places", byPath, `{lock: merchants, id: {query: m, header: x-m}}`, []string{`.id: has query and header: give exactly one of path, query, header, json, form, cookie`}},
		{"a list of places", byPath, `{lock: merchants, id: [{query: m}]}`, []string{`.id: is a list: it has to be a mapping`}},
		{"no such lock", byPath, `{lock: merchant, id: {query: m}}`, []string{`.lock: "merchant" is not defined under locks, did you mean merchants?`}},
		{"another kind", byPath, `{lock: orders, id: {query: m}}`, []string{`.lock: "orders" is of kind exclusive: a limit takes one of kind semaphore`}},
		{"no such segment", byPath, `{lock: merchants, id: {path: merchant}}`, []string{`.id.path: "merchant" is not a {name} in match.path "/{shop}/o/{id}"`}},
		{"a list of IDs", byPath, `{lock: merchants, id: {json: ms, list: true}}`, []string{`.id.list: is not for a limit: it is for one ID`}},
		{"optional", byPath, `{lock: merchants, id: {json: m, optional: true}}`, []string{`.id.optional: is for create only: a limit needs an ID`}},
		{"format", byPath, `{lock: merchants, id: {json: m, format: digit}}`, []string{`.id.format: "digit" is not one of digits, uuid, timestamped, snowflake, pattern`}},
		{"option of another place", byPath, `{lock: merchants, id: {query: m, max_body: 1}}`, []string{`.id.max_body: is for json and form only: set one of them, or remove this`}},

		{"the order's segment", byPath, `{lock: merchants, id: {path: id}}`, []string{`.id.path: "id" may be taken for "id" of rules[0].id, which is the order's: limit by an ID of another name`}},
		{"the order's name", byPath, `{lock: merchants, id: {header: id}}`, []string{`.id.header: "id" may be taken for "id" of rules[0].id, which is the order's: limit by an ID of another name`}},
		{"the order's name by folding", `id: [{path: id}, {header: x-order-id}]`, `{lock: merchants, id: {query: X_OrderId}}`, []string{
			`.id.query: "X_OrderId" may be taken for "x-order-id" of rules[0].id[1], which is the order's: limit by an ID of another name`}},
		{"a member of one name", `id: {json: order.id}`, `{lock: merchants, id: {json: merchant.id}}`, []string{
			`.id.json: "merchant.id" may be taken for "order.id" of rules[0].id, which is the order's: limit by an ID of another name`}},
		{"a member of one name, by path", `backend: spring, id: {json: order.id}`, `{lock: merchants, id: {json: merchant.id}}`, nil},
		{"one member", `backend: spring, id: {json: order.id}`, `{lock: merchants, id: {json: order.id}}`, []string{
			`.id.json: "order.id" may be taken for "order.id" of rules[0].id, which is the order's: limit by an ID of another name`}},
		{"bodies of two types", `id: {form: orderId}`, `{lock: merchants, id: {json: merchantId}}`, []string{`.id.json: stands in a body of another type than rules[0].id, which is the order's: no request has both`}},
		{"bodies of two types, one of them", `id: [{form: orderId}, {query: orderId}]`, `{lock: merchants, id: {json: merchantId}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			for _, w := range tt.want {
				want = append(want, "rules[0].settle.limit"+w)
			}
			expect(t, limitIn(tt.rule, tt.limit), want)
		})
	}
	t.Run("the order's own lock", func(t *testing.T) {
		expect(t, `locks: {m: {kind: semaphore, permits: 5}}
rules: [{name: a, match: {methods: [POST], path: "/o/{id}"}, id: {path: id}, settle: {lock: m, limit: {lock: m, id: {query: m}}}}]
`, []string{`rules[0].settle.limit.lock: "m" is the lock of the order: a limit takes another`})
	})
}

func TestLimitDefaults(t *testing.T) {
	c := mustParse(t, limitIn(`id: {path: id}`, `{lock: merchants, id: {json: merchantId}}`), nil)
	want := &Limit{Lock: "merchants", ID: ID{JSON: "merchantId", JSONType: JSONAny, MaxBody: 64 << 10, Format: FormatDigits, MinLength: 1, MaxLength: 19}}
	if diff := cmp.Diff(want, c.Rules[0].Settle.Limit); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}
