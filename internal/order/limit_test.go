package order

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// limitedTable has a rule for each place of a limit's ID.
func limitedTable(t testing.TB) *Table {
	t.Helper()
	limit := func(ids []ID) *ID { return &ids[0] }
	code := Format{Kind: UUID, Case: Lower}
	rule := func(path string, ids []ID, limit *ID) Rule {
		return Rule{Name: path, Methods: []string{"POST"}, Path: path, IDs: ids, Limit: limit}
	}
	table, err := NewTable([]Rule{
		0: rule("/{merchant}/orders/{id}", at(InPath, "id"), limit(at(InPath, "merchant"))),
		1: rule("/q/{id}", at(InPath, "id"), limit(at(InQuery, "merchantId"))),
		2: rule("/h/{id}", at(InPath, "id"), limit(at(InHeader, "x-merchant"))),
		3: rule("/c/{id}", at(InPath, "id"), &ID{In: InCookie, Name: "merchant", Format: code}),
		4: rule("/f/{id}", at(InPath, "id"), limit(at(InForm, "merchantId"))),
		5: rule("/j/{id}", at(InPath, "id"), limit(inJSON("merchantId"))),
		6: rule("/jj", inJSON("orderId"), limit(inJSON("merchant", "number"))),
		7: rule("/batch", []ID{{In: InJSON, Members: []string{"ids"}, List: true, MaxList: 3, MaxBody: 1000, Format: digits}}, limit(inJSON("merchantId"))),
		8: {
			Name: "/spring", Methods: []string{"POST"}, Path: "/spring", Backend: Spring,
			IDs: inJSON("order", "id"), Limit: limit(inJSON("merchant", "id")),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestLimit(t *testing.T) {
	const id = "00000000-0000-4000-8000-00000000000a"
	json, form := HeaderList{{"content-type", typeJSON}}, HeaderList{{"content-type", typeForm}}
	tests := []struct {
		name, target string
		header       HeaderList
		body         string
		id, limit    string // "" when refused
		why          Reason
	}{
		{"path", "/7/orders/42", nil, "", "42", "7", NoReason},
		{"path, malformed", "/07/orders/42", nil, "", "", "", MalformedLimit},
		{"path, escaped", "/%37/orders/42", nil, "", "", "", MalformedLimit},
		{"path, order malformed", "/7/orders/042", nil, "", "", "", MalformedID},
		{"query", "/q/42?merchantId=7", nil, "", "42", "7", NoReason},
		{"query, the same number", "/q/42?merchantId=42", nil, "", "42", "42", NoReason},
		{"query, missing", "/q/42?a=7", nil, "", "", "", MissingLimit},
		{"query, empty", "/q/42?merchantId=", nil, "", "", "", MalformedLimit},
		{"query, twice", "/q/42?merchantId=7&merchantId=7", nil, "", "", "", RepeatedLimit},
		{"query, another spelling", "/q/42?merchantId=7&merchant_id=8", nil, "", "", "", ParameterAlias},
		{"query, brackets", "/q/42?merchantId=7&merchantId[]=8", nil, "", "", "", ParameterAlias},
		{"query and a form field", "/q/42?merchantId=7", form, "merchantId=8", "", "", FormBody},
		{"query and a cookie", "/q/42?merchantId=7", HeaderList{{"cookie", "merchantId=8"}}, "", "", "", CookieAlias},
		{"query, the order's name too", "/q/42?merchantId=7&id=43", nil, "", "", "", ParameterAlias},
		{"header", "/h/42", HeaderList{{"x-merchant", "7"}}, "", "42", "7", NoReason},
		{"header, twice", "/h/42", HeaderList{{"x-merchant", "7"}, {"x-merchant", "8"}}, "", "", "", RepeatedLimit},
		{"header, joined", "/h/42", HeaderList{{"x-merchant", "7,8"}}, "", "", "", MalformedLimit},
		{"header, as CGI spells it", "/h/42", HeaderList{{"x-merchant", "7"}, {"x_merchant", "8"}}, "", "", "", HeaderAlias},
		{"header, dropped", "/h/42", HeaderList{{"x-merchant", "7"}, {"connection", "x-merchant"}}, "", "", "", HeaderAlias},
		{"cookie", "/c/42", HeaderList{{"cookie", "merchant=" + strings.ToUpper(id)}}, "", "42", id, NoReason},
		{"cookie of another format", "/c/42", HeaderList{{"cookie", "merchant=7"}}, "", "", "", MalformedLimit},
		{"form", "/f/42", form, "a=b&merchantId=7", "42", "7", NoReason},
		{"form, twice", "/f/42", form, "merchantId=7&merchantId=8", "", "", RepeatedLimit},
		{"form, in the query too", "/f/42?merchantId=8", form, "merchantId=7", "", "", ParameterAlias},
		{"form of the order's name", "/f/42", form, "merchantId=7&id=43", "", "", ParameterAlias},
		{"JSON", "/j/42", json, `{"a":1,"merchantId":"7"}`, "42", "7", NoReason},
		{"JSON, missing", "/j/42", json, `{"a":1}`, "", "", MissingLimit},
		{"JSON, no body", "/j/42", HeaderList{{"content-length", "0"}}, ``, "", "", MissingLimit},
		{"JSON, null", "/j/42", json, `{"merchantId":null}`, "", "", MalformedLimit},
		{"JSON, a list", "/j/42", json, `{"merchantId":[7]}`, "", "", MalformedLimit},
		{"JSON, fraction", "/j/42", json, `{"merchantId":7.0}`, "", "", MalformedLimit},
		{"JSON, twice", "/j/42", json, `{"merchantId":7,"merchantId":7}`, "", "", BadJSON},
		{"JSON, another case", "/j/42", json, `{"merchantId":7,"MerchantID":8}`, "", "", JSONAlias},
		{"JSON, deeper too", "/j/42", json, `{"merchantId":7,"a":{"merchantid":8}}`, "", "", JSONAlias},
		{"JSON, in the query too", "/j/42?merchantId=8", json, `{"merchantId":7}`, "", "", ParameterAlias},
		{"JSON as text", "/j/42", HeaderList{{"content-type", "text/plain"}}, `{"merchantId":7}`, "", "", ContentType},
		{"both in JSON", "/jj", json, `{"orderId":42,"merchant":{"number":7}}`, "42", "7", NoReason},
		{"both in JSON, the other way round", "/jj", json, `{"merchant":{"number":7},"orderId":"42"}`, "42", "7", NoReason},
		{"both in JSON, order missing", "/jj", json, `{"merchant":{"number":7}}`, "", "", MissingID},
		{"both in JSON, both malformed", "/jj", json, `{"orderId":"x","merchant":{"number":"y"}}`, "", "", MalformedID},
		{"list", "/batch", json, `{"ids":[3,1],"merchantId":7}`, "1", "7", NoReason},
		{"list, limit missing", "/batch", json, `{"ids":[3,1]}`, "", "", MissingLimit},
		{"two members of one name", "/spring", json, `{"order":{"id":42},"merchant":{"id":7}}`, "42", "7", NoReason},
		{"two members of one name, order missing", "/spring", json, `{"merchant":{"id":7}}`, "", "", MissingID},
		{"the name at the top", "/spring", json, `{"order":{"id":42},"merchant":{"id":7},"id":8}`, "", "", JSONAlias},
	}
	table := limitedTable(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := table.Match(Request{Method: "POST", Target: tt.target, Header: tt.header, Body: []byte(tt.body), BodyState: BodyComplete})
			if m.ID != tt.id || m.Limit != tt.limit || m.Reason != tt.why || (m.Result == Named) != (tt.why == NoReason) {
				t.Errorf("%+v, want ID %q, limit %q, reason %q", m, tt.id, tt.limit, tt.why)
			}
			if invalid := tt.why == MissingID || tt.why == MalformedID || tt.why == MissingLimit || tt.why == MalformedLimit; (m.Result == Invalid) != invalid {
				t.Errorf("result %d with reason %q", m.Result, m.Reason)
			}
		})
	}
}

// TestLimitNeedsBody tells the order where the body is needed for the limit alone.
func TestLimitNeedsBody(t *testing.T) {
	table := limitedTable(t)
	for target, want := range map[string]Match{
		"/j/42":  {Result: NeedsBody, Rule: 5, ID: "42", Offset: -1},
		"/f/42":  {Result: NeedsBody, Rule: 4, ID: "42", Offset: -1},
		"/j/042": {Result: Invalid, Rule: 5, Reason: MalformedID, Offset: 3},
		"/jj":    {Result: NeedsBody, Rule: 6, Offset: -1},
		"/batch": {Result: NeedsBody, Rule: 7, Offset: -1},
	} {
		if diff := cmp.Diff(want, table.Match(Request{Method: "POST", Target: target})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", target, diff)
		}
	}
}

func TestLimitIsRefused(t *testing.T) {
	tests := []struct {
		name    string
		ids     []ID
		limit   ID
		backend Backend
		want    string // "" when it is not
	}{
		{"another place, another name", at(InPath, "id"), at(InQuery, "merchant")[0], Strict, ""},
		{"another place, one name", at(InPath, "id"), at(InQuery, "id")[0], Tomcat, "their names are alike"},
		{"one name by folding", at(InHeader, "x-order-id"), at(InCookie, "X_OrderId")[0], Strict, "their names are alike"},
		{"second entry", append(at(InPath, "id"), at(InForm, "oid")...), at(InHeader, "oid")[0], Strict, "their names are alike"},
		{"members of one name", inJSON("order", "id"), inJSON("merchant", "id")[0], Strict, "their names are alike"},
		{"members of one name, by path", inJSON("order", "id"), inJSON("merchant", "id")[0], PHP, ""},
		{"one member", inJSON("order", "id"), inJSON("order", "id")[0], PHP, "their names are alike"},
		{"list", at(InPath, "id"), ID{In: InJSON, Members: []string{"m"}, List: true, MaxList: 1, MaxBody: 1, Format: digits}, Strict, "not for a list"},
		{"unnamed", at(InPath, "id"), ID{In: InQuery, Format: digits}, Strict, "limit: the ID has no name"},
		{"no such segment", at(InPath, "id"), at(InPath, "merchant")[0], Strict, "has no segment {merchant}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewTable([]Rule{{
				Name: "r", Methods: []string{"POST"}, Path: "/o/{id}", IDs: tt.ids, Limit: &tt.limit, Backend: tt.backend,
			}})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestLimitChangesNoOrder holds a rule with a limit against the same rule without:
// what both accept names the same order, and a limit lets nothing more pass.
func TestLimitChangesNoOrder(t *testing.T) {
	plain := Rule{
		Name: "r", Methods: []string{"POST"}, Path: "/o/{id}",
		IDs: append(append(at(InPath, "id"), at(InQuery, "orderId")...), inJSON("order")...),
	}
	limited := plain
	limited.Limit = &inJSON("merchant")[0]
	without, err := NewTable([]Rule{plain})
	if err != nil {
		t.Fatal(err)
	}
	with, err := NewTable([]Rule{limited})
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for _, path := range []string{"42", "43", "4%32"} {
		for _, query := range []string{"", "?orderId=42", "?merchant=1", "?order_id=42", "?id=42", "?Merchant=1"} {
			for _, order := range []string{`"order":42`, `"order":"42"`, `"order":43`, `"Order":42`, `"x":1`} {
				for _, merchant := range []string{"", `,"merchant":7`, `,"merchant":"7"`, `,"merchant":"07"`, `,"Merchant":7`, `,"a":{"merchant":7}`} {
					req := Request{
						Method: "POST", BodyState: BodyComplete, Header: HeaderList{{"content-type", typeJSON}},
						Target: "/o/" + path + query, Body: []byte("{" + order + merchant + "}"),
					}
					a, b := without.Match(req), with.Match(req)
					if b.Result != Named {
						continue
					}
					accepted++
					if a.Result != Named || a.ID != b.ID || b.Limit != "7" {
						t.Fatalf("%s %s: %+v with a limit, %+v without", req.Target, req.Body, b, a)
					}
				}
			}
		}
	}
	if accepted == 0 {
		t.Error("nothing was accepted")
	}
}
