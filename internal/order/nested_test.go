package order

import (
	"slices"
	"testing"
)

// TestNested has parameters and members that backends take for a JSON member below another: PHP
// that merges the body with $_GET and $_COOKIE, and the data binding of Spring.
func TestNested(t *testing.T) {
	json := HeaderList{{"content-type", "application/json"}}
	withCookie := func(cookie string) HeaderList { return append(slices.Clone(json), [2]string{"cookie", cookie}) }
	form := HeaderList{{"content-type", typeForm}}
	for _, r := range []oddRequest{
		{"alone", "POST", "/by/json", json, `{"order":{"number":42}}`, "42"},
		{"as an array", "POST", "/by/json?order[number]=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"escaped", "POST", "/by/json?order%5Bnumber%5D=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"in other letters", "POST", "/by/json?Order[Number]=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"its last name", "POST", "/by/json?number=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"its first name", "POST", "/by/json?order=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"a property", "POST", "/by/json?order.number=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"a cookie", "POST", "/by/json", withCookie("order[number]=43"), `{"order":{"number":42}}`, "cookie_alias"},
		{"of Spring's defaults", "POST", "/by/json?!order.number=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"the same, by its last name", "POST", "/by/json?%21number=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"both forms", "POST", "/by/json?order.x[number]=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"Rack's", "POST", "/by/json?[order][number]=43", json, `{"order":{"number":42}}`, "parameter_alias"},
		{"another name", "POST", "/by/json?order_no=43&reorder.number=43", json, `{"order":{"number":42}}`, "42"},
		{"another array", "POST", "/by/json?page[number2]=43&orders[x]=1", json, `{"order":{"number":42}}`, "42"},

		{"of another rule", "POST", "/orders/42/settle?order[number]=43", nil, "", "parameter_alias"},
		{"of another rule, Spring's default", "POST", "/orders/42/settle?!order.number=43", nil, "", "parameter_alias"},
		{"of another rule, a flat name of a rule", "POST", "/orders/42/settle?order_number=42", nil, "", "42"},
		{"of another rule, another order by a flat name", "POST", "/orders/42/settle?order_number=43", nil, "", "parameter_alias"},
		{"of another rule, a cookie", "POST", "/orders/42/settle", HeaderList{{"cookie", "order[number]=43"}, {"content-length", "0"}}, "", "cookie_alias"},
		{"of another rule, a member", "POST", "/orders/42/settle", json, `{"order":{"number":43}}`, "json_alias"},
		{"of another rule, a member in other letters", "POST", "/orders/42/settle", json, `{"a":1,"Order":{"x":{},"n\u0075mber":"43"}}`, "json_alias"},
		{"of another rule, no number", "POST", "/orders/42/settle", json, `{"order":{"number":[42]}}`, "json_alias"},
		{"of another rule, the same order", "POST", "/orders/42/settle", json, `{"order":{"number":42}}`, "42"},
		{"of another rule, both", "POST", "/orders/42/settle", json, `{"order":{"number":42,"number":43}}`, "json_alias"},
		{"of another rule, beside it", "POST", "/orders/42/settle", json, `{"order":{"note":"x"},"x":{"number":43}}`, "42"},
		{"of another rule, a scalar", "POST", "/orders/42/settle", json, `{"order":"x"}`, "42"},

		{"of a create", "POST", "/orders?order[number]=43", json, `{"a":1}`, "parameter_alias"},
		{"of a create, a cookie", "POST", "/orders", withCookie("order[number]=43"), `{"a":1}`, "cookie_alias"},
		{"of a create, none", "POST", "/orders", json, `{"a":1}`, ""},

		{"at a front controller", "POST", "/index.php?order[number]=43", form, "a=1", "front_controller"},
	} {
		for _, b := range []Backend{Strict, PHP} {
			table, err := NewTable([]Rule{
				{Name: "json", Methods: []string{"POST"}, Path: "/by/json", IDs: inJSON("order", "number"), Backend: b},
				{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id"), Backend: b},
				{Name: "query", Methods: []string{"GET"}, Path: "/find", IDs: at(InQuery, "order_number"), Backend: b},
				{Name: "create", Methods: []string{"POST"}, Path: "/orders", IDs: inJSON("order", "number"), Optional: true, Nameless: true, Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s %s %s: got %q, want %q", b, r.name, r.method, r.target, r.body, got, r.want)
			}
		}
	}
}

// TestNestedPart has a parameter that a backend takes for a part of the key.
func TestNestedPart(t *testing.T) {
	table, err := NewTable([]Rule{{
		Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id"),
		Parts: []Part{{Name: "tenant", ID: inJSON("shop", "tenant")[0]}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	json := HeaderList{{"content-type", "application/json"}}
	for _, r := range []oddRequest{
		{"alone", "POST", "/orders/42/settle", json, `{"shop":{"tenant":4}}`, "4/42"},
		{"as an array", "POST", "/orders/42/settle?shop[tenant]=5", json, `{"shop":{"tenant":4}}`, "parameter_alias"},
	} {
		if got := r.answer(table); got != r.want {
			t.Errorf("%s: got %q, want %q", r.name, got, r.want)
		}
	}
}
