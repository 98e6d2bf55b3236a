package order

import (
	"strings"
	"testing"
)

// TestContinuedRoutes has values with segments behind those of a rule, which old routers ignore.
func TestContinuedRoutes(t *testing.T) {
	formed := HeaderList{{"content-type", typeForm}}
	for _, r := range []oddRequest{
		{"the rule", "POST", "/index.php?route=payment/cod/confirm", nil, "", ""},
		{"continued", "POST", "/index.php?route=payment/cod/confirm/x", nil, "", "parameter_alias"},
		{"continued by an empty segment", "POST", "/index.php?route=payment/cod/confirm/", nil, "", "parameter_alias"},
		{"continued often", "POST", "/index.php?route=payment/cod/confirm/x/y", nil, "", "parameter_alias"},
		{"continued and escaped", "POST", "/index.php?route=payment/cod/confirm%252Fx", nil, "", "parameter_alias"},
		{"continued and folded", "POST", "/index.php?route=Payment/cod-/confirm/x", nil, "", "parameter_alias"},
		{"the default method, continued", "POST", "/index.php?route=checkout/confirm/index/x", nil, "", "parameter_alias"},
		{"continued, with segments that are dropped", "POST", "/index.php?route=payment//-/cod/+/confirm/x", nil, "", "parameter_alias"},
		{"in a form", "POST", "/index.php", formed, "route=payment/cod/confirm/x", "parameter_alias"},
		{"another method", "POST", "/index.php?route=payment/cod/confirmation/x", nil, "", ""},
		{"a shorter route, continued by a parameter of Yii 1", "POST", "/index.php?route=checkout/confirm/id/42", nil, "", "parameter_alias"},
		{"a shorter route, in other letters", "POST", "/index.php?route=Checkout//confirm/x", nil, "", "parameter_alias"},
		{"another page of its folder", "POST", "/index.php?route=checkout/confirmation/id/42", nil, "", ""},
		{"an exempt route", "POST", "/index.php?route=checkout/cart", nil, "", ""},
		{"another page below an exempt route", "POST", "/index.php?route=checkout/cart/add", nil, "", ""},
		{"a page of one word", "POST", "/index.php?route=wishlist/add", nil, "", ""},
		{"a rule of its own", "POST", "/index.php?route=payment/cod/confirm/later", nil, "", ""},
		{"that one in other letters", "POST", "/index.php?route=payment/cod/confirm/Later", nil, "", "parameter_alias"},
	} {
		for _, b := range []Backend{Strict, PHP} {
			route := func(values ...string) map[string][]string { return map[string][]string{"route": values} }
			table, err := NewTable([]Rule{
				{Name: "confirm", Methods: []string{"POST"}, Path: "/index.php", Query: route("payment/cod/confirm", "checkout/confirm", "wishlist"), Backend: b},
				{Name: "cart", Methods: []string{"POST"}, Path: "/index.php", Query: route("checkout/cart"), Pass: true, Backend: b},
				{Name: "later", Methods: []string{"POST"}, Path: "/index.php", Query: route("payment/cod/confirm/later"), Pass: true, Backend: b},
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

// TestChoicesInBodies has fields and members that choose what runs, for backends that take them
// before the parameters of the query.
func TestChoicesInBodies(t *testing.T) {
	formed, json := HeaderList{{"content-type", typeForm}}, HeaderList{{"content-type", typeJSON}}
	multi := HeaderList{{"content-type", "multipart/form-data; boundary=b"}}
	session := func(h HeaderList) HeaderList { return append(HeaderList{{"cookie", "SID=5"}}, h...) }
	const s, sp, tc, p = "strict ", "spring ", "tomcat ", "php "
	for _, r := range []struct {
		name, target string
		header       HeaderList
		body         string
		refused      string // by which profiles
	}{
		{"no ID: another page", "/shop?do=create", formed, "do=home", s + sp + p},
		{"no ID: another rule", "/shop?do=create", formed, "a=b&do=pay", s + sp + p},
		{"no ID: the same", "/shop?do=create", formed, "do=create&comment=x", ""},
		{"no ID: a form", "/shop?do=create", formed, "comment=x&id=7", ""},
		{"no ID: in multipart", "/shop?do=create", multi, strings.NewReplacer("%s", "do", "x\r", "pay\r").Replace(part), s + sp + p},
		{"no ID: an upload", "/shop?do=create", multi, strings.ReplaceAll(part, "%s", "file"), ""},
		{"no ID: in JSON", "/shop?do=create", json, `{"do":"pay"}`, s + p},
		{"no ID: JSON", "/shop?do=create", json, `{"comment":"x"}`, ""},
		{"no ID: a method", "/shop?do=create", formed, "_method=PUT", s + sp + p},
		{"no ID, and none of the parameters", "/any", formed, "do=pay", s + sp + p + tc},
		{"no ID, and none of the parameters: multipart", "/any", multi, strings.NewReplacer("%s", "do", "x\r", "pay\r").Replace(part), s + sp + p + tc},
		{"no ID, and none of the parameters: JSON", "/any", json, `{"do":"pay"}`, s + p},
		{"no ID, and none of the parameters, in other letters", "/any", formed, "DO=Pay", s + sp + p + tc},
		{"no ID, and none of the parameters: another page", "/any", formed, "do=home", ""},
		{"a session: another rule", "/shop?do=confirm", session(formed), "do=pay", s + sp + p},
		{"a session: a form", "/shop?do=confirm", session(formed), "agree=1", ""},
		{"a session: multipart", "/shop?do=confirm", session(multi), strings.ReplaceAll(part, "%s", "agree"), ""},
		{"a session: another session", "/shop?do=confirm", session(formed), "SID=6", s + sp + p},
		{"a session: another session in another spelling", "/shop?do=confirm", session(formed), "SID[]=6", s + sp + p},
		{"a session: the same", "/shop?do=confirm", session(formed), "SID=5", ""},
		{"an ID in a form: another rule", "/form", formed, "id=5&do=pay", s + sp + p + tc},
		{"an ID in a form", "/form", formed, "id=5&do=home", ""},
		{"an ID in JSON: another rule", "/json", json, `{"id":5,"do":"pay"}`, s + p},
		{"an ID in JSON", "/json", json, `{"id":5,"do":"home"}`, ""},
		{"an ID in the query: another rule", "/query?id=5", json, `{"do":"pay"}`, s + p},
		{"an ID in the query", "/query?id=5", json, `{"do":"home"}`, ""},
	} {
		for name, b := range map[string]Backend{s: Strict, sp: Spring, tc: Tomcat, p: PHP} {
			do := func(value string) map[string][]string { return map[string][]string{"do": {value}} }
			post := func(path string, ids []ID) Rule {
				return Rule{Name: path, Methods: []string{"POST"}, Path: path, IDs: ids, Backend: b}
			}
			rules := []Rule{post("/shop", nil), post("/shop", at(InQuery, "id")), post("/shop", at(InCookie, "SID"))}
			for i, value := range []string{"create", "pay", "confirm"} {
				rules[i].Query = do(value)
			}
			for path, ids := range map[string][]ID{"/any": nil, "/form": at(InForm, "id"), "/query": at(InQuery, "id"),
				"/json": {{In: InJSON, Members: []string{"id"}, MaxBody: 1000, Format: digits}}} {
				chosen := post(path, at(InQuery, "number"))
				chosen.Query = do("pay")
				rules = append(rules, chosen, post(path, ids))
			}
			table, err := NewTable(rules)
			if err != nil {
				t.Fatal(err)
			}
			m := table.Match(Request{Method: "POST", Target: r.target, Header: r.header, Body: []byte(r.body), BodyState: BodyComplete})
			if refused := m.Result == Ambiguous; refused != strings.Contains(r.refused, name) || m.Result == NeedsBody || m.Result == Unruled {
				t.Errorf("%s: %s: %s %s: result %d (%s)", name, r.name, r.target, r.body, m.Result, m.Reason)
			}
		}
	}
}

// TestOverrideBesideSettlement has a create that reads no ID, on the path of a settlement by another
// method, which a field of a form selects to many frameworks.
func TestOverrideBesideSettlement(t *testing.T) {
	formed := HeaderList{{"content-type", typeForm}}
	for b, reason := range map[Backend]string{Strict: "method_override", Spring: "method_override", PHP: "method_override", Tomcat: ""} {
		table, err := NewTable([]Rule{
			{Name: "create", Methods: []string{"POST"}, Path: "/orders", Backend: b},
			{Name: "settle", Methods: []string{"PUT"}, Path: "/orders", IDs: at(InHeader, "x-order"), Backend: b},
			{Name: "comment", Methods: []string{"POST"}, Path: "/comments", Backend: b},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []oddRequest{
			{"the settlement", "POST", "/orders", formed, "a=b&_method=PUT", reason},
			{"the create", "POST", "/orders", formed, "a=b&_method=POST", ""},
			{"another path", "POST", "/comments", formed, "_method=PUT", ""},
		} {
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: got %q, want %q", b, r.name, got, r.want)
			}
		}
	}
}

// TestCharsets has forms and queries in charsets whose letters are not those of ASCII: Tomcat decodes
// a form's names by its charset, and a query's with useBodyEncodingForURI.
func TestCharsets(t *testing.T) {
	const form, multi = typeForm + "; charset=", "multipart/form-data; boundary=b"
	field := func(name string) string { return strings.ReplaceAll(part, `"%s"`, name) }
	for _, r := range []struct {
		name, method, target, contentType, body, want string
	}{
		{"do=pay in EBCDIC", "POST", "/order", form + "ibm037", "%84%96=%97%81%a8", "content_type"},
		{"do=pay in UTF-16", "POST", "/order", form + `"UTF-16BE"`, "%00d%00o=%00p%00a%00y", "content_type"},
		{"a form that is not seen", "POST", "/order", form + "utf-16", "", "content_type"},
		{"in multipart", "POST", "/order", "multipart/form-data; charset=cp037; boundary=b", "--b--", "content_type"},
		{"two charsets", "POST", "/order", form + "utf-8;charset=cp037", "a=b", "content_type"},
		{"an order of the rule in the query", "GET", "/pay?id=43&%89%84=%f4%f2", "text/plain;Charset = ibm037", "", "content_type"},
		{"do=pay in the query", "POST", "/order?%84%96=%97%81%a8", "text/plain;charset=ibm037", "", "content_type"},
		{"do=pay in the query, of a path without such a rule", "GET", "/orders?%84%96=%97%81%a8", "text/plain;charset=ibm037", "", ""},
		{"a name of RFC 2231", "POST", "/order", multi, strings.ReplaceAll(field("utf-8''%64%6f"), "name=", "name*="), "parameter_alias"},
		{"a name of RFC 2047", "POST", "/order", multi, field(`"=?utf-8?B?ZG8=?="`), "parameter_alias"},
		{"a name of RFC 2047 without quotes", "POST", "/order", multi, field(" =?utf-8?Q?=64=6F?="), "parameter_alias"},
		{"a value in EBCDIC", "POST", "/order", multi, strings.NewReplacer("%s", "do", "\r\n\r\nx", "\r\nContent-Type: text/plain; charset=ibm037\r\n\r\n\x97\x81\xa8").Replace(part), "parameter_alias"},
		{"a name on another line", "POST", "/order", multi, strings.NewReplacer("name=", "name\r\n\v=", "\nx", "\npay").Replace(field(`"do"`)), "parameter_alias"},
		{"a value that some find elsewhere", "POST", "/order", multi, strings.ReplaceAll(field(`"do"`), "\r\n\r\nx", "\r\nX: \n\nx\n--\r\n\r\npay"), "parameter_alias"},
		{"a value that others find elsewhere", "POST", "/order", multi, strings.ReplaceAll(field(`"do"`), "\r\n\r\nx", "\n\r\nx\n--\r\n\r\npay"), "parameter_alias"},
		{"a value in base64", "POST", "/order", multi, strings.NewReplacer("\r\n\r\nx", "\r\nContent-Transfer-Encoding: BASE64\r\n\r\ncGF5").Replace(field(`"do"`)), "content_encoding"},
		{"a value that is said to be plain", "POST", "/order", multi, strings.NewReplacer("\r\n\r\nx", "\r\nContent-Transfer-Encoding: 8bit\r\n\r\nx").Replace(field(`"do"`)), ""},
		{"another field", "POST", "/order", multi, field(`"do"`), ""},
		{"an upload", "POST", "/order", multi, field(`"file"; filename*=utf-8''%e2%82%ac; filename="=?utf-8?B?ZG8=?="`), ""},
		{"SOAP", "POST", "/order", "text/xml; charset=utf-16", "<a/>", ""},
		{"UTF-8", "POST", "/order", form + "UTF-8", "a=%C3%A4", ""},
		{"Latin 1", "POST", "/order", form + `"iso-8859-1"`, "a=%E4", ""},
		{"GBK", "POST", "/order", form + "gbk", "a=%C4%E3", ""},
	} {
		for _, b := range []Backend{Strict, Tomcat, Spring} {
			table, err := NewTable([]Rule{
				{Name: "pay", Methods: []string{"POST"}, Path: "/order", Query: map[string][]string{"do": {"pay"}}, IDs: at(InQuery, "id"), Backend: b},
				{Name: "create", Methods: []string{"POST"}, Path: "/order", Backend: b},
				{Name: "link", Methods: []string{"GET"}, Path: "/pay", IDs: at(InQuery, "id"), Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			req := oddRequest{r.name, r.method, r.target, HeaderList{{"content-type", r.contentType}}, r.body, r.want}
			if got := req.answer(table); got != r.want {
				t.Errorf("profile %d: %s: got %q, want %q", b, r.name, got, r.want)
			}
		}
	}
}
