package config

import (
	"testing"
)

// TestRulesAreReached has rules behind others.
func TestRulesAreReached(t *testing.T) {
	const (
		all  = `rules[1].match: never matches: rules[0] (a) before it takes all such requests: put this rule first`
		some = `rules[1].match.methods: GET, HEAD never reaches this rule: rules[0] (a) before it takes all such requests: put this rule first, or leave the method out`
	)
	for _, tt := range []struct{ name, first, second, want string }{
		{"the same", `methods: [POST], path: "/orders/{id}/settle"`, `methods: [POST], path: "/orders/{order}/settle"`, all},
		{"a wider template", `methods: [POST], path: "/{shop}/{id}/settle"`, `methods: [POST], path: "/orders/{id}/settle"`, all},
		{"a narrower template", `methods: [POST], path: "/orders/{id}/settle"`, `methods: [POST], path: "/{shop}/{id}/settle"`, ""},
		{"a literal beside a template", `methods: [GET], path: "/orders/search"`, `methods: [GET], path: "/orders/{id}"`, ""},
		{"the other way round", `methods: [GET], path: "/orders/{id}"`, `methods: [GET], path: "/orders/search"`, all},
		{"another length", `methods: [GET], path: "/orders/{id}"`, `methods: [GET], path: "/orders/{id}/lines"`, ""},
		{"a slash at the end", `methods: [GET], path: "/orders/{id}"`, `methods: [GET], path: "/orders/"`, ""},
		{"other methods", `methods: [GET, HEAD], path: "/orders/{id}"`, `methods: [PUT], path: "/orders/{id}"`, ""},
		{"some of its methods", `methods: [GET], path: "/orders/{id}"`, `methods: [GET, HEAD, PUT], path: "/orders/{id}"`, some},
		{"HEAD is a GET", `methods: [GET], path: "/orders/{id}"`, `methods: [HEAD], path: "/orders/{id}"`, all},
		{"any host", `methods: [GET], path: "/orders/{id}"`, `methods: [GET], path: "/orders/{id}", host: shop.example`, all},
		{"one host", `methods: [GET], path: "/orders/{id}", host: shop.example`, `methods: [GET], path: "/orders/{id}"`, ""},
		{"any parameters", `methods: [GET], path: "/index.php"`, `methods: [GET], path: "/index.php", query: {action: view}`, all},
		{"fewer parameters", `methods: [GET], path: "/index.php", query: {action: view}`, `methods: [GET], path: "/index.php", query: {action: view, of: order}`, all},
		{"other parameters", `methods: [GET], path: "/index.php", query: {action: list}`, `methods: [GET], path: "/index.php", query: {action: view}`, ""},
		{"some of the values", `methods: [GET], path: "/index.php", query: {action: [view, list]}`, `methods: [GET], path: "/index.php", query: {action: [list, view], of: order}`, all},
		{"more values", `methods: [GET], path: "/index.php", query: {action: [view, list]}`, `methods: [GET], path: "/index.php", query: {action: [list, print]}`, ""},
		{"a name for an empty segment", `methods: [GET], path: "/{shop}/{id}/"`, `methods: [GET], path: "/orders/{id}/"`, all},
		{"any case", `methods: [GET], path: "/Orders/{id}", case: insensitive`, `methods: [GET], path: "/orders/{id}"`, all},
		{"one case", `methods: [GET], path: "/orders/{id}"`, `methods: [GET], path: "/orders/{id}", case: insensitive`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			expect(t, ruleWith(`{name: a, pass: true, match: {`+tt.first+`}}, {name: b, pass: true, match: {`+tt.second+`}}`), want)
		})
	}
}
