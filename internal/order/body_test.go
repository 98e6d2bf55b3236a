package order

import (
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	table := testTable(t)
	json := HeaderList{{"content-type", "application/json; charset=UTF-8"}}
	deep := strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)
	tests := []struct {
		name, body string
		header     HeaderList
		id         string // "" when refused
		why        Reason
	}{
		{"number", `{"order":{"id":42}}`, json, "42", NoReason},
		{"string", `{"x":[{"no":1}],"order":{"a":{},"id":"42"},"y":null}`, json, "42", NoReason},
		{"the name at another depth", `{"x":[{"id":1}],"order":{"id":42}}`, json, "", JSONAlias},
		{"the name on the way", `{"id":{"x":1},"order":{"id":42}}`, json, "", JSONAlias},
		{"blanks", " {\n\"order\" : { \"id\" : 42 } }\n", json, "42", NoReason},
		{"missing", `{"order":{}}`, json, "", MissingID},
		{"elsewhere", `{"order":{"x":1},"a":{"id":42}}`, json, "", JSONAlias},
		{"empty", ``, json, "", MissingID},
		{"leading zero in a string", `{"order":{"id":"042"}}`, json, "", MalformedID},
		{"fraction", `{"order":{"id":42.0}}`, json, "", MalformedID},
		{"exponent", `{"order":{"id":4.2e1}}`, json, "", MalformedID},
		{"minus", `{"order":{"id":-42}}`, json, "", MalformedID},
		{"escaped value", `{"order":{"id":"4\u0032"}}`, json, "", MalformedID},
		{"null", `{"order":{"id":null}}`, json, "", MalformedID},
		{"array", `{"order":{"id":[42]}}`, json, "", MalformedID},
		{"twice", `{"order":{"id":42,"id":42}}`, json, "", BadJSON},
		{"twice, outside", `{"order":{"id":42},"order":{"id":43}}`, json, "", BadJSON},
		{"twice, escaped", `{"order":{"id":42,"\u0069d":43}}`, json, "", BadJSON},
		{"escaped name only", `{"order":{"\u0069d":42}}`, json, "", JSONAlias},
		{"other case", `{"order":{"id":42,"ID":43}}`, json, "", JSONAlias},
		{"underscore", `{"order":{"id":42},"Or_der":{"id":43}}`, json, "", JSONAlias},
		{"trailing text", `{"order":{"id":42}} x`, json, "", BadJSON},
		{"second document", `{"order":{"id":42}}{}`, json, "", BadJSON},
		{"array around", `[{"order":{"id":42}}]`, json, "", BadJSON},
		{"comment", `{"order":{"id":42}/**/}`, json, "", BadJSON},
		{"trailing comma", `{"order":{"id":42,}}`, json, "", BadJSON},
		{"single quotes", `{'order':{'id':42}}`, json, "", BadJSON},
		{"byte order mark", "\ufeff" + `{"order":{"id":42}}`, json, "", BadJSON},
		{"not UTF-8", "{\"a\":\"\xff\",\"order\":{\"id\":42}}", json, "", BadJSON},
		{"NUL", "{\"order\":{\"id\":42}}\x00", json, "", BadJSON},
		{"too deep", `{"b":` + deep + `,"order":{"id":42}}`, json, "", BadJSON},
		{"cut off", `{"order":{"id":42}`, json, "", BadJSON},
		{"no content type", `{"order":{"id":42}}`, nil, "", ContentType},
		{"other type", `{"order":{"id":42}}`, HeaderList{{"content-type", "text/plain"}}, "", ContentType},
		{"other charset", `{"order":{"id":42}}`, HeaderList{{"content-type", "application/json; charset=utf-7"}}, "", ContentType},
		{"two types", `{"order":{"id":42}}`, HeaderList{{"content-type", "application/json"}, {"content-type", "application/json"}}, "", ContentType},
		{"encoded", `{"order":{"id":42}}`, append(HeaderList{{"content-encoding", "gzip"}}, json...), "", ContentEncoding},
		{"too large", `{"order":{"id":42},"x":"` + strings.Repeat("x", 1000) + `"}`, json, "", BodyTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := table.Match(Request{Method: "POST", Target: "/json", Header: tt.header, Body: []byte(tt.body), BodyState: BodyComplete})
			if m.ID != tt.id || m.Reason != tt.why || (m.Result == Named) != (tt.id != "") {
				t.Errorf("result %d, ID %q, reason %q; want %q, %q", m.Result, m.ID, m.Reason, tt.id, tt.why)
			}
		})
	}
	t.Run("untyped", func(t *testing.T) {
		untyped, err := NewTable([]Rule{{Name: "json", Methods: []string{"POST"}, Path: "/json", UntypedJSON: true, IDs: []ID{
			{In: InJSON, Members: []string{"order", "id"}, MaxBody: 1000, Format: Format{Kind: Digits, Min: 1, Max: 19}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name, body string
			header     HeaderList
			why        Reason
		}{
			{"JSON", `{"order":{"id":42}}`, nil, NoReason},
			{"a form", `order=42`, nil, BadJSON},
			{"twice", `{"order":{"id":42,"id":42}}`, nil, BadJSON},
			{"an empty type", `{"order":{"id":42}}`, HeaderList{{"content-type", ""}}, ContentType},
			{"other type", `{"order":{"id":42}}`, HeaderList{{"content-type", "text/plain"}}, ContentType},
			{"encoded", `{"order":{"id":42}}`, HeaderList{{"content-encoding", "gzip"}}, ContentEncoding},
		} {
			m := untyped.Match(Request{Method: "POST", Target: "/json", Header: tt.header, Body: []byte(tt.body), BodyState: BodyComplete})
			if m.Reason != tt.why || (m.Result == Named) != (tt.why == NoReason) {
				t.Errorf("%s: result %d, reason %q, want %q", tt.name, m.Result, m.Reason, tt.why)
			}
		}
	})
	if m := table.Match(Request{Method: "POST", Target: "/json", Header: json, Body: []byte(`{"order":{"id":42}}`), BodyState: BodyCut}); m.Result != TooLarge {
		t.Errorf("a body that was cut: %+v", m)
	}
}

func TestJSONTypes(t *testing.T) {
	for _, tt := range []struct {
		only         JSONType
		text, number bool
	}{{AnyType, true, true}, {OnlyString, true, false}, {OnlyNumber, false, true}} {
		ids := inJSON("id")
		ids[0].JSONType = tt.only
		table, err := NewTable([]Rule{{Methods: []string{"POST"}, Path: "/", IDs: ids}})
		if err != nil {
			t.Fatal(err)
		}
		for body, want := range map[string]bool{`{"id":"42"}`: tt.text, `{"id":42}`: tt.number} {
			m := table.Match(Request{
				Method: "POST", Target: "/", Header: HeaderList{{"content-type", typeJSON}},
				Body: []byte(body), BodyState: BodyComplete,
			})
			if (m.Result == Named) != want {
				t.Errorf("type %d: %s: %+v", tt.only, body, m)
			}
		}
	}
}

func TestForm(t *testing.T) {
	table := testTable(t)
	tests := []struct {
		name, query, body string
		contentType       string
		id                string
		why               Reason
	}{
		{"plain", "", "a=%20&orderId=42", typeForm, "42", NoReason},
		{"twice", "", "orderId=42&orderId=42", typeForm, "", RepeatedID},
		{"cut at NUL", "", "orderId=43&orderId%00x=42", typeForm, "", ParameterAlias},
		{"NUL before it", "", "orderId=43&%00orderId=42", typeForm, "", ParameterAlias},
		{"tab behind it", "", "orderId=43&orderId%09=42", typeForm, "", ParameterAlias},
		{"array", "", "orderId=42&orderId[]=43", typeForm, "", ParameterAlias},
		{"dot", "", "orderId=42&order.id=43", typeForm, "", ParameterAlias},
		{"escaped name", "", "order%49d=42", typeForm, "", ParameterAlias},
		{"escaped value", "", "orderId=4%32", typeForm, "", MalformedID},
		{"in the query too", "orderId=42", "orderId=42", typeForm, "", ParameterAlias},
		{"semicolon", "", "a=1;orderId=42", typeForm, "", BadForm},
		{"line end", "", "orderId=42\n", typeForm, "", BadForm},
		{"multipart", "", "orderId=42", "multipart/form-data", "", ContentType},
		{"JSON", "", `{"orderId":42}`, typeJSON, "", ContentType},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := table.Match(Request{
				Method: "POST", Target: "/form?" + tt.query, Header: HeaderList{{"content-type", tt.contentType}},
				Body: []byte(tt.body), BodyState: BodyComplete,
			})
			if m.ID != tt.id || m.Reason != tt.why {
				t.Errorf("result %d, ID %q, reason %q; want %q, %q", m.Result, m.ID, m.Reason, tt.id, tt.why)
			}
		})
	}
}

func TestBatch(t *testing.T) {
	table := testTable(t)
	tests := []struct {
		body string
		want string // the IDs
		why  Reason
	}{
		{`{"ids":[44,"42",43]}`, "42 43 44", NoReason},
		{`{"ids":[42]}`, "", NoReason},
		{`{"ids":[]}`, "", MissingID},
		{`{"ids":[42,42]}`, "", RepeatedInList},
		{`{"ids":[42,"42"]}`, "", RepeatedInList},
		{`{"ids":[1,2,3,4]}`, "", MalformedID},
		{`{"ids":[1,[2]]}`, "", MalformedID},
		{`{"ids":42}`, "", MalformedID},
	}
	for _, tt := range tests {
		m := table.Match(Request{
			Method: "POST", Target: "/batch", Header: HeaderList{{"content-type", typeJSON}},
			Body: []byte(tt.body), BodyState: BodyComplete,
		})
		if strings.Join(m.Batch, " ") != tt.want || m.Reason != tt.why || (m.Result == Named) != (tt.why == NoReason) {
			t.Errorf("%s: %+v", tt.body, m)
		}
	}
}

// TestBatchInText reads the IDs of a list that is one text.
func TestBatchInText(t *testing.T) {
	table, err := NewTable([]Rule{{
		Name: "batch", Methods: []string{"POST"}, Path: "/batch",
		IDs: []ID{{In: InJSON, Members: []string{"ids"}, List: true, Separator: ",", MaxList: 3, MaxBody: 1000, Format: digits}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		body string
		want string // the IDs
		why  Reason
	}{
		{`{"ids":"44,42,43"}`, "42 43 44", NoReason},
		{`{"ids":"42"}`, "42", NoReason},
		{`{"ids":42}`, "42", NoReason},
		{`{"ids":""}`, "", MalformedID},
		{`{"ids":"42,"}`, "", MalformedID},
		{`{"ids":"42, 43"}`, "", MalformedID},
		{`{"ids":"42\u002c43"}`, "", MalformedID},
		{`{"ids":"42,42"}`, "", RepeatedInList},
		{`{"ids":"1,2,3,4"}`, "", MalformedID},
		{`{"ids":[1,2]}`, "", MalformedID},
	} {
		m := table.Match(Request{
			Method: "POST", Target: "/batch", Header: HeaderList{{"content-type", typeJSON}},
			Body: []byte(tt.body), BodyState: BodyComplete,
		})
		got := strings.Join(m.Batch, " ")
		if got == "" {
			got = m.ID
		}
		if got != tt.want || m.Reason != tt.why || (m.Result == Named) != (tt.why == NoReason) {
			t.Errorf("%s: %+v", tt.body, m)
		}
	}
}

// FuzzBody checks that any body gets an answer, and that an ID stands in it.
func FuzzBody(f *testing.F) {
	f.Add("/json", typeJSON, `{"order":{"id":42}}`)
	f.Add("/json", typeJSON, `{"order":{"id":"4\u0032"},"Order":1}`)
	f.Add("/form", typeForm, "orderId=42&a=b")
	f.Add("/batch", typeJSON, `{"ids":[1,"2"]}`)
	table := testTable(f)
	f.Fuzz(func(t *testing.T, target, contentType, body string) {
		m := table.Match(Request{
			Method: "POST", Target: target, Header: HeaderList{{"content-type", contentType}},
			Body: []byte(body), BodyState: BodyComplete,
		})
		if m.Result == Named && !strings.Contains(target+body, m.ID) {
			t.Errorf("ID %q stands neither in %q nor in %q", m.ID, target, body)
		}
		if m.Result == NeedsBody {
			t.Error("asks for the body that it has")
		}
	})
}

// FuzzScan holds the quick reading of JSON against the thorough one: what the
// first accepts the second accepts, with the same IDs.
func FuzzScan(f *testing.F) {
	for _, body := range []string{
		`{"order":{"id":42}}`, `{"id":"42","a":[1,2.5e3,true,null,{"b":"c\\n"}],"c":{}}`, `{"id":42,"Id":43}`, `{"iD":1}`,
		`{"id":1,"id":2}`, `{"a":{"a":1,"a":2},"id":3}`, `{"id":-0}`, "{\"id\":\"\xff\"}", `{"id":42}x`, `{"\u0069d":1}`,
		`{"order":{"id":42},"order":1}`, `{"id":1,"i_d":2}`, `{"id":1,"merchant":"7"}`, ` { "id" : 1 } `, `{"x":"\ud800","id":1}`, `{"id":01}`,
	} {
		f.Add([]byte(body))
	}
	var rules []*compiled
	merchant := inJSON("merchant")
	for _, r := range []Rule{
		{IDs: inJSON("id")}, {IDs: inJSON("order", "id")}, {IDs: append(inJSON("id"), at(InQuery, "nr")...)},
		{IDs: inJSON("id"), Limit: &merchant[0]}, {IDs: at(InQuery, "id"), Limit: &merchant[0]},
	} {
		r.Methods, r.Path = []string{"POST"}, "/"
		c, _, err := compile(r)
		if err != nil {
			f.Fatal(err)
		}
		rules = append(rules, &c)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, r := range rules {
			quick, slow := make([]idText, len(r.IDs)), make([]idText, len(r.IDs))
			if !r.scanJSON(body, quick) {
				continue
			}
			if reason := r.parseJSON(body, slow, &Match{}); reason != NoReason {
				t.Fatalf("%q: accepted, but: %s", body, reason)
			}
			for i := range quick {
				if quick[i].text != slow[i].text || quick[i].times != slow[i].times {
					t.Fatalf("%q: ID %d is %+v, want %+v", body, i, quick[i], slow[i])
				}
			}
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	table := testTable(b)
	filler := strings.Repeat(`{"sku":"ABC-123","price":1299,"quantity":2},`, 20)
	body := []byte(`{"lines":[` + strings.TrimSuffix(filler, ",") + `],"note":"leave at the door","order":{"id":1234567890}}`)
	req := Request{
		Method: "POST", Target: "/json", Header: HeaderList{{"content-type", typeJSON}}, Body: body, BodyState: BodyComplete,
	}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if table.Match(req).Result != Named {
			b.Fatal("no match")
		}
	}
}

// TestCookiesBehindCommas has cookies that parsers of RFC 2109 find, and others do not.
func TestCookiesBehindCommas(t *testing.T) {
	for cookie, want := range map[string]string{
		"orderId=43": "43",
		"a=1,2; x=order, id; orderId=43; b=x,y=z":          "43",
		"$Version=1; orderId=43; $Path=/":                  "43",
		"$Version=1; x=1, orderId=42; orderId=43":          "cookie_alias",
		"orderId=43; x=1,orderId=42":                       "cookie_alias",
		`$Version="1"; x="1" , orderId = "42"; orderId=43`: "cookie_alias",
		"orderId=43; x, orderId=42":                        "cookie_alias",
		"orderId=43; x=1,y=2,orderId=42":                   "cookie_alias",
		"orderId=43, orderId=42":                           "cookie_alias",
	} {
		for _, b := range []Backend{Strict, Tomcat, Spring, PHP} {
			table, err := NewTable([]Rule{{Name: "settle", Methods: []string{"POST"}, Path: "/settle", IDs: at(InCookie, "orderId"), Backend: b}})
			if err != nil {
				t.Fatal(err)
			}
			r := oddRequest{method: "POST", target: "/settle", header: HeaderList{{"cookie", cookie}, {"content-length", "0"}}}
			if got := r.answer(table); got != want {
				t.Errorf("profile %d: %s: got %q, want %q", b, cookie, got, want)
			}
		}
	}
}

// TestNamesOfForms has media types that are no forms though their names have the word in
// them, and odd ones that a backend may take for one.
func TestNamesOfForms(t *testing.T) {
	for contentType, want := range map[string]string{
		"application/vnd.platform.v1+json":                                  "42",
		"application/vnd.platform.v1+xml":                                   "42",
		"application/x-information":                                         "42",
		"application/formula":                                               "42",
		"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "42",
		"application/x-www-form-urlencoded":                                 "form_body",
		"Application/X-WWW-Form-Urlencoded, text/plain":                     "form_body",
		"application/x-www-form-urlencoded\tx":                              "form_body",
		"multipart/form-data; boundary=b":                                   "form_body",
		"multipart/mixed; boundary=b":                                       "form_body",
		"application/form":                                                  "form_body",
		"text/plain; x=form":                                                "form_body",
		"platform/x-form":                                                   "form_body",
		"application/x-www-urlencoded":                                      "form_body",
	} {
		for _, b := range []Backend{Strict, Spring, PHP} {
			r := oddRequest{"", "POST", "/orders/42/settle", HeaderList{{"content-type", contentType}}, `{"amount":1}`, want}
			if got := r.answer(settleRule(t, b)); got != want {
				t.Errorf("profile %d: %s: got %q, want %q", b, contentType, got, want)
			}
			r.target = "/index.php"
			r.body = `{"x":"a;b&id=42"}`
			want := map[string]string{"42": "", "form_body": "front_controller"}[want]
			if strings.HasPrefix(contentType, "multipart") {
				want = "" // it has no field's name
			}
			if got := r.answer(settleRule(t, b)); got != want && b != Spring {
				t.Errorf("profile %d, a front controller: %s: got %q, want %q", b, contentType, got, want)
			}
		}
	}
}

// TestTypeOfNoBody has requests with the type of a body, of which nobody knows whether they
// have one.
func TestTypeOfNoBody(t *testing.T) {
	table, err := NewTable([]Rule{{Name: "any", Methods: []string{"GET", "DELETE", "POST"}, Path: "/orders/{id}", IDs: at(InPath, "id")}})
	if err != nil {
		t.Fatal(err)
	}
	types := []string{typeForm, typeForm + "; charset=UTF-8", "multipart/form-data; boundary=b", typeJSON}
	for _, contentType := range types {
		header := HeaderList{{"content-type", contentType}}
		for _, tt := range []struct {
			name, method string
			header       HeaderList
			state        BodyState
			want         Result
		}{
			{"unseen", "GET", header, BodyUnseen, NeedsBody},
			{"HEAD", "HEAD", header, BodyUnseen, NeedsBody},
			{"DELETE", "DELETE", header, BodyUnseen, NeedsBody},
			{"none", "GET", header, BodyComplete, Named},
			{"empty", "GET", append(HeaderList{{"content-length", "0"}}, header...), BodyUnseen, Named},
			{"announced", "GET", append(HeaderList{{"content-length", "5"}}, header...), BodyUnseen, Ambiguous},
			{"announced in chunks", "GET", append(HeaderList{{"transfer-encoding", "chunked"}}, header...), BodyUnseen, Ambiguous},
		} {
			m := table.Match(Request{Method: tt.method, Target: "/orders/42", Header: tt.header, BodyState: tt.state})
			if m.Result != tt.want || m.Result != Ambiguous && m.ID != "42" {
				t.Errorf("%s, %s: %+v", contentType, tt.name, m)
			}
		}
		if contentType == typeJSON {
			continue
		}
		for _, m := range []Match{
			table.Match(Request{Method: "POST", Target: "/orders/42", Header: header, BodyState: BodyUnseen}),
			table.Match(Request{Method: "GET", Target: "/orders/42", Header: header, Body: []byte("id=43"), BodyState: BodyComplete}),
		} {
			if m.Reason != FormBody {
				t.Errorf("%s: %+v", contentType, m)
			}
		}
	}
}
