package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestQueryAndFrontControllers has a case for each rule on what chooses a rule at the
// path of a front controller.
func TestQueryAndFrontControllers(t *testing.T) {
	const filter = "filters: {orders: {}}\n"
	rule := func(keys, match, id string) string {
		return filter + "rules: [{name: r, " + keys + "match: {methods: [GET], path: /index.php" + match + "}, id: {" + id + "}, lookup: {filter: orders}}]\n"
	}
	for _, tt := range []struct {
		name, file string
		want       []string
	}{
		{"query", rule("", ", query: {action: settle, Op-1: \"2\"}", "query: id"), nil},
		{"empty query", rule("", ", query: {}", "query: id"), []string{`2: rules[0].match.query: is empty: give a parameter and its value, or remove it`}},
		{"query that is a text", rule("", ", query: action", "query: id"), []string{`2: rules[0].match.query: is text: it has to be a mapping`}},
		{"a number to match by", rule("", ", query: {op: 2}", "query: id"), []string{`2: rules[0].match.query.op: is a number: it has to be text, in quotes`}},
		{"a name that PHP rewrites", rule("", ", query: {\"a.b\": x}", "query: id"), []string{`2: rules[0].match.query."a.b": "a.b" is not the name of a parameter: names are 1 to 128 letters, digits, _ and -`}},
		{"a value with an escape", rule("", ", query: {action: \"%41\"}", "query: id"), nil},
		{"a list of routes", rule("", ", query: {route: [account/order.info, account%2Forder.info]}", "query: id"), nil},
		{"an empty list", rule("", ", query: {route: []}", "query: id"), []string{`2: rules[0].match.query.route: has 0 values to match by: 1 to 64 are allowed`}},
		{"two parameters in one", rule("", ", query: {route: a&b}", "query: id"), []string{`2: rules[0].match.query.route: "a&b" is not a value to match by: values are 1 to 256 visible characters of ASCII but & ; and #, as a request has them, with a letter or digit`}},
		{"a value without letters", rule("", ", query: {route: //}", "query: id"), []string{`2: rules[0].match.query.route: "//" is not a value to match by: values are 1 to 256 visible characters of ASCII but & ; and #, as a request has them, with a letter or digit`}},
		{"the ID's name", rule("", ", query: {I_d: \"1\"}", "form: id"), []string{`2: rules[0].match.query.I_d: may be taken for "id" of rules[0].id, which is the order's: match by another parameter`}},
		{"front controllers", "front_controllers: [/shop.php]\n" + rule("backend: php, front_controllers: [/index.php, /], ", "", "query: id"), nil},
		{"none", "front_controllers: []\n" + rule("", "", "query: id"), nil},
		{"not a path", rule("front_controllers: [index.php, \"/{x}\", /shop/], ", "", "query: id"), []string{
			`2: rules[0].front_controllers[0]: "index.php" does not start with /`,
			`2: rules[0].front_controllers[1]: "/{x}" has a {name}: give the path of a script, such as /index.php`,
			`2: rules[0].front_controllers[2]: "/shop/" ends in /: leave it out`,
		}},
		{"another backend", rule("backend: tomcat, front_controllers: [/], ", "", "query: id"), []string{`2: rules[0].front_controllers: is for backend strict and php: remove it, or set one of them`}},
		{"another backend in all rules", "backend: spring\nfront_controllers: [/]\n" + rule("", "", "query: id"), []string{`2: front_controllers: is for backend strict and php, which no rule has: remove it`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == nil {
				mustParse(t, tt.file, nil)
				return
			}
			var want []string
			for _, line := range tt.want {
				want = append(want, "f.yaml:"+line)
			}
			if diff := cmp.Diff(want, violations(t, tt.file, nil)); diff != "" {
				t.Error("violations (-want +got):\n" + diff)
			}
		})
	}
	rules := mustParse(t, "backend: php\n"+rule("", "", "query: id"), nil).Rules
	if diff := cmp.Diff([]string{"/index.php", "/"}, rules[0].FrontControllers); diff != "" {
		t.Error("front controllers by default (-want +got):\n" + diff)
	}
	if rules = mustParse(t, "front_controllers: []\n"+rule("", "", "query: id"), nil).Rules; len(rules[0].FrontControllers) != 0 {
		t.Errorf("front controllers although there are none: %q", rules[0].FrontControllers)
	}
	c := mustParse(t, rule("", "", "query: id"), env{"ORDERGATE_FRONT_CONTROLLERS": "/a.php, /b.php"})
	if diff := cmp.Diff([]string{"/a.php", "/b.php"}, c.Rules[0].FrontControllers); diff != "" {
		t.Error("front controllers by a variable (-want +got):\n" + diff)
	}
}
