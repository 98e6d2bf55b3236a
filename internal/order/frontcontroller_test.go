package order

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// shopTable is a shop behind a front controller, with rewritten paths.
func shopTable(t testing.TB, b Backend) *Table {
	t.Helper()
	table, err := NewTable([]Rule{
		{Name: "help", Methods: []string{"GET", "POST"}, Path: "/index.php", Query: map[string][]string{"action": {"help"}}, Pass: true, Backend: b},
		{Name: "script", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"action": {"settle"}}, IDs: at(InQuery, "id"), Backend: b},
		{Name: "show", Methods: []string{"GET"}, Path: "/index.php", Query: map[string][]string{"action": {"show"}}, IDs: at(InQuery, "id"), OtherMethods: true, Backend: b},
		{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
		{Name: "refund", Methods: []string{"POST"}, Path: "/refund", IDs: at(InForm, "order_id"), Backend: b},
		{Name: "create", Methods: []string{"POST"}, Path: "/orders", OtherMethods: true, Backend: b},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

const part = "--b\r\nContent-Disposition: form-data; name=\"%s\"\r\n\r\nx\r\n--b--\r\n"

type oddRequest struct {
	name, method, target string
	header               HeaderList
	body                 string
	want                 string // the reason's name, or the ID, or "" when it passes
}

func (r *oddRequest) answer(table *Table) string {
	req := Request{Method: r.method, Target: r.target, Header: r.header, Body: []byte(r.body)}
	if r.body != "" || r.header == nil {
		req.BodyState = BodyComplete
	}
	switch m := table.Match(req); m.Result {
	case Named:
		return m.ID
	case Unruled, Anonymous:
		return ""
	case NeedsBody:
		return "needs body"
	default:
		return m.Reason.Name()
	}
}

// TestFrontController has what backends behind one took for another request.
func TestFrontController(t *testing.T) {
	formed := HeaderList{{"content-type", typeForm}}
	multi := HeaderList{{"content-type", "multipart/form-data; boundary=b"}}
	cookie := func(text string) HeaderList { return HeaderList{{"cookie", text}} }
	for _, r := range []oddRequest{
		{"rule by a parameter", "POST", "/index.php?action=settle&id=42", nil, "", "42"},
		{"the other rule of the path", "GET", "/index.php?id=42&action=show", nil, "", "42"},
		{"exempt", "GET", "/index.php?action=help&id=42", nil, "", ""},
		{"of no order", "GET", "/index.php?action=login", nil, "", ""},
		{"another order's action", "GET", "/index.php?action=cancel&id=42", nil, "", ""},
		{"another method", "GET", "/index.php?action=settle&id=42", nil, "", "other_method"},
		{"a lookup by another method", "POST", "/index.php?action=show&id=42", nil, "", "front_controller"},
		{"the folder", "POST", "/?action=settle&id=42", nil, "", "path_near"},
		{"a path behind the script", "POST", "/index.php/x?action=settle&id=42", nil, "", "path_near"},
		{"the script escaped", "POST", "/index%2ephp?action=settle&id=42", nil, "", "path_near"},
		{"the script escaped, the choice too", "POST", "/index%2ephp?%61ction=settle&id=42", nil, "", "parameter_alias"},
		{"two slashes", "POST", "//?do=settle&id=42", nil, "", ""},
		{"as a host", "POST", "//x?do=settle&id=42", nil, "", ""},
		{"another name of an order", "GET", "/?do=show&order_id=42", nil, "", ""},
		{"rewritten name of an order", "GET", "/?do=show&order[id=42", nil, "", ""},
		{"semicolons", "GET", "/?do=show;id=42", nil, "", ""},
		{"order in a cookie", "GET", "/?do=show", cookie("a=b; id=42"), "", ""},
		{"session in a cookie", "GET", "/", cookie("id=8a7f"), "", ""},
		{"order in a form", "POST", "/index.php", formed, "action=settle&id=42", "parameter_alias"},
		{"order in a form, by another name of the choice", "POST", "/index.php", formed, "do=settle&id=42", ""},
		{"form not seen", "POST", "/index.php", formed, "", "needs body"},
		{"form of no order", "POST", "/", formed, "action=login&user=x", ""},
		{"order in multipart", "POST", "/", multi, strings.ReplaceAll(part, "%s", "id"), ""},
		{"order in multipart, behind many blanks", "POST", "/", multi, strings.ReplaceAll(part, "%s", strings.Repeat(" ", 600)+"id"), ""},
		{"order in multipart, with a long index", "POST", "/", multi, strings.ReplaceAll(part, "%s", "id["+strings.Repeat("x", 600)+"]"), ""},
		{"more names than are read", "POST", "/", multi, strings.Repeat(strings.ReplaceAll(part, "%s", "file"), 1001), "too_many_parameters"},
		{"more fields than are read", "POST", "/", formed, strings.Repeat("a=b&", 1001), "too_many_parameters"},
		{"multipart of no order", "POST", "/", multi, strings.ReplaceAll(part, "%s", "file"), ""},
		{"path of a lookup in a form", "POST", "/", formed, "page=/orders/42", ""},
		{"path of a lookup in a form, overridden", "POST", "/", formed, "page=/orders/42&_method=GET", "front_controller"},
		{"path of a settlement in a form", "POST", "/", formed, "page=/refund", "front_controller"},

		{"choice in other letters", "POST", "/index.php?action=SETTLE&id=42", nil, "", "parameter_alias"},
		{"choice in other letters, of no order", "POST", "/index.php?action=SETTLE", nil, "", "parameter_alias"},
		{"choice escaped", "POST", "/index.php?action=%73ettle&id=42", nil, "", "parameter_alias"},
		{"name of the choice escaped", "POST", "/index.php?%61ction=settle&id=42", nil, "", "parameter_alias"},
		{"choice as an array", "POST", "/index.php?action[]=settle&id=42", nil, "", "parameter_alias"},
		{"two choices", "POST", "/index.php?action=settle&id=42&action=show", nil, "", "parameter_alias"},
		{"two choices, one exempt", "POST", "/index.php?action=help&id=42&action=settle", nil, "", "parameter_alias"},
		{"exempt, in a cookie not", "GET", "/index.php?action=help&id=42", cookie("action=settle"), "", "cookie_alias"},
		{"exempt, in a form not", "POST", "/index.php?action=help&id=42", formed, "action=settle", "parameter_alias"},
		{"exempt, in a form too", "POST", "/index.php?action=help&id=42", formed, "action=help&id=42", ""},
		{"exempt, in multipart not", "POST", "/index.php?action=help", multi, strings.ReplaceAll(part, "%s", "action"), ""},
		{"ruled, in a cookie not", "POST", "/index.php?action=settle&id=42", cookie("action=show"), "", "cookie_alias"},
		{"ruled, in a cookie too", "POST", "/index.php?action=settle&id=42", cookie("action=settle"), "", "42"},

		{"two slashes and a host", "GET", "//x/orders/42", nil, "", "path_near"},
		{"three slashes", "GET", "///x/orders/42", nil, "", ""},
		{"a host with a port", "GET", "//x:80//orders/42", nil, "", "path_near"},
		{"escaped slashes", "GET", "/%2Fx/orders/42", nil, "", "path_near"},

		{"another method", "POST", "/orders/42", nil, "", ""},
		{"another method, and the choice of a rule", "POST", "/orders/42?action=settle", nil, "", "parameter_alias"},
		{"another method, and the choice in a form", "POST", "/orders/42", formed, "action=settle", "parameter_alias"},
		{"another method, and another choice", "POST", "/orders/42?action=cancel", nil, "", ""},
		{"another method, and a form", "POST", "/orders/42", formed, "id=42&note=x", ""},
		{"another method, and the path of a settlement", "POST", "/orders/42?page=/refund", nil, "", "front_controller"},
		{"with JSON", "PUT", "/orders/42", HeaderList{{"content-type", "application/json"}}, "{}", ""},
		{"override", "POST", "/orders/42", HeaderList{{"x-http-method-override", "GET"}}, "", "method_override"},
		{"override in lower case", "POST", "/orders/42", HeaderList{{"x-method-override", "get"}}, "", "method_override"},
		{"override that CGI folds", "DELETE", "/orders/42", HeaderList{{"x_http.method-override", "GET"}}, "", "method_override"},
		{"override to HEAD", "POST", "/orders/42", HeaderList{{"x-http-method", "HEAD"}}, "", "method_override"},
		{"override in a list", "POST", "/orders/42", HeaderList{{"x-http-method-override", "PUT,GET"}}, "", "method_override"},
		{"override to another", "POST", "/orders/42", HeaderList{{"x-http-method-override", "PATCH"}}, "", ""},
		{"in the query", "POST", "/orders/42?_method=GET", nil, "", "method_override"},
		{"in the query, escaped", "POST", "/orders/42?.method=%47et", nil, "", "method_override"},
		{"in a cookie", "POST", "/orders/42", cookie("_method=GET"), "", "method_override"},
		{"in a form", "POST", "/orders/42", formed, "a=b&_method=GET", "method_override"},
		{"in a form, rewritten", "POST", "/orders/42", formed, "a=b&+%5fmethod=get", "method_override"},
		{"in a form, to another", "POST", "/orders/42", formed, "_method=PUT", ""},
		{"in a form not seen", "POST", "/orders/42", formed, "", "needs body"},
		{"in multipart", "POST", "/orders/42", multi, strings.NewReplacer("%s", ".method", "x\r", "GET\r").Replace(part), "method_override"},
		{"in multipart, to another", "POST", "/orders/42", multi, strings.NewReplacer("%s", "_method", "x\r", "PUT\r").Replace(part), ""},
		{"in multipart, not certain", "POST", "/orders/42", multi, strings.NewReplacer("%s", "_method", "\r\n\r\nx", "\r\n\x00\r\nGET\r\n\r\nPUT").Replace(part), "method_override"},
		{"in multipart, unquoted", "POST", "/orders/42", multi, strings.NewReplacer(`"%s"`, "\t_method x", "x\r", "GET\r").Replace(part), "method_override"},
		{"near, overridden", "POST", "/orders/%34%32", HeaderList{{"x-http-method-override", "GET"}}, "", "method_override"},
		{"on a path that refuses other methods", "PUT", "/refund", HeaderList{{"x-http-method-override", "POST"}}, "", "other_method"},
	} {
		for _, b := range []Backend{Strict, PHP} {
			if got := r.answer(shopTable(t, b)); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
}

// TestUndeclaredFrontController has requests to a front controller of which no rule says how it
// chooses what it runs: they name no order.
func TestUndeclaredFrontController(t *testing.T) {
	formed := HeaderList{{"content-type", typeForm}}
	multi := HeaderList{{"content-type", "multipart/form-data; boundary=b"}}
	for _, r := range []oddRequest{
		{"the script", "GET", "/index.php?do=settle&id=42", nil, "", "front_controller"},
		{"a name of routes", "GET", "/?controller=orders", nil, "", "front_controller"},
		{"two slashes", "POST", "//?do=settle&id=42", nil, "", "front_controller"},
		{"as a host", "POST", "//x?do=settle&id=42", nil, "", "front_controller"},
		{"another name of an order", "GET", "/?do=show&order_id=42", nil, "", "front_controller"},
		{"rewritten name of an order", "GET", "/?do=show&order[id=42", nil, "", "front_controller"},
		{"semicolons", "GET", "/?do=show;id=42", nil, "", "front_controller"},
		{"order in a cookie", "GET", "/?do=show", HeaderList{{"cookie", "a=b; id=42"}}, "", "front_controller"},
		{"session in a cookie", "GET", "/?do=show", HeaderList{{"cookie", "id=8a7f"}}, "", ""},
		{"a cookie that a rule reads", "GET", "/", HeaderList{{"cookie", "cart=42"}}, "", ""},
		{"order in a form", "POST", "/index.php", formed, "do=settle&id=42", "front_controller"},
		{"order in multipart", "POST", "/", multi, strings.ReplaceAll(part, "%s", "id"), "front_controller"},
		{"order in multipart, behind many blanks", "POST", "/", multi, strings.ReplaceAll(part, "%s", strings.Repeat(" ", 600)+"id"), "front_controller"},
		{"order in multipart, with a long index", "POST", "/", multi, strings.ReplaceAll(part, "%s", "id["+strings.Repeat("x", 600)+"]"), "front_controller"},
		{"no order", "GET", "/?page=2", nil, "", ""},
		{"another script", "GET", "/login.php?next=/orders/42&route=x&id=42", nil, "", ""},
	} {
		for _, b := range []Backend{Strict, PHP} {
			table, err := NewTable([]Rule{
				{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
				{Name: "refund", Methods: []string{"POST"}, Path: "/refund", IDs: at(InForm, "order_id"), Backend: b},
				{Name: "cart", Methods: []string{"POST"}, Path: "/cart", IDs: at(InCookie, "cart"), Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
}

// TestRoutes has a shop whose front controller routes by a parameter with slashes, as OpenCart's
// and Yii's do: exactly what the rules spell is theirs, what a router may take for that is refused,
// and the rest passes.
func TestRoutes(t *testing.T) {
	formed := HeaderList{{"content-type", typeForm}}
	multi := HeaderList{{"content-type", "multipart/form-data; boundary=b"}}
	cookie := func(text string) HeaderList { return HeaderList{{"cookie", text}} }
	for _, r := range []oddRequest{
		{"a lookup", "GET", "/index.php?route=account/order.info&order_id=42", nil, "", "42"},
		{"its other spelling", "GET", "/index.php?route=account%2Forder.info&order_id=42", nil, "", "42"},
		{"a settlement", "POST", "/index.php?route=payment/cod.confirm&order_id=42", nil, "", "42"},
		{"by the folder", "POST", "/?route=payment/cod.confirm&order_id=42", nil, "", "path_near"},
		{"two parameters", "POST", "/index.php?route=api/order&call=cancel&order_id=42", nil, "", "42"},
		{"two parameters, of which one differs", "POST", "/index.php?route=api/order&call=show&order_id=42", nil, "", ""},
		{"two parameters, one in the form", "POST", "/index.php?route=api/order&call=show&order_id=42", formed, "call=cancel", "parameter_alias"},
		{"two parameters, one is missing", "POST", "/index.php?route=api/order&order_id=42", nil, "", ""},

		{"the home page", "GET", "/", nil, "", ""},
		{"the script alone", "GET", "/index.php", nil, "", ""},
		{"a page", "GET", "/index.php?route=product/product&product_id=42&order_id=7", nil, "", ""},
		{"a page by the folder", "GET", "/?route=common/home", nil, "", ""},
		{"a page with an array", "GET", "/index.php?route=product/search&filter[]=a&tag=x", nil, "", ""},
		{"a login", "POST", "/index.php?route=account/login.login&login_token=1", formed, "email=a%40b&password=x&redirect=http%3A%2F%2Fshop%2Findex.php%3Froute%3Daccount%2Forder.info", ""},
		{"an upload", "POST", "/index.php?route=tool/upload", multi, strings.ReplaceAll(part, "%s", "file"), ""},
		{"cookies", "GET", "/index.php?route=common/home", cookie("OCSESSID=42; currency=EUR; order_id=a"), "", ""},
		{"a page twice", "GET", "/index.php?route=common/home&route=common/other", nil, "", ""},
		{"an action", "GET", "/index.php?route=common/home&action=x&r=y", nil, "", ""},

		{"the default method", "POST", "/index.php?route=checkout/confirm.index", cookie("OCSESSID=4a3"), "", "parameter_alias"},
		{"other letters", "POST", "/index.php?route=payment/COD.confirm&order_id=42", nil, "", "parameter_alias"},
		{"another separator", "POST", "/index.php?route=payment/cod|confirm&order_id=42", nil, "", "parameter_alias"},
		{"a letter that is dropped", "POST", "/index.php?route=payment/c%25od.confirm&order_id=42", nil, "", "parameter_alias"},
		{"a NUL", "POST", "/index.php?route=payment/cod.confirm%00&order_id=42", nil, "", "parameter_alias"},
		{"a NUL and more", "POST", "/index.php?route=payment/cod.confirm%00.html&order_id=42", nil, "", "parameter_alias"},
		{"a slash in front", "POST", "/index.php?route=/payment/cod.confirm&order_id=42", nil, "", "parameter_alias"},
		{"escaped", "POST", "/index.php?route=payment%2Fcod.confirm&order_id=42", nil, "", "parameter_alias"},
		{"escaped twice", "POST", "/index.php?route=payment%252Fcod.confirm&order_id=42", nil, "", "parameter_alias"},
		{"as an array", "POST", "/index.php?route[]=payment/cod.confirm&order_id=42", nil, "", "parameter_alias"},
		{"an array of pages", "GET", "/index.php?route[]=common/home", nil, "", "parameter_alias"},
		{"another name", "POST", "/index.php?Route=payment/cod.confirm&order_id=42", nil, "", "parameter_alias"},
		{"twice", "POST", "/index.php?route=common/home&route=payment/cod.confirm&order_id=42", nil, "", "parameter_alias"},
		{"twice, the last a page", "POST", "/index.php?route=payment/cod.confirm&order_id=42&route=common/home", nil, "", "parameter_alias"},
		{"in the form", "POST", "/index.php?order_id=42", formed, "route=payment/cod.confirm", "parameter_alias"},
		{"in the form, beside a page", "POST", "/index.php?route=common/home&order_id=42", formed, "route=payment/cod.confirm", "parameter_alias"},
		{"in multipart", "POST", "/index.php?route=common/home", multi, strings.NewReplacer("%s", "route", "x\r", "payment/cod.confirm\r").Replace(part), "parameter_alias"},
		{"in a cookie", "POST", "/index.php?order_id=42", cookie("route=payment/cod.confirm"), "", "cookie_alias"},
		{"with semicolons", "POST", "/index.php?a=b;route=payment/cod.confirm", nil, "", "parameter_alias"},
		{"a cookie of the other rule", "POST", "/index.php?route=payment/cod.confirm&order_id=42", cookie("OCSESSID=4a3"), "", "42"},
		{"such a cookie with the ID of another order", "POST", "/index.php?route=payment/cod.confirm&order_id=42", cookie("OCSESSID=43"), "", "cookie_alias"},
		{"such a cookie with a page", "GET", "/index.php?route=common/home", cookie("OCSESSID=43"), "", ""},
		{"the rule of the cookie", "POST", "/index.php?route=checkout/confirm", cookie("OCSESSID=43"), "", "43"},
		{"another spelling of that cookie", "POST", "/index.php?route=payment/cod.confirm&order_id=42", cookie("OCSESS.ID=43"), "", "cookie_alias"},
	} {
		for _, b := range []Backend{Strict, PHP} {
			route := func(values ...string) map[string][]string { return map[string][]string{"route": values} }
			table, err := NewTable([]Rule{
				{Name: "lookup", Methods: []string{"GET"}, Path: "/index.php", Query: route("account/order.info", "account%2Forder.info"), IDs: at(InQuery, "order_id"), OtherMethods: true, Backend: b},
				{Name: "pay", Methods: []string{"POST"}, Path: "/index.php", Query: route("payment/cod.confirm"), IDs: at(InQuery, "order_id"), Backend: b},
				{Name: "confirm", Methods: []string{"POST"}, Path: "/index.php", Query: route("checkout/confirm"), IDs: []ID{{In: InCookie, Name: "OCSESSID", Format: pattern("[0-9a-f]+", 64)}}, Backend: b},
				{Name: "cancel", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"route": {"api/order"}, "call": {"cancel"}}, IDs: at(InQuery, "order_id"), Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
	for _, values := range [][]string{nil, {""}, {"//"}, {"a b"}, {"a&b"}, {"a;b"}, {"a#b"}, {"\u00e4"}} {
		if _, err := NewTable([]Rule{{Name: "r", Methods: []string{"GET"}, Path: "/x", Query: map[string][]string{"a": values}}}); err == nil {
			t.Errorf("values %q are accepted", values)
		}
	}
}

// TestClaims has a name by which another rule reads its ID: it has to agree.
func TestClaims(t *testing.T) {
	cookie := func(text string) HeaderList { return HeaderList{{"cookie", text}} }
	for _, r := range []oddRequest{
		{"another order", "GET", "/orders/43?order_id=42", nil, "", "parameter_alias"},
		{"the same", "GET", "/orders/43?order_id=43", nil, "", "43"},
		{"the same by the own name", "GET", "/orders/43?id=43", nil, "", "43"},
		{"the same, of another spelling", "GET", "/orders/43?order.id=43", nil, "", "parameter_alias"},
		{"the same in an array", "GET", "/orders/43?order_id[]=43", nil, "", "parameter_alias"},
		{"the same twice", "GET", "/orders/43?order_id=43&order_id=43", nil, "", "parameter_alias"},
		{"the same by two names", "GET", "/orders/43?order_id=43&id=43", nil, "", "43"},
		{"the same and another", "GET", "/orders/43?order_id=43&id=42", nil, "", "parameter_alias"},
		{"a leading zero", "GET", "/orders/43?order_id=043", nil, "", "parameter_alias"},
		{"open bracket", "GET", "/orders/43?order[id=42", nil, "", "parameter_alias"},
		{"open bracket, escaped", "GET", "/orders/43?order%5bid=42", nil, "", "parameter_alias"},
		{"blanks before", "GET", "/orders/43?++order_id=42", nil, "", "parameter_alias"},
		{"cookie", "GET", "/orders/43", cookie("order_id=42"), "", "cookie_alias"},
		{"cookie with an open bracket", "GET", "/orders/43", cookie("a=b; order[id=42"), "", "cookie_alias"},
		{"cookie that agrees", "GET", "/orders/43", cookie("order_id=43"), "", "43"},
		{"cookie and query", "GET", "/orders/43?order_id=43", cookie("order_id=43"), "", "43"},
		{"field of a form", "POST", "/refund", HeaderList{{"content-type", typeForm}}, "order_id=43&id=42", "parameter_alias"},
		{"field that agrees", "POST", "/refund", HeaderList{{"content-type", typeForm}}, "order_id=43&id=43", "43"},
		{"its own name with an open bracket", "POST", "/refund", HeaderList{{"content-type", typeForm}}, "order_id=43&order[id=42", "parameter_alias"},
		{"only with an open bracket", "POST", "/refund", HeaderList{{"content-type", typeForm}}, "order%5Bid=42", "parameter_alias"},
		{"a create names none", "POST", "/orders?id=42", nil, "", ""},
		{"harmless", "GET", "/orders/43?identity=42&order=1", nil, "", "43"},
	} {
		for _, b := range []Backend{Strict, PHP, Spring} {
			if got := r.answer(shopTable(t, b)); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
	// A servlet keeps a path and parameters apart.
	r := oddRequest{"servlet", "GET", "/orders/43?order_id=42", nil, "", "43"}
	if got := r.answer(shopTable(t, Tomcat)); got != r.want {
		t.Errorf("tomcat: got %q, want %q", got, r.want)
	}
}

// TestFrontControllersThatAreConfigured checks which paths count.
func TestFrontControllersThatAreConfigured(t *testing.T) {
	for _, tt := range []struct {
		controllers []string
		refused     string
	}{
		{nil, "/ /index.php"},
		{[]string{}, ""},
		{[]string{"/shop.php"}, "/shop.php /shop"},
	} {
		table, err := NewTable([]Rule{{Name: "r", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), FrontControllers: tt.controllers}})
		if err != nil {
			t.Fatal(err)
		}
		var refused []string
		for _, path := range []string{"/", "/index.php", "/shop.php", "/other.php", "/shop"} {
			if m := table.Match(Request{Method: "GET", Target: path + "?do=show&id=42"}); m.Result == Ambiguous && m.Screening && m.Rule == 0 {
				refused = append(refused, path)
			}
		}
		if diff := cmp.Diff(tt.refused, strings.Join(refused, " ")); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.controllers, diff)
		}
	}
}

// FuzzFrontController looks for what a front controller's request may not be: an order
// that is not there, or a panic.
func FuzzFrontController(f *testing.F) {
	f.Add("POST", "/index.php?action=settle&id=42", "action=show", typeForm, "id=42&_method=GET")
	f.Add("POST", "//x/orders/42?.method=get", "order[id=4", "multipart/form-data; boundary=b", strings.ReplaceAll(part, "%s", "_method"))
	f.Add("POST", "/refund?id=1", "", typeForm, "order_id=42&order[id=43")
	table := shopTable(f, Strict)
	f.Fuzz(func(t *testing.T, method, target, cookie, contentType, body string) {
		req := Request{Method: method, Target: target, Header: HeaderList{{"cookie", cookie}, {"content-type", contentType}}}
		unseen := table.Match(req)
		req.Body, req.BodyState = []byte(body), BodyComplete
		m := table.Match(req)
		if m.Result == NeedsBody || m.Result == Named && !isDigits(m.ID) || m.Rule >= 0 && table.rules[m.Rule].Pass {
			t.Errorf("%s %q, cookie %q, %s %q: %+v", method, target, cookie, contentType, body, m)
		}
		if unseen.Result == Ambiguous && (m.Result == Named || m.Result == Unruled) && body != "" {
			t.Errorf("%s %q, cookie %q, %s %q: %+v, and %+v with the body", method, target, cookie, contentType, body, unseen, m)
		}
	})
}

// TestOverrideOfAnExemptMethod has requests that a rule exempts under one method, and that
// backends may take for those of another: WordPress has ?_method and the header override any.
func TestOverrideOfAnExemptMethod(t *testing.T) {
	override := func(method string) HeaderList { return HeaderList{{"x-http-method-override", method}} }
	for _, r := range []oddRequest{
		{"exempt", "OPTIONS", "/orders/42/settle", nil, "", ""},
		{"by a header", "OPTIONS", "/orders/42/settle", override("POST"), "", "method_override"},
		{"by a header in another spelling", "OPTIONS", "/orders/42/settle", HeaderList{{"x_http.method_override", "post"}}, "", "method_override"},
		{"by a parameter", "OPTIONS", "/orders/42/settle?_method=POST", nil, "", "method_override"},
		{"by a cookie", "OPTIONS", "/orders/42/settle", HeaderList{{"cookie", "_method=POST"}}, "", "method_override"},
		{"by a method that nothing guards", "OPTIONS", "/orders/42/settle", override("PATCH"), "", ""},
		{"by a method that is refused", "OPTIONS", "/orders/42/settle", override("GET"), "", "method_override"},
		{"by its own", "OPTIONS", "/orders/42/settle", override("OPTIONS"), "", ""},
		{"to one that is exempt, too", "GET", "/orders/search?_method=POST", nil, "", ""},
		{"to one that is not", "GET", "/orders/export?_method=POST", nil, "", "method_override"},
		{"a form is not looked into", "POST", "/orders/43", HeaderList{{"content-type", typeForm}}, "_method=GET", ""},
		{"but the query", "POST", "/orders/43?_method=GET", HeaderList{{"content-type", typeForm}}, "_method=GET", "method_override"},
		{"of any case", "OPTIONS", "/Pay/42?_method=POST", nil, "", "method_override"},
	} {
		for _, b := range []Backend{Strict, Tomcat, Spring, PHP} {
			table, err := NewTable([]Rule{
				{Name: "preflight", Methods: []string{"OPTIONS"}, Path: "/orders/{id}/settle", Pass: true},
				{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id"), Backend: b},
				{Name: "search", Methods: []string{"GET", "POST"}, Path: "/orders/search", Pass: true},
				{Name: "export", Methods: []string{"GET"}, Path: "/orders/export", Pass: true},
				{Name: "upload", Methods: []string{"POST"}, Path: "/orders/43", Pass: true},
				{Name: "update", Methods: []string{"POST"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
				{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true, Backend: b},
				{Name: "pays", Methods: []string{"OPTIONS"}, Path: "/pay/{id}", IgnoreCase: true, Pass: true},
				{Name: "pay", Methods: []string{"POST"}, Path: "/pay/{id}", IgnoreCase: true, IDs: at(InPath, "id"), Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s %s: got %q, want %q", b, r.name, r.method, r.target, got, r.want)
			}
		}
	}
}
