package order

import "testing"

// TestNameless has requests without an ID in their rule's own location. Under a rule with
// Nameless they name no order in the locations of other rules either.
func TestNameless(t *testing.T) {
	json, form := HeaderList{{"content-type", "application/json"}}, HeaderList{{"content-type", typeForm}}
	header := func(name string) HeaderList { return HeaderList{{name, "5"}, {"content-type", "application/json"}} }
	for _, r := range []oddRequest{
		{"nothing", "POST", "/header", nil, "", ""},
		{"other members", "POST", "/header", json, `{"x":5,"lines":[{"orderId":5}]}`, ""},
		{"a member of another rule", "POST", "/header", json, `{"orderId":5}`, "json_alias"},
		{"the same, null", "POST", "/header", json, `{"orderId":null}`, "json_alias"},
		{"the same, in other letters", "POST", "/header", json, `{"order_id":5}`, "json_alias"},
		{"the same, not seen", "POST", "/header", HeaderList{{"content-type", "application/json"}, {"content-length", "13"}}, "", "needs body"},
		{"a member further in", "POST", "/header", json, `{"data":{"no":1,"ref":5}}`, "json_alias"},
		{"another member further in", "POST", "/header", json, `{"data":{"x":{"ref":5}},"other":{"ref":5}}`, ""},
		{"a parameter", "POST", "/header?orderId=5", nil, "", "parameter_alias"},
		{"a parameter of the name in a path", "POST", "/header?id=5", nil, "", "parameter_alias"},
		{"a cookie", "POST", "/header", HeaderList{{"cookie", "a=b; orderId=5"}}, "", "cookie_alias"},
		{"a form", "POST", "/header", form, "orderId=5", "parameter_alias"},
		{"named", "POST", "/header", header("x-order-id"), `{"x":1}`, "5"},

		{"JSON", "POST", "/json", json, `{"x":5}`, ""},
		{"a header of another rule", "POST", "/json", header("x-order-id"), `{"x":5}`, "header_alias"},
		{"the same, as CGI reads it", "POST", "/json", header("x.order_id"), `{"x":5}`, "header_alias"},
		{"another header", "POST", "/json", header("x-order"), `{"x":5}`, ""},
		{"a member of another rule beside JSON", "POST", "/json", json, `{"id":5}`, "json_alias"},
		{"a member further in beside JSON", "POST", "/json", json, `{"x":[{}],"data":{"Ref":[5]}}`, "json_alias"},
		{"a parameter beside JSON", "POST", "/json?id=5", json, `{}`, "parameter_alias"},
		{"named in JSON", "POST", "/json", header("x-order-id"), `{"orderId":6,"id":6}`, "6"},
		{"a field beside a form", "POST", "/form", form, "x=1&id=5", "parameter_alias"},
		{"a form", "POST", "/form", form, "x=1", ""},

		{"without dedup", "POST", "/plain?id=5", header("x-order-id"), `{"id":5}`, ""},
	} {
		rule := func(path string, in []ID) Rule {
			return Rule{Name: path, Methods: []string{"POST"}, Path: path, IDs: in, Optional: true, Nameless: path != "/plain"}
		}
		table, err := NewTable([]Rule{
			{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true},
			{Name: "nested", Methods: []string{"POST"}, Path: "/nested", IDs: inJSON("data", "ref")},
			rule("/header", at(InHeader, "x-order-id")), rule("/json", inJSON("orderId")), rule("/form", at(InForm, "orderId")),
			rule("/plain", inJSON("orderId")),
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.answer(table); got != r.want {
			t.Errorf("%s: %s %s: got %q, want %q", r.name, r.target, r.body, got, r.want)
		}
	}
}
