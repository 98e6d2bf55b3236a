package order

import (
	"strings"
	"testing"
)

// TestScripts reads paths as PHP behind a web server does: what follows a script is
// PATH_INFO, and a folder is its index.php.
func TestScripts(t *testing.T) {
	for _, b := range []Backend{Strict, PHP} {
		rules := []Rule{
			{Name: "lookup", Methods: []string{"GET"}, Path: "/shop/index.php", IDs: at(InQuery, "id"), OtherMethods: true, Backend: b},
			{Name: "settle", Methods: []string{"POST"}, Path: "/settle.php", IDs: at(InQuery, "id"), Backend: b},
			{Name: "folder", Methods: []string{"GET"}, Path: "/folder", IDs: at(InQuery, "id"), OtherMethods: true, Backend: b},
			{Name: "search", Methods: []string{"GET"}, Path: "/orders/search", Pass: true, Backend: b},
			{Name: "help page", Methods: []string{"GET"}, Path: "/settle/help", Pass: true, Backend: b},
			{Name: "order", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
			{Name: "create", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"action": {"create"}}, OtherMethods: true, Backend: b},
			{Name: "help", Methods: []string{"GET"}, Path: "/index.php", Query: map[string][]string{"action": {"help"}}, Pass: true, Backend: b},
		}
		for i := range rules {
			rules[i].FrontControllers = []string{"/index.php", "/app/index.php"}
		}
		table, err := NewTable(rules)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []oddRequest{
			{"PATH_INFO", "POST", "/settle.php/x?id=42", nil, "", "path_near"},
			{"PATH_INFO that is a script", "POST", "/settle.php/x.php?id=42", nil, "", "path_near"},
			{"PATH_INFO of a folder's script", "GET", "/shop/index.php/orders/43?id=42", nil, "", "path_near"},
			{"the folder", "GET", "/shop/?id=42", nil, "", "path_near"},
			{"the folder without its slash", "GET", "/shop?id=42", nil, "", "path_near"},
			{"under another method", "POST", "/shop/?id=42", nil, "", ""},
			{"the script of a folder", "GET", "/folder/index.php?id=42", nil, "", "path_near"},
			{"another script", "GET", "/other.php/x?id=42", nil, "", ""},
			{"without its suffix", "POST", "/settle?id=42", nil, "", "path_near"},
			{"without its suffix, and PATH_INFO", "POST", "/settle/x/y?id=42", nil, "", "path_near"},
			{"without its suffix, escaped", "POST", "/%73ettle?id=42", nil, "", "path_near"},
			{"another file of that name", "GET", "/settle.css?v=3", nil, "", ""},
			{"another file below that name", "GET", "/settle.d/x.js", nil, "", ""},
			{"a longer name", "POST", "/settled?id=42", nil, "", ""},
			{"in another folder", "POST", "/x/settle?id=42", nil, "", ""},
			{"a page of that name", "GET", "/settle/help", nil, "", ""},
			{"a create without the suffix", "POST", "/index?action=create", nil, "", "path_near"},
			{"a create without the suffix, folded", "POST", "/index/x?action=Create", nil, "", "parameter_alias"},
			{"a front controller without the suffix", "GET", "/app/index?do=show&id=42", nil, "", "front_controller"},
			{"another folder", "GET", "/shop/x/?id=42", nil, "", ""},
			{"the folder of a front controller", "GET", "/app/?do=show&id=42", nil, "", "front_controller"},
			{"that of no order", "GET", "/app/?do=login", nil, "", ""},

			{"a create", "POST", "/index.php?action=create", nil, "", ""},
			{"by the folder", "POST", "/?action=create", nil, "", "path_near"},
			{"behind the script", "POST", "/index.php/x?action=create", nil, "", "path_near"},
			{"by another front controller", "POST", "/app/index.php?action=create", nil, "", "parameter_alias"},
			{"exempt by another front controller", "GET", "/app/index.php?action=help", nil, "", ""},

			{"a method that some take for another", "get", "/orders/42", nil, "", "other_method"},
			{"a method of no rule", "put", "/orders/42", nil, "", ""},
			{"a create by such a method", "Post", "/index.php?action=create", nil, "", "other_method"},

			{"a route in a parameter", "GET", "/orders/43?url=orders/42", nil, "", "front_controller"},
			{"escaped", "GET", "/orders/43?q=%2Forders%2F42", nil, "", "front_controller"},
			{"in a name", "GET", "/orders/43?/orders/42", nil, "", "front_controller"},
			{"a route in a parameter of a settlement", "POST", "/settle.php?id=43&q=/settle.php", nil, "", "front_controller"},
			{"a path of no rule", "GET", "/orders/43?back=/list/orders", nil, "", "43"},
			{"a path under another method", "POST", "/settle.php?id=43&back=/orders/43", nil, "", "43"},

			{"another URL", "GET", "/elsewhere", HeaderList{{"x-original-url", "/orders/42"}}, "", ""}, // it is removed
			{"another URL, as CGI spells it", "GET", "/elsewhere", HeaderList{{"x.original.url", "/orders/42"}}, "", "url_override"},
			{"another URL, on a path that is exempt", "GET", "/orders/search", HeaderList{{"x-rewrite_url", "/orders/42"}}, "", "url_override"},
			{"a header of that length", "GET", "/elsewhere", HeaderList{{"x-original-urn", "/orders/42"}}, "", ""},
		} {
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
}

// TestMounts has front controllers in folders, and web servers that cut the suffix of a path when
// they rewrite it.
func TestMounts(t *testing.T) {
	formed := HeaderList{{"content-type", typeForm}}
	for _, b := range []Backend{Strict, PHP} {
		for _, controllers := range [][]string{nil, {"/shop/index.php"}, {"/shop/Front.php"}} {
			rules := []Rule{
				{Name: "settle", Methods: []string{"POST"}, Path: "/shop/orders/{id}/settle", IDs: at(InPath, "id"), Backend: b},
				{Name: "pay", Methods: []string{"POST"}, Path: "/shop/pay.html", Backend: b},
				{Name: "export", Methods: []string{"GET"}, Path: "/orders/export", OtherMethods: true, Backend: b},
				{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
			}
			for i := range rules {
				rules[i].FrontControllers = controllers
			}
			table, err := NewTable(rules)
			if err != nil {
				t.Fatal(err)
			}
			script, byFolder := "/shop/index.php", "front_controller"
			if controllers != nil {
				script = controllers[0]
			}
			if strings.Contains(script, "Front") {
				byFolder = ""
			}
			for _, r := range []oddRequest{
				{"the rule", "POST", "/shop/orders/42/settle", nil, "", "42"},
				{"by PATH_INFO", "POST", script + "/orders/42/settle", nil, "", "path_near"},
				{"by PATH_INFO of another script", "POST", "/shop/app.php/orders/42/settle", nil, "", "path_near"},
				{"by PATH_INFO with an escape", "POST", strings.Replace(script, ".", "%2e", 1) + "/orders/42/settle", nil, "", "path_near"},
				{"by PATH_INFO behind another folder", "POST", "/x/../shop/index.php/orders/42/settle", nil, "", "path_near"},
				{"by PATH_INFO, without the suffix", "POST", script + "/pay", nil, "", "path_near"},
				{"by PATH_INFO, with another suffix", "POST", script + "/pay.htm", nil, "", "path_near"},
				{"by a parameter", "POST", script + "?url=/orders/42/settle", nil, "", "front_controller"},
				{"by a parameter, relative", "POST", script + "?url=orders/42/settle", nil, "", "front_controller"},
				{"by a parameter, escaped", "POST", script + "?url=orders%252F42%2Fsettle", nil, "", "front_controller"},
				{"by a parameter, with the folder", "POST", script + "?url=/shop/orders/42/settle", nil, "", "front_controller"},
				{"by a parameter, without the suffix", "POST", script + "?url=pay", nil, "", "front_controller"},
				{"by a parameter's name", "POST", script + "?/pay", nil, "", "front_controller"},
				{"by a field", "POST", script, formed, "url=pay", "front_controller"},
				{"behind the script", "POST", script + "/x?url=pay", nil, "", "front_controller"},
				{"by the folder", "POST", "/shop/?url=pay", nil, "", byFolder},
				{"on the path of a rule", "POST", "/shop/orders/43/settle?url=orders/42/settle", nil, "", "front_controller"},

				{"another page", "POST", script + "?url=cart/add", nil, "", ""},
				{"a page of another folder", "POST", "/blog/index.php?url=pay", nil, "", ""},
				{"another script", "POST", "/shop/login.php?back=orders/42/settle", nil, "", ""},
				{"a list", "GET", "/orders/?page=2&view=list", nil, "", ""},
				{"a plain path", "POST", "/shop/pay", nil, "", ""},
			} {
				if got := r.answer(table); got != r.want {
					t.Errorf("profile %d, %q: %s: %s %s: got %q, want %q", b, controllers, r.name, r.method, r.target, got, r.want)
				}
			}
		}
	}
}
