package order

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestMatchBody draws requests with a body. What MatchBody returns for the rule that Find has found without
// the body is what Match returns for all of the request.
func TestMatchBody(t *testing.T) {
	tables := make(map[string]*Table)
	for name, b := range map[string]Backend{"strict": Strict, "tomcat": Tomcat, "spring": Spring, "php": PHP} {
		tables["shop, "+name] = shopTable(t, b)
		for kind, rules := range map[string][]Rule{
			"plain": {
				{Name: "create", Methods: []string{"POST"}, Path: "/new", OtherMethods: true},
				{Name: "replace", Methods: []string{"PUT"}, Path: "/new", IDs: at(InQuery, "id")},
			},
			"script": {
				{Name: "help", Methods: []string{"GET", "POST"}, Path: "/index.php", Query: map[string][]string{"action": {"help"}}, Pass: true},
				{Name: "settle", Methods: []string{"POST"}, Path: "/index.php", Host: "shop", Query: map[string][]string{"action": {"settle"}}, IDs: at(InForm, "id")},
				{Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true},
			},
			"mixed": {
				{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id"), Host: "shop"},
				{Name: "other host", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: inJSON("id"), Host: "pay"},
				{Name: "query", Methods: []string{"POST", "GET"}, Path: "/orders", IDs: at(InQuery, "id"), OtherMethods: true},
				{Name: "json", Methods: []string{"POST"}, Path: "/settle", IDs: inJSON("order", "id"), Parts: []Part{{"tenant", at(InHeader, "x-tenant")[0]}}},
				{Name: "nameless", Methods: []string{"POST"}, Path: "/new", IDs: inJSON("id"), Optional: true, Nameless: true},
				{Name: "form", Methods: []string{"PUT"}, Path: "/settle", IDs: at(InForm, "id"), Query: map[string][]string{"action": {"settle"}}, OtherMethods: true},
				{Name: "cookie", Methods: []string{"POST"}, Path: "/cart", IDs: at(InCookie, "JSESSIONID"), UntypedJSON: true},
			},
		} {
			for i := range rules {
				rules[i].Backend = b
			}
			table, err := NewTable(rules)
			if err != nil {
				t.Fatal(err)
			}
			tables[kind+", "+name] = table
		}
	}
	continued := make(map[Result]int)
	check := func(t *rapid.T) {
		of := func(name string, texts ...string) string { return rapid.SampledFrom(texts).Draw(t, name) }
		name := rapid.SampledFrom(slices.Sorted(maps.Keys(tables))).Draw(t, "table")
		table := tables[name]
		req := Request{
			Method: of("method", "POST", "POST", "POST", "PUT", "GET", "DELETE"), Host: of("host", "shop", "shop", "pay", "else", "shop:", ""),
			Target: of("path", "/orders/42/settle", "/orders/42/settle", "/orders", "/orders/42", "/settle", "/new", "/cart", "/cart;jsessionid=7", "/refund", "/index.php", "/index.php", "/Settle", "/settle/") +
				of("query", "", "", "?id=42", "?id=7", "?action=settle&id=42", "?action=show", "?_method=PUT", "?a=%2Fsettle", "?id=42&id=42", "?action=settle&u=/orders/42", "?action=settle&u=/orders/42", "?action=help"),
		}
		var header HeaderList
		add := func(name string, texts ...string) {
			if text := of(name, texts...); text != "" {
				header = append(header, [2]string{name, text})
			}
		}
		add("content-type", "", "application/json", "application/json", typeForm, "multipart/form-data; boundary=b", "text/plain", "application/vnd.form+json")
		add("x-tenant", "", "5")
		add("cookie", "", "JSESSIONID=7", "id=42", "action=settle")
		add("x-forwarded-host", "", "", "", "pay", "else")
		add("x-http-method-override", "", "", "", "PUT")
		add("content-encoding", "", "", "", "gzip")
		body := of("body", "", `{"id":42}`, `{"id":"42"}`, `{"id":7}`, `{"order":{"id":42}}`, `{"order_id":42,"action":"settle"}`, `{"_method":"PUT"}`, `{`,
			"id=42", "id=7&x=1", "order_id=42", "action=settle&id=42", "_method=PUT", "_method=GET", "x=1", fmt.Sprintf(part, "id"), strings.Repeat("x", 1001))
		length := fmt.Sprint(len(body))
		add("content-length", "", length, length, length, "0")
		add("transfer-encoding", "", "", "chunked")
		req.Header = header
		var head, got Match
		found := table.Find(&req, &head)
		whole := req
		whole.Body, whole.BodyState = []byte(body), BodyComplete
		if of("cut", "", "", "", "cut") != "" {
			whole.BodyState = BodyCut
		}
		if found != (Found{}) {
			continued[head.Result]++
		}
		table.MatchBody(&whole, found, &got)
		if diff := cmp.Diff(table.Match(whole), got); diff != "" {
			t.Fatalf("%s: %+v without the body, then (-from the start +gone on):\n%s", name, head, diff)
		}
	}
	for range 100 { // of 100 requests each
		rapid.Check(t, check)
	}
	if continued[Named] == 0 || continued[NeedsBody] == 0 || continued[Anonymous] == 0 {
		t.Errorf("went on %v", continued)
	}
}
