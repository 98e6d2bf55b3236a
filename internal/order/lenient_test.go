package order

import (
	"strings"
	"testing"
)

// settleRule is one settlement, for a backend.
func settleRule(t testing.TB, b Backend) *Table {
	t.Helper()
	table, err := NewTable([]Rule{{
		Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", Backend: b, IDs: at(InPath, "id"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestNear lists spellings that were seen to settle order 42 on some backend, and
// which profiles refuse them.
func TestNear(t *testing.T) {
	const s, tc, sp, p = "strict ", "tomcat ", "spring ", "php "
	tests := []struct{ target, refused string }{
		{"/orders/42/settle%3Bx", s + tc + sp + p},
		{"/orders;x/42/settle", s + tc + sp},
		{"/orders/43/..;/42/settle", s + tc + sp},
		{"/orders/43/%2e%2e;/42/settle", s + tc + sp},
		{"/orders/43/%252e%252e/42/settle", s + tc + sp + p},
		{"//orders/42/settle", s + tc + sp + p},
		{"/./orders/42/settle", s + tc + sp + p},
		{"/x/../orders/42/settle", s + tc + sp + p},
		{"/orders%2F42%2Fsettle", s + tc + sp + p},
		{"/orders%252F42%252Fsettle", s + tc + sp + p},
		{`/orders\42\settle`, s + tc + sp + p},
		{"/orders%5C42%5Csettle", s + tc + sp + p},
		{"/%6frders/42/settle", s + tc + sp + p},
		{"/orders/42/settle/", s + tc + sp + p}, // slashes are collapsed
		{"/orders/42/settle.json", s + sp + p},
		{"/orders/42/settle+", s + tc + sp + p},
		{"/orders/42/settle.", s + sp + p},
		{"/orders/42/settle%20", s + tc + sp + p},
		{"/orders/42/settle%0a", s + tc + sp + p},
		{"/ORDERS/42/settle", s},
		{"/order\u017f/42/\u017fettle", s},
		{"/order%C5%BF/42/settle", s},
		{"/index.php/orders/42/settle", s + p},
		{"/app.php/orders/42/settle", s + p},
		{"/?action=settle&id=42", s + p},
		{"/index.php?route=/orders/42/settle", s + p},
		{"/index.php?q=orders/42/settle", s + p},
		{"/index.php?/orders/42/settle", s + p},
		{"/%c0%afx/../orders/42/settle", s + tc + sp + p},
		{"/orders%c0%af42/settle", s + tc + sp + p},
		{"http://h/orders/42/settle", s + tc + sp + p},
		{"/orders/42/settle#x", s + tc + sp + p},
		{"/orders/42/settle%3Fx/y", s + tc + sp + p},
		{"/orders/42/settle%23x/y", s + tc + sp + p},
		{"/orders/4%00/settle", s + tc + sp + p},
		{"/orders/%zz42/settle", s + tc + sp + p},
		{"/x:80/?action=settle&id=42", s + p},
		{"/x/y:99999/z?route=/orders/42/settle", s + p},
		{"///x?route=/orders/42/settle", s + p},
		{"//x/?route=/orders/42/settle", s + p},
		{"/x:80/?page=2", ""},
		{"/x:y/?action=settle&id=42", ""},
		{"//static/app.js", ""},
	}
	for name, backend := range map[string]Backend{s: Strict, tc: Tomcat, sp: Spring, p: PHP} {
		table := settleRule(t, backend)
		for _, tt := range tests {
			m := table.Match(Request{Method: "POST", Target: tt.target})
			refused := m.Result == Ambiguous || m.Result == Invalid
			if refused != strings.Contains(tt.refused, name) {
				t.Errorf("%s: %q: %d (%s)", name, tt.target, m.Result, m.Reason)
			}
			if m.Result == Named {
				t.Errorf("%s: %q is taken for order %s", name, tt.target, m.ID)
			}
		}
	}
}

// TestUpperCaseTemplate has rules with upper-case letters. Every profile refuses other
// spellings of them, and only profiles that fold case refuse another case.
func TestUpperCaseTemplate(t *testing.T) {
	const s, tc, sp, p = "strict ", "tomcat ", "spring ", "php "
	tests := []struct{ target, refused string }{
		{"/paySuccess/", s + tc + sp + p},
		{"/paySuccess;a=b", s + tc + sp + p},
		{"/%70aySuccess", s + tc + sp + p},
		{"//paySuccess", s + tc + sp + p},
		{"/pay%53uccess", s + tc + sp + p},
		{"/paySuccess.do", s + sp + p},
		{"/Pay.do.json", s + sp + p},
		{"/Pay.do", ""},
		{"/Pay", ""},
		{"/Pay.json", ""},
		{"/paysuccess", s},
		{"/paysuccess/", s},
		{"/PAYSUCCESS", s},
		{"/paySuccessful", ""},
		{"/Orders/42/setPaid/", s + tc + sp + p},
		{"/Orders/4%32/setPaid/", s + tc + sp + p},
		{"/orders/42/setpaid", s},
		{"/Shop/View", s + tc + sp + p},
		{"/Shop/%56iew", s + tc + sp + p},
		{"/shop/view", s},
		{"/Admin", s + p},
		{"/Admin/", s + p},
		{"/Admin/index.php/x", s + p},
		{"/admin", s},
	}
	for name, backend := range map[string]Backend{s: Strict, tc: Tomcat, sp: Spring, p: PHP} {
		table, err := NewTable([]Rule{
			{Name: "pay", Methods: []string{"POST"}, Path: "/paySuccess", Backend: backend},
			{Name: "struts", Methods: []string{"POST"}, Path: "/Pay.do", Backend: backend},
			{Name: "paid", Methods: []string{"POST"}, Path: "/Orders/{id}/setPaid", Backend: backend, IDs: at(InPath, "id")},
			{Name: "folder", Methods: []string{"POST"}, Path: "/Shop/View/", Backend: backend},
			{Name: "script", Methods: []string{"POST"}, Path: "/Admin/index.php", Backend: backend},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range tests {
			m := table.Match(Request{Method: "POST", Target: tt.target})
			if refused := m.Result == Ambiguous; refused != strings.Contains(tt.refused, name) {
				t.Errorf("%s: %q: %d (%s)", name, tt.target, m.Result, m.Reason)
			}
		}
	}
}

// TestFar lists requests that are none of our business, whatever the profile.
func TestFar(t *testing.T) {
	for _, target := range []string{
		"/", "/favicon.ico", "/static/App.js?v=1.2", "/a%20b", "/search?q=orders", "/ORDERS", "/orders/", "/orders/42",
		"/orders/42/settlement", "/index.php", "/index.php?page=1", "/a;b", "/caf%C3%A9", "/x/orders/42/settle", "/?q=shoes",
		"/orders/42/settle/receipt", "/orders/42/7/settle.json",
	} {
		for _, b := range []Backend{Strict, Tomcat, Spring, PHP} {
			if m := settleRule(t, b).Match(Request{Method: "POST", Target: target}); m.Result != Unruled {
				t.Errorf("profile %d: %q: %d (%s)", b, target, m.Result, m.Reason)
			}
		}
	}
}

// TestOverrides lists what turns a plain request into another one.
func TestOverrides(t *testing.T) {
	tests := []struct {
		name, target string
		header       HeaderList
		want         Reason
	}{
		{"plain", "/orders/42/settle?note=1", HeaderList{{"cookie", "sid=1"}, {"content-type", "application/json"}, {"content-length", "0"}}, NoReason},
		{"empty form", "/orders/42/settle", HeaderList{{"content-type", typeForm}, {"content-length", "0"}}, NoReason},
		{"parameter of the ID's name", "/orders/42/settle?id=43", nil, ParameterAlias},
		{"folded", "/orders/42/settle?I_d=43", nil, ParameterAlias},
		{"escaped", "/orders/42/settle?%69d=43", nil, ParameterAlias},
		{"escaped twice", "/orders/42/settle?%2569d=43", nil, ParameterAlias},
		{"array", "/orders/42/settle?id[]=43", nil, ParameterAlias},
		{"leading blank", "/orders/42/settle?+id=43", nil, ParameterAlias},
		{"routing", "/orders/42/settle?action=refund", nil, ParameterAlias},
		{"method in the query", "/orders/42/settle?_method=DELETE", nil, MethodOverride},
		{"method in the query, escaped", "/orders/42/settle?%5Fmethod=DELETE", nil, MethodOverride},
		{"method in the query, the rule's own", "/orders/42/settle?_method=POST", nil, NoReason},
		{"method in the query, the rule's own in lower case", "/orders/42/settle?_method=post", nil, MethodOverride},
		{"method header, the rule's own", "/orders/42/settle", HeaderList{{"x-http-method-override", "POST"}}, NoReason},
		{"a harmless method", "/orders/42/settle?method=card", nil, NoReason},
		{"semicolon", "/orders/42/settle?a=1;id=43", nil, ParameterSpelling},
		{"cookie of the ID's name", "/orders/42/settle", HeaderList{{"cookie", "a=b; id=43"}}, CookieAlias},
		{"form body", "/orders/42/settle", HeaderList{{"content-type", typeForm}}, FormBody},
		{"multipart body", "/orders/42/settle", HeaderList{{"content-type", "multipart/form-data; boundary=x"}}, FormBody},
		{"method header", "/orders/42/settle", HeaderList{{"x-http-method-override", "GET"}}, MethodOverride},
		{"our own header, as CGI spells it", "/orders/42/settle", HeaderList{{"x.ordergate.key", "order:lock:43"}}, HeaderAlias},
		{"our own header, spelt by PHP", "/orders/42/settle", HeaderList{{"x_ordergate_fence", "9"}}, HeaderAlias},
		{"our own header, plain", "/orders/42/settle", HeaderList{{"x-ordergate-key", "order:lock:43"}}, NoReason},
		{"URL header", "/orders/42/settle", HeaderList{{"x-original-url", "/orders/43/settle"}}, URLOverride},
		{"prefix header", "/orders/42/settle", HeaderList{{"x-forwarded-prefix", "/x"}}, URLOverride},
		{"too many parameters", "/orders/42/settle?" + strings.Repeat("a=1&", 501), nil, TooManyParameters},
	}
	table := settleRule(t, Strict)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := table.Match(Request{Method: "POST", Target: tt.target, Header: tt.header})
			if m.Reason != tt.want || (m.Result == Named) != (tt.want == NoReason) {
				t.Errorf("result %d, reason %q, want %q", m.Result, m.Reason, tt.want)
			}
		})
	}
}

// TestExemption lets a literal path pass beside a template that it fits.
func TestExemption(t *testing.T) {
	table, err := NewTable([]Rule{
		{Name: "search", Methods: []string{"GET"}, Path: "/orders/search", Pass: true},
		{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if m := table.Match(Request{Method: "GET", Target: "/orders/search?id=7"}); m.Result != Unruled || m.Rule != -1 {
		t.Errorf("exempt: %+v", m)
	}
	if m := table.Match(Request{Method: "GET", Target: "/orders/%73earch"}); m.Result != Invalid {
		t.Errorf("another spelling: %+v", m)
	}
}

// TestOffset points at the byte that is to blame.
func TestOffset(t *testing.T) {
	table := settleRule(t, Strict)
	tests := []struct {
		target string
		want   int
	}{
		{"/orders/42/settle;x", 17},
		{"/orders/4x/settle", 8},
		{"//orders/42/settle", 1},
		{"/orders/42/settle?a;b", 1},
	}
	for _, tt := range tests {
		if m := table.Match(Request{Method: "POST", Target: tt.target}); m.Offset != tt.want {
			t.Errorf("%q: offset %d (%s), want %d", tt.target, m.Offset, m.Reason, tt.want)
		}
	}
}
