package order

import "testing"

// TestMembers has JSON whose members override what the rest of the request says, as they do
// in Laravel: its Request::input() and __get() have them before the query and the path's
// segments, and createFromBase() makes a form of them, in which _method counts.
func TestMembers(t *testing.T) {
	json := HeaderList{{"content-type", "application/json"}}
	api := HeaderList{{"content-type", "Application/vnd.api+JSON; charset=utf-8"}}
	gzip := HeaderList{{"content-type", "application/json"}, {"content-encoding", "gzip"}}
	for _, r := range []oddRequest{
		{"the path's name", "GET", "/orders/43", json, `{"id":42}`, "json_alias"},
		{"of another media type", "GET", "/orders/43", api, `{"id":"42"}`, "json_alias"},
		{"in other letters", "GET", "/orders/43", json, `{"ID":43}`, "43"},
		{"escaped", "GET", "/orders/43", json, `{"\u0069d":42}`, "json_alias"},
		{"twice", "GET", "/orders/43", json, `{"id":43,"id":42}`, "json_alias"},
		{"no number", "GET", "/orders/43", json, `{"id":{"x":1}}`, "json_alias"},
		{"null", "GET", "/orders/43", json, `{"id":null}`, "json_alias"},
		{"of another form", "GET", "/orders/43", json, `{"id":4.3e1}`, "json_alias"},
		{"the same order", "GET", "/orders/43", json, `{"amount":1,"id":43}`, "43"},
		{"the same order as text", "GET", "/orders/43", json, `{"id":"43"}`, "43"},
		{"another rule's name", "GET", "/orders/43", json, `{"order_id":42}`, "json_alias"},
		{"further in", "GET", "/orders/43", json, `{"items":[{"id":42}],"x":{"id":42}}`, "43"},
		{"a list", "GET", "/orders/43", json, `[{"id":42}]`, "43"},
		{"not JSON", "GET", "/orders/43", json, `{"id":43,`, "bad_json"},
		{"a byte order mark", "GET", "/orders/43", json, "\ufeff{}", "bad_json"},
		{"two", "GET", "/orders/43", json, `{}{"id":42}`, "bad_json"},
		{"encoded", "GET", "/orders/43", gzip, "x", "content_encoding"},
		{"of another method", "GET", "/orders/43", json, `{"_method":"POST"}`, "method_override"},
		{"of its own method", "GET", "/orders/43", json, `{"_method":"GET"}`, "43"},
		{"not seen", "GET", "/orders/43", json, "", "needs body"},
		{"not seen, and another claim", "GET", "/orders/43?order_id=42", json, "", "parameter_alias"},

		{"a method of a lookup", "POST", "/orders/42", json, `{"_method":"GET"}`, "method_override"},
		{"a method of a lookup, for a PUT", "PUT", "/orders/42", json, `{"_method":"GET"}`, "method_override"},
		{"another method, for a PUT", "PUT", "/orders/42", json, `{"_method":"DELETE","id":42}`, ""},
		{"a method of a lookup, in the form of a PATCH", "PATCH", "/orders/42", HeaderList{{"content-type", typeForm}}, "a=b&_method=get", "method_override"},
		{"the form of a DELETE, not seen", "DELETE", "/orders/42", HeaderList{{"content-type", typeForm}}, "", "needs body"},
		{"the same, escaped", "POST", "/orders/42", json, `{"\u005Fmethod":"g\u0065t"}`, "method_override"},
		{"another method", "POST", "/orders/42", json, `{"_method":"PUT","id":42}`, ""},
		{"the method of a form", "POST", "/by/json", json, `{"order":{"id":42},"_method":"GET"}`, "method_override"},
		{"the same method", "POST", "/by/json", json, `{"order":{"id":42},"_method":"POST"}`, "42"},
		{"the way as one name", "POST", "/by/json", json, `{"order":{"id":43},"order.id":42}`, "json_alias"},

		{"a front controller", "POST", "/index.php", json, `{"action":"settle","id":42}`, "parameter_alias"},
		{"the same, by another name of the choice", "POST", "/index.php", json, `{"do":"settle","id":42}`, ""},
		{"of no order", "POST", "/index.php", json, `{"action":"login","user":"x"}`, ""},
		{"lookup, and its body announced", "GET", "/orders/43", HeaderList{{"content-type", "application/json"}, {"content-length", "9"}}, "", "form_body"},
		{"a front controller's, not seen", "POST", "/index.php", json, "", "needs body"},
	} {
		for _, b := range []Backend{Strict, PHP} {
			table, err := NewTable([]Rule{
				{Name: "script", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"action": {"settle"}}, IDs: at(InQuery, "id"), Backend: b},
				{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
				{Name: "refund", Methods: []string{"POST"}, Path: "/refund", IDs: at(InForm, "order_id"), Backend: b},
				{Name: "json", Methods: []string{"POST"}, Path: "/by/json", IDs: inJSON("order", "id"), Backend: b},
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
