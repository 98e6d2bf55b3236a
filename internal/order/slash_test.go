package order

import "testing"

// TestSlashAtTheEnd has backends whose URLs end in a slash, as those of WordPress, Magento
// and Django do. With the slash is the one spelling then; without it is near.
func TestSlashAtTheEnd(t *testing.T) {
	override := HeaderList{{"x-http-method-override", "GET"}}
	for _, r := range []oddRequest{
		{"as it is", "POST", "/orders/42/settle/", nil, "", "42"},
		{"with a query", "POST", "/orders/42/settle/?page=1", nil, "", "42"},
		{"without the slash", "POST", "/orders/42/settle", nil, "", "path_near"},
		{"without it, and a query", "POST", "/orders/42/settle?page=1", nil, "", "path_near"},
		{"two slashes", "POST", "/orders/42/settle//", nil, "", "path_near"},
		{"two slashes before", "POST", "/orders//42/settle/", nil, "", "path_near"},
		{"the slash is escaped", "POST", "/orders/42/settle%2F", nil, "", "path_near"},
		{"escaped", "POST", "/orders/42/%73ettle/", nil, "", "path_near"},
		{"escaped, without it", "POST", "/orders/42/%73ettle", nil, "", "path_near"},
		{"a dot segment", "POST", "/orders/42/settle/.", nil, "", "path_near"},
		{"the ID is odd", "POST", "/orders/%34%32/settle/", nil, "", "malformed_id"},
		{"the ID is odd, without it", "POST", "/orders/%34%32/settle", nil, "", "path_near"},
		{"no ID", "POST", "/orders//settle/", nil, "", ""},
		{"another method", "PUT", "/orders/42/settle/", nil, "", "other_method"},
		{"another method, without it", "PUT", "/orders/42/settle", nil, "", "path_near"},
		{"further on", "POST", "/orders/42/settle/x", nil, "", ""},
		{"a rule of each spelling, with", "GET", "/both/42/", nil, "", "42"},
		{"a rule of each spelling, without", "GET", "/both/43", nil, "", "43"},
		{"other methods pass", "POST", "/view/42/", nil, "", ""},
		{"other methods pass, without it", "POST", "/view/42", nil, "", ""},
		{"an override", "POST", "/view/42/", override, "", "method_override"},
		{"an override, without it", "POST", "/view/42", override, "", "method_override"},
		{"of any case", "POST", "/CASE/42/", nil, "", "42"},
		{"of any case, without it", "POST", "/Case/42", nil, "", "path_near"},
		{"of any case, escaped", "POST", "/C%61se/42/", nil, "", "path_near"},
		{"by a parameter", "POST", "/shop/?do=settle&id=42", nil, "", "42"},
		{"by a parameter, without it", "POST", "/shop?do=settle&id=42", nil, "", "path_near"},
		{"far", "POST", "/orders/42", nil, "", ""},
		{"far, with a slash", "POST", "/orders/42/", nil, "", ""},
	} {
		for _, b := range []Backend{Strict, Tomcat, Spring, PHP} {
			table, err := NewTable([]Rule{
				{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle/", IDs: at(InPath, "id"), Backend: b},
				{Name: "both", Methods: []string{"GET"}, Path: "/both/{id}/", IDs: at(InPath, "id"), Backend: b},
				{Name: "plain", Methods: []string{"GET"}, Path: "/both/{id}", IDs: at(InPath, "id"), Backend: b},
				{Name: "view", Methods: []string{"GET"}, Path: "/view/{id}/", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
				{Name: "case", Methods: []string{"POST"}, Path: "/Case/{id}/", IDs: at(InPath, "id"), IgnoreCase: true, Backend: b},
				{Name: "shop", Methods: []string{"POST"}, Path: "/shop/", Query: map[string][]string{"do": {"settle"}}, IDs: at(InQuery, "id"), Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
	table, err := NewTable([]Rule{
		{Name: "shop", Methods: []string{"POST"}, Path: "/shop/", Query: map[string][]string{"do": {"settle"}}, IDs: at(InQuery, "id")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"/shop/?Do=settle&id=42": "parameter_alias", "/shop?Do=settle&id=42": "parameter_alias",
		"/shop/index.php?do=settle&id=42": "path_near", "/shop?do=x&id=42": "", "/shop/?do=x&id=42": "",
		"/shop?page=1": "", "/shop/?page=1": "", "/SHOP?do=settle&id=42": "path_near",
	} {
		if got := (&oddRequest{method: "POST", target: target}).answer(table); got != want {
			t.Errorf("%s: got %q, want %q", target, got, want)
		}
	}
}

// TestPageBesideOrders has a page whose path is that of an order without its ID. It is another
// page, which a rule or pass may have for itself.
func TestPageBesideOrders(t *testing.T) {
	for _, b := range []Backend{Strict, Tomcat, Spring, PHP} {
		order := Rule{Name: "order", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), Optional: true, Backend: b}
		create := Rule{Name: "create", Methods: []string{"POST"}, Path: "/orders", Backend: b}
		pass := Rule{Name: "page", Methods: []string{"GET"}, Path: "/orders/", Pass: true, Backend: b}
		script := Rule{Name: "script", Methods: []string{"GET"}, Path: "/orders/{script}", IDs: at(InQuery, "id"), Backend: b}
		named, namedWant := -1, "" // the rule that guards the folder's index.php
		if profiles[b].indexPHP {
			named, namedWant = 0, "path_near"
		}
		page := Rule{Name: "page", Methods: []string{"GET"}, Path: "/orders/", IDs: at(InQuery, "id"), Optional: true, Backend: b}
		for _, tt := range []struct {
			name, method, target string
			rules                []Rule
			rule                 int
			want                 string
		}{
			{"no rule has it", "GET", "/orders/", []Rule{order}, -1, ""},
			{"no rule has it, with a query", "GET", "/orders/?page=2", []Rule{order}, -1, ""},
			{"a create beside it", "GET", "/orders/", []Rule{create, order}, 0, "path_near"},
			{"pass", "GET", "/orders/", []Rule{create, order, pass}, -1, ""},
			{"pass, the create with a slash", "POST", "/orders/", []Rule{create, order, pass}, 0, "path_near"},
			{"pass, the create", "POST", "/orders", []Rule{create, order, pass}, 0, ""},
			{"a rule", "GET", "/orders/?id=42", []Rule{create, order, page}, 2, "42"},
			{"a rule, without an ID", "GET", "/orders/", []Rule{create, order, page}, 2, ""},
			{"a rule, an order", "GET", "/orders/42", []Rule{create, order, page}, 1, "42"},
			{"pass, an order", "GET", "/orders/42", []Rule{pass, order}, 1, "42"},
			{"a script by a name", "GET", "/orders/", []Rule{order, script}, named, namedWant},
			{"a blank", "GET", "/orders/%20", []Rule{pass, order}, 1, "malformed_id"},
		} {
			table, err := NewTable(tt.rules)
			if err != nil {
				t.Fatal(err)
			}
			got := (&oddRequest{method: tt.method, target: tt.target}).answer(table)
			if m := table.Match(Request{Method: tt.method, Target: tt.target, BodyState: BodyComplete}); m.Rule != tt.rule || got != tt.want {
				t.Errorf("profile %d: %s: %s %s: got rule %d and %q, want %d and %q", b, tt.name, tt.method, tt.target, m.Rule, got, tt.rule, tt.want)
			}
		}
	}
}

// TestSession has paths with the session of a servlet container.
func TestSession(t *testing.T) {
	for _, tt := range []struct{ method, target, servlet, strict, php string }{
		{"GET", "/orders/42;jsessionid=ABC.node1", "42", "malformed_id", "malformed_id"},
		{"POST", "/orders/42/settle;jsessionid=0aZ!-_+", "42", "path_near", "path_near"},
		{"POST", "/Pay;jsessionid=A?id=42", "42", "path_near", "path_near"},
		{"GET", "/orders/042;jsessionid=A", "malformed_id", "malformed_id", "malformed_id"},
		{"GET", "/orders/42;jsessionid=", "malformed_id", "malformed_id", "malformed_id"},
		{"GET", "/orders/42;JSESSIONID=A", "malformed_id", "malformed_id", "malformed_id"},
		{"GET", "/orders/42;x=1;jsessionid=A", "malformed_id", "malformed_id", "malformed_id"},
		{"GET", "/orders/42;jsessionid=A;jsessionid=A", "malformed_id", "malformed_id", "malformed_id"},
		{"GET", "/orders/42;jsessionid=%41", "malformed_id", "malformed_id", "malformed_id"},
		{"GET", "/orders/42;jsessionid=A,B", "malformed_id", "malformed_id", "malformed_id"},
		{"GET", "/orders/;jsessionid=A", "", "malformed_id", "malformed_id"},
		{"POST", "/orders;jsessionid=A/42/settle", "path_near", "path_near", ""},
		{"POST", "/orders/42;jsessionid=A/settle", "malformed_id", "malformed_id", "malformed_id"},
		{"POST", "/orders/42/settle/;jsessionid=A", "path_near", "path_near", ""},
		{"GET", "/orders;jsessionid=A", "", "", ""},
		{"GET", "/free;jsessionid=A", "", "", ""},
	} {
		for _, b := range []Backend{Strict, Tomcat, Spring, PHP} {
			table, err := NewTable([]Rule{
				{Name: "free", Methods: []string{"GET"}, Path: "/free", Pass: true, Backend: b},
				{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), Backend: b},
				{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id"), Backend: b},
				{Name: "pay", Methods: []string{"POST"}, Path: "/Pay", IDs: at(InQuery, "id"), Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[Backend]string{Strict: tt.strict, Tomcat: tt.servlet, Spring: tt.servlet, PHP: tt.php}[b]
			if got := (&oddRequest{method: tt.method, target: tt.target}).answer(table); got != want {
				t.Errorf("profile %d: %s %s: got %q, want %q", b, tt.method, tt.target, got, want)
			}
		}
	}
}
