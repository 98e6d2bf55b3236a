package order

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// tenant is the format of the parts in these tests.
var tenant = pattern(`[a-z0-9:.-]{1,32}`, 32)

func pattern(expr string, most int) Format {
	re, err := CompilePattern(expr, AsIs)
	if err != nil {
		panic(err)
	}
	return Format{Kind: Pattern, Min: 1, Max: most, Pattern: re}
}

// partAt is a part named tenant.
func partAt(in Location, name string) Part {
	id := ID{In: in, Name: name, Format: tenant, MaxBody: 1000}
	if in == InJSON {
		id.Name, id.Members, id.MaxBody = "", strings.Split(name, "."), 1000
	}
	return Part{Name: "tenant", ID: id}
}

// partsTable has a rule for each place of a part.
func partsTable(t testing.TB) *Table {
	t.Helper()
	rule := func(path string, ids []ID, parts ...Part) Rule {
		return Rule{Name: path, Methods: []string{"POST"}, Path: path, IDs: ids, Parts: parts}
	}
	optional := rule("/new", inJSON("id"), partAt(InHeader, "x-tenant"))
	optional.Optional = true
	limited := rule("/limited/{id}", at(InPath, "id"), partAt(InHeader, "x-tenant"))
	limited.Limit = &at(InQuery, "merchant")[0]
	table, err := NewTable([]Rule{
		0:  rule("/t/{tenant}/orders/{id}", at(InPath, "id"), partAt(InPath, "tenant")),
		1:  rule("/q/{id}", at(InPath, "id"), partAt(InQuery, "tenantId")),
		2:  rule("/h/{id}", at(InPath, "id"), partAt(InHeader, "x-tenant")),
		3:  rule("/c/{id}", at(InPath, "id"), Part{"tenant", ID{In: InCookie, Name: "tenant", Format: Format{Kind: UUID, Case: Lower}}}),
		4:  rule("/f/{id}", at(InPath, "id"), partAt(InForm, "tenantId")),
		5:  rule("/j/{id}", at(InPath, "id"), partAt(InJSON, "tenant.name")),
		6:  rule("/two/{id}", at(InPath, "id"), partAt(InHeader, "x-tenant"), Part{"shop", at(InQuery, "shop")[0]}),
		7:  rule("/batch", []ID{{In: InJSON, Members: []string{"ids"}, List: true, MaxList: 3, MaxBody: 1000, Format: digits}}, partAt(InHeader, "x-tenant")),
		8:  rule("/create", nil, partAt(InHeader, "x-tenant")),
		9:  optional,
		10: limited,
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestParts(t *testing.T) {
	const uuid = "00000000-0000-4000-8000-00000000000a"
	json, form := HeaderList{{"content-type", typeJSON}}, HeaderList{{"content-type", typeForm}}
	acme := HeaderList{{"x-tenant", "acme"}}
	tests := []struct {
		name, target string
		header       HeaderList
		body         string
		id, prefix   string // "" when refused
		why          Reason
	}{
		{"path", "/t/acme/orders/42", nil, "", "acme/42", "acme/", NoReason},
		{"path, escaped", "/t/%61cme/orders/42", nil, "", "", "", MalformedPart},
		{"path, upper case", "/t/Acme/orders/42", nil, "", "", "", MalformedPart},
		{"path, escaped slash", "/t/a%2Fb/orders/42", nil, "", "", "", MalformedPart},
		{"path, a dot segment", "/t/../orders/42", nil, "", "", "", MalformedPart},
		{"path, order malformed", "/t/acme/orders/042", nil, "", "", "", MalformedID},
		{"path, in the query too", "/t/acme/orders/42?tenant=acme", nil, "", "", "", ParameterAlias},
		{"path, in a cookie too", "/t/acme/orders/42", HeaderList{{"cookie", "tenant=other"}}, "", "", "", CookieAlias},
		{"query", "/q/42?tenantId=acme", nil, "", "acme/42", "acme/", NoReason},
		{"query, missing", "/q/42", nil, "", "", "", MissingPart},
		{"query, empty", "/q/42?tenantId=", nil, "", "", "", MalformedPart},
		{"query, twice", "/q/42?tenantId=acme&tenantId=acme", nil, "", "", "", RepeatedPart},
		{"query, another spelling", "/q/42?tenantId=acme&tenant_id=b", nil, "", "", "", ParameterAlias},
		{"query, as PHP spells it", "/q/42?tenantId=acme&tenant.id=b", nil, "", "", "", ParameterAlias},
		{"query, brackets", "/q/42?tenantId=acme&tenantId[]=b", nil, "", "", "", ParameterAlias},
		{"query, an escaped name", "/q/42?tenantId=acme&%74enantId=b", nil, "", "", "", ParameterAlias},
		{"query, only another spelling", "/q/42?TenantID=acme", nil, "", "", "", ParameterAlias},
		{"query and a form field", "/q/42?tenantId=acme", form, "tenantId=b", "", "", FormBody},
		{"query and a cookie", "/q/42?tenantId=acme", HeaderList{{"cookie", "tenantId=b"}}, "", "", "", CookieAlias},
		{"query and a JSON member", "/q/42?tenantId=acme", json, `{"tenantId":"b"}`, "", "", JSONAlias},
		{"header", "/h/42", acme, "", "acme/42", "acme/", NoReason},
		{"header, missing", "/h/42", nil, "", "", "", MissingPart},
		{"header, empty", "/h/42", HeaderList{{"x-tenant", ""}}, "", "", "", MalformedPart},
		{"header, twice", "/h/42", HeaderList{{"x-tenant", "acme"}, {"x-tenant", "acme"}}, "", "", "", RepeatedPart},
		{"header, joined", "/h/42", HeaderList{{"x-tenant", "acme,b"}}, "", "", "", MalformedPart},
		{"header, a slash", "/h/42", HeaderList{{"x-tenant", "acme/1"}}, "", "", "", MalformedPart},
		{"header, blanks", "/h/42", HeaderList{{"x-tenant", " acme"}}, "", "", "", MalformedPart},
		{"header, as CGI spells it", "/h/42", HeaderList{{"x-tenant", "acme"}, {"x_tenant", "b"}}, "", "", "", HeaderAlias},
		{"header, only as CGI spells it", "/h/42", HeaderList{{"x_tenant", "b"}}, "", "", "", HeaderAlias},
		{"header, dropped", "/h/42", HeaderList{{"x-tenant", "acme"}, {"connection", "x-tenant"}}, "", "", "", HeaderAlias},
		{"header, too long", "/h/42", HeaderList{{"x-tenant", strings.Repeat("a", 33)}}, "", "", "", MalformedPart},
		{"header, both malformed", "/h/042", HeaderList{{"x-tenant", "Acme"}}, "", "", "", MalformedID},
		{"cookie, canonical", "/c/42", HeaderList{{"cookie", "tenant=" + strings.ToUpper(uuid)}}, "", uuid + "/42", strings.ToUpper(uuid) + "/", NoReason},
		{"form", "/f/42", form, "a=b&tenantId=acme", "acme/42", "acme/", NoReason},
		{"form, twice", "/f/42", form, "tenantId=acme&tenantId=b", "", "", RepeatedPart},
		{"form, in the query too", "/f/42?tenantId=b", form, "tenantId=acme", "", "", ParameterAlias},
		{"JSON", "/j/42", json, `{"tenant":{"name":"acme"}}`, "acme/42", "acme/", NoReason},
		{"JSON, missing", "/j/42", json, `{"tenant":{}}`, "", "", MissingPart},
		{"JSON, null", "/j/42", json, `{"tenant":{"name":null}}`, "", "", MalformedPart},
		{"JSON, a list", "/j/42", json, `{"tenant":{"name":["acme"]}}`, "", "", MalformedPart},
		{"JSON, twice", "/j/42", json, `{"tenant":{"name":"acme","name":"b"}}`, "", "", BadJSON},
		{"JSON, another case", "/j/42", json, `{"tenant":{"name":"acme","Name":"b"}}`, "", "", JSONAlias},
		{"two", "/two/42?shop=7", acme, "", "acme/7/42", "acme/7/", NoReason},
		{"two, the second missing", "/two/42", acme, "", "", "", MissingPart},
		{"two, the first missing", "/two/42?shop=7", nil, "", "", "", MissingPart},
		{"list", "/batch", append(acme, json...), `{"ids":[3,1]}`, "acme/1", "acme/", NoReason},
		{"list, part missing", "/batch", json, `{"ids":[3,1]}`, "", "", MissingPart},
		{"list of one", "/batch", append(acme, json...), `{"ids":[3]}`, "acme/3", "acme/", NoReason},
		{"create", "/create", acme, "", "", "acme/", NoReason},
		{"create, missing", "/create", nil, "", "", "", MissingPart},
		{"create, a form with the part", "/create", append(acme, form...), "x-tenant=b", "", "", ParameterAlias},
		{"create with an ID", "/new", append(acme, json...), `{"id":42}`, "acme/42", "acme/", NoReason},
		{"create without an ID", "/new", append(acme, json...), `{}`, "", "acme/", NoReason},
		{"create without an ID or a part", "/new", json, `{}`, "", "", MissingPart},
		{"limit", "/limited/42?merchant=7", acme, "", "acme/42", "acme/", NoReason},
		{"limit, missing", "/limited/42", acme, "", "", "", MissingLimit},
		{"limit, part missing", "/limited/42?merchant=7", nil, "", "", "", MissingPart},
	}
	table := partsTable(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := table.Match(Request{Method: "POST", Target: tt.target, Header: tt.header, Body: []byte(tt.body), BodyState: BodyComplete})
			if m.ID != tt.id || m.Prefix != tt.prefix || m.Reason != tt.why || (m.Result == Named || m.Result == Anonymous) != (tt.why == NoReason) {
				t.Errorf("%+v, want ID %q, prefix %q, reason %q", m, tt.id, tt.prefix, tt.why)
			}
			if invalid := tt.why == MissingID || tt.why == MalformedID || tt.why == MissingPart || tt.why == MalformedPart || tt.why == MissingLimit; (m.Result == Invalid) != invalid {
				t.Errorf("result %d with reason %q", m.Result, m.Reason)
			}
			for _, id := range m.Batch {
				if Prefix(id) != m.Prefix {
					t.Errorf("batch %q with prefix %q", m.Batch, m.Prefix)
				}
			}
		})
	}
}

// TestPartsNeedBody has requests that were matched without their body.
func TestPartsNeedBody(t *testing.T) {
	table := partsTable(t)
	for target, want := range map[string]Match{
		"/j/42":  {Result: NeedsBody, Rule: 5, Offset: -1},
		"/f/42":  {Result: NeedsBody, Rule: 4, Offset: -1},
		"/batch": {Result: NeedsBody, Rule: 7, Offset: -1},
	} {
		if diff := cmp.Diff(want, table.Match(Request{Method: "POST", Target: target})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", target, diff)
		}
	}
}

func TestPartsAreRefused(t *testing.T) {
	long := Format{Kind: Digits, Min: 1, Max: 200}
	for _, tt := range []struct {
		name    string
		ids     []ID
		parts   []Part
		limit   *ID
		backend Backend
		want    string // "" when it is not
	}{
		{"another name", at(InPath, "id"), []Part{partAt(InHeader, "x-tenant")}, nil, Strict, ""},
		{"the order's name", at(InPath, "id"), []Part{partAt(InQuery, "ID")}, nil, Tomcat, "taken for the order's ID"},
		{"the order's name by folding", at(InHeader, "x-order"), []Part{partAt(InCookie, "X_Order")}, nil, Strict, "taken for the order's ID"},
		{"one name of two parts", at(InPath, "id"), []Part{partAt(InQuery, "t"), {"shop", at(InHeader, "T")[0]}}, nil, Strict, "taken for part tenant"},
		{"the limit's name", at(InPath, "id"), []Part{partAt(InQuery, "m")}, &at(InHeader, "m")[0], Strict, "taken for part tenant"},
		{"members of one name", inJSON("order", "id"), []Part{partAt(InJSON, "tenant.id")}, nil, Strict, "taken for the order's ID"},
		{"members of one name, by path", inJSON("order", "id"), []Part{partAt(InJSON, "tenant.id")}, nil, PHP, ""},
		{"list", at(InPath, "id"), []Part{{"tenant", ID{In: InJSON, Members: []string{"m"}, List: true, MaxList: 1, MaxBody: 1, Format: digits}}}, nil, Strict, "not a list"},
		{"unnamed", at(InPath, "id"), []Part{partAt(InQuery, "")}, nil, Strict, "the ID has no name"},
		{"no such segment", at(InPath, "id"), []Part{partAt(InPath, "tenant")}, nil, Strict, "has no segment {tenant}"},
		{"too long", []ID{{In: InPath, Name: "id", Format: long}}, []Part{{"tenant", ID{In: InQuery, Name: "t", Format: long}}}, nil, Strict, "at most 256"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewTable([]Rule{{
				Name: "r", Methods: []string{"POST"}, Path: "/o/{id}", IDs: tt.ids, Parts: tt.parts, Limit: tt.limit, Backend: tt.backend,
			}})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestComposedIDsDiffer draws pairs of orders: two that differ in a part or in the ID never
// have one composed ID, and each composed ID is canonical for its rule alone.
func TestComposedIDsDiffer(t *testing.T) {
	table, err := NewTable([]Rule{{
		Name: "r", Methods: []string{"POST"}, Path: "/o", IDs: []ID{{In: InHeader, Name: "id", Format: pattern(".*", 64)}},
		Parts: []Part{{"a", ID{In: InHeader, Name: "first", Format: pattern(".*", 64)}}, {"b", ID{In: InHeader, Name: "second", Format: tenant}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	any64, own := pattern(".*", 64), tenant
	composed := ComposedOf([]Format{any64, own}, any64)
	// Few letters make equal texts likely.
	text := rapid.StringMatching(`[ab1:-]{1,3}`)
	rapid.Check(t, func(t *rapid.T) {
		var ids [2]string
		var texts [2][3]string
		for i := range ids {
			for n := range texts[i] {
				texts[i][n] = text.Draw(t, "text")
			}
			m := table.Match(Request{Method: "POST", Target: "/o", BodyState: BodyComplete, Header: HeaderList{
				{"first", texts[i][0]}, {"second", texts[i][1]}, {"id", texts[i][2]},
			}})
			if m.Result != Named {
				t.Skip("not an order")
			}
			ids[i] = m.ID
			if again, ok := composed.Canonical(m.ID); !ok || again != m.ID {
				t.Fatalf("%q is not canonical: %q, %v", m.ID, again, ok)
			}
			if _, ok := any64.Canonical(m.ID); ok {
				t.Fatalf("%q is an ID without parts", m.ID)
			}
			if strings.Count(m.ID, Separator) != 2 || m.Prefix+texts[i][2] != m.ID {
				t.Fatalf("%q is composed of %q", m.ID, texts[i])
			}
		}
		if (ids[0] == ids[1]) != (texts[0] == texts[1]) {
			t.Fatalf("%q and %q have IDs %q and %q", texts[0], texts[1], ids[0], ids[1])
		}
	})
}

func TestComposedFormat(t *testing.T) {
	uuid, dated := Format{Kind: UUID, Case: Lower}, Format{Kind: Timestamped, Min: 1, Max: 19, Layout: "20060102"}
	f := ComposedOf([]Format{uuid}, dated)
	const upper, lower = "5B6EF3C2-1111-4222-8333-444455556666", "5b6ef3c2-1111-4222-8333-444455556666"
	for text, want := range map[string]string{
		lower + "/2026022412": lower + "/2026022412", upper + "/2026022412": lower + "/2026022412",
		"2026022412": "", "/2026022412": "", lower: "", lower + "/": "", lower + "/" + lower: "", lower + "//2026022412": "",
		lower + "/2026022412/": "", lower + "/20260224/1": "", "a/" + lower + "/2026022412": "", "": "",
	} {
		got, ok := f.Canonical(text)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, ok, want)
		}
	}
	if at, ok := f.Time(lower + "/2026022412"); !ok || at.Format("20060102") != "20260224" {
		t.Errorf("time %v, %v", at, ok)
	}
	if step, ok := f.Resolution(); !ok || step != day {
		t.Errorf("resolution %v, %v", step, ok)
	}
	if err := f.check(); err != nil {
		t.Error(err)
	}
	for _, bad := range []Format{{Kind: Composed}, {Kind: Composed, Composite: &Composite{}}, ComposedOf([]Format{f}, dated), ComposedOf([]Format{{}}, dated)} {
		if bad.check() == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// BenchmarkMatchParts has the cost of a part beside that of the same rule without.
func BenchmarkMatchParts(b *testing.B) {
	req := Request{Method: "POST", Target: "/o/1234567890", BodyState: BodyComplete, Header: HeaderList{{"x-tenant", "acme"}, {"accept", "*/*"}}}
	for name, parts := range map[string][]Part{"none": nil, "one": {partAt(InHeader, "x-tenant")}} {
		b.Run("parts="+name, func(b *testing.B) {
			table, err := NewTable([]Rule{{Name: "r", Methods: []string{"POST"}, Path: "/o/{id}", IDs: at(InPath, "id"), Parts: parts}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if table.Match(req).Result != Named {
					b.Fatal("no match")
				}
			}
		})
	}
}

// TestPartsOfOtherRules has parameters by which other rules read a part: a front controller
// may merge all names.
func TestPartsOfOtherRules(t *testing.T) {
	rule := func(backend Backend, path string, part Part) Rule {
		return Rule{Name: path, Methods: []string{"POST"}, Path: path, Backend: backend, IDs: at(InPath, "id"), Parts: []Part{part}}
	}
	for _, tt := range []struct {
		target  string
		backend Backend
		why     Reason
	}{
		{"/h/42?merchant=acme", Strict, NoReason},
		{"/h/42?merchant=bolt", Strict, ParameterAlias},
		{"/h/42?merchant=acme&merchant=acme", Strict, ParameterAlias},
		{"/h/42?merchant=acme&Merchant=acme", Strict, ParameterAlias},
		{"/h/42?MERCHANT=acme&id=42", Strict, NoReason},
		{"/h/42?merchant=bolt", PHP, ParameterAlias},
		{"/h/42?merchant=bolt", Tomcat, NoReason},
		{"/plain/42?merchant=bolt", Strict, NoReason}, // its orders have no parts
	} {
		table, err := NewTable([]Rule{
			rule(tt.backend, "/h/{id}", partAt(InHeader, "x-tenant")),
			rule(tt.backend, "/q/{id}", partAt(InQuery, "merchant")),
			{Name: "plain", Methods: []string{"POST"}, Path: "/plain/{id}", Backend: tt.backend, IDs: at(InPath, "id")},
		})
		if err != nil {
			t.Fatal(err)
		}
		m := table.Match(Request{Method: "POST", Target: tt.target, Header: HeaderList{{"x-tenant", "acme"}}, BodyState: BodyComplete})
		if m.Reason != tt.why || (m.Result == Named) != (tt.why == NoReason) {
			t.Errorf("%s, backend %d: %+v, want reason %q", tt.target, tt.backend, m, tt.why)
		}
	}
	// A cookie and a member of JSON count too.
	table, err := NewTable([]Rule{rule(Strict, "/h/{id}", partAt(InHeader, "x-tenant")), rule(Strict, "/q/{id}", partAt(InQuery, "merchant"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		header [2]string
		body   string
		why    Reason
	}{
		{[2]string{"cookie", "merchant=bolt"}, "", CookieAlias},
		{[2]string{"cookie", "merchant=acme"}, "", NoReason},
		{[2]string{"content-type", typeJSON}, `{"merchant":"bolt"}`, JSONAlias},
		{[2]string{"content-type", typeJSON}, `{"merchant":"acme"}`, NoReason},
	} {
		m := table.Match(Request{Method: "POST", Target: "/h/42", Header: HeaderList{{"x-tenant", "acme"}, tt.header}, Body: []byte(tt.body), BodyState: BodyComplete})
		if m.Reason != tt.why {
			t.Errorf("%v %s: %+v, want reason %q", tt.header, tt.body, m, tt.why)
		}
	}
}

// TestTextAsSpelled has orders whose canonical IDs are spelled otherwise in the request.
func TestTextAsSpelled(t *testing.T) {
	const upper = "ABCDEF00-0000-4000-8000-000000000001"
	id := ID{In: InQuery, Name: "id", Format: Format{Kind: UUID, Case: Lower}}
	for _, tt := range []struct {
		parts      []Part
		query      string
		text, part string
	}{
		{nil, "id=" + strings.ToLower(upper), "", ""},
		{nil, "id=" + upper, upper, ""},
		{[]Part{{"shop", ID{In: InQuery, Name: "shop", Format: Format{Kind: UUID, Case: Lower}}}}, "shop=" + strings.ToLower(upper) + "&id=" + upper, strings.ToLower(upper) + "/" + upper, strings.ToLower(upper) + "/"},
		{[]Part{{"shop", ID{In: InQuery, Name: "shop", Format: Format{Kind: UUID, Case: Lower}}}}, "id=" + strings.ToLower(upper) + "&shop=" + upper, upper + "/" + strings.ToLower(upper), upper + "/"},
	} {
		table, err := NewTable([]Rule{{Name: "r", Methods: []string{"POST"}, Path: "/new", IDs: []ID{id}, Parts: tt.parts}})
		if err != nil {
			t.Fatal(err)
		}
		m := table.Match(Request{Method: "POST", Target: "/new?" + tt.query})
		if m.Result != Named || m.Text != tt.text || m.Prefix != tt.part || m.ID != strings.ToLower(m.ID) {
			t.Errorf("%s: %+v, want the text %q and the parts %q", tt.query, m, tt.text, tt.part)
		}
	}
}
