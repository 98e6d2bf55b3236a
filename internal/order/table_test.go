package order

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var digits = Format{Kind: Digits, Min: 1, Max: 19}

func at(in Location, name string) []ID {
	return []ID{{In: in, Name: name, MaxBody: 1000, Format: digits}}
}

func inJSON(members ...string) []ID {
	return []ID{{In: InJSON, Members: members, MaxBody: 1000, Format: digits}}
}

func testTable(t testing.TB) *Table {
	t.Helper()
	table, err := NewTable([]Rule{
		0:  {Name: "lookup", Methods: []string{"GET"}, Path: "/orders/{id}", IDs: at(InPath, "id"), OtherMethods: true},
		1:  {Name: "create", Methods: []string{"POST"}, Path: "/orders", OtherMethods: true},
		2:  {Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id")},
		3:  {Name: "query", Methods: []string{"GET"}, Path: "/order.php", IDs: at(InQuery, "orderId")},
		4:  {Name: "header", Methods: []string{"PUT"}, Path: "/settle", IDs: at(InHeader, "x-order-id")},
		5:  {Name: "host", Methods: []string{"GET"}, Path: "/o/{id}", Host: "pay.example", IDs: at(InPath, "id")},
		6:  {Name: "any host", Methods: []string{"GET"}, Path: "/o/{id}", IDs: at(InPath, "id")},
		7:  {Name: "literal, but later", Methods: []string{"GET"}, Path: "/orders/99"},
		8:  {Name: "shop", Methods: []string{"GET"}, Path: "/{shop}/orders/{id}", IDs: at(InPath, "id")},
		9:  {Name: "optional", Methods: []string{"POST"}, Path: "/import", IDs: at(InQuery, "id"), Optional: true},
		10: {Name: "json", Methods: []string{"POST"}, Path: "/json", IDs: inJSON("order", "id")},
		11: {Name: "form", Methods: []string{"POST"}, Path: "/form", IDs: at(InForm, "orderId")},
		12: {Name: "cookie", Methods: []string{"POST"}, Path: "/cookie", IDs: at(InCookie, "orderId")},
		13: {Name: "two", Methods: []string{"POST"}, Path: "/two/{id}", IDs: append(at(InPath, "id"), at(InHeader, "x-order-id")...)},
		14: {Name: "batch", Methods: []string{"POST"}, Path: "/batch", IDs: []ID{{In: InJSON, Members: []string{"ids"}, List: true, MaxList: 3, MaxBody: 1000, Format: digits}}},
		15: {Name: "case", Methods: []string{"POST"}, Path: "/Case/{id}/Settle", IgnoreCase: true, IDs: at(InPath, "id")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestMatch(t *testing.T) {
	unruled := Match{Rule: -1}
	named := func(rule int, id string) Match { return Match{Result: Named, Rule: rule, ID: id, Offset: -1} }
	invalid := func(rule int, why Reason) Match { return Match{Result: Invalid, Rule: rule, Reason: why} }
	ambiguous := func(rule int, why Reason) Match { return Match{Result: Ambiguous, Rule: rule, Reason: why} }

	tests := []struct {
		name, method, target, host string
		header                     HeaderList
		want                       Match
	}{
		{"path", "GET", "/orders/42", "", nil, named(0, "42")},
		{"HEAD beside GET", "HEAD", "/orders/42", "", nil, named(0, "42")},
		{"other method passes", "DELETE", "/orders/42", "", nil, unruled},
		{"other method is refused", "GET", "/orders/42/settle", "", nil, ambiguous(2, OtherMethod)},
		{"methods are case-sensitive", "post", "/orders/42/settle", "", nil, ambiguous(2, OtherMethod)},
		{"query does not count", "GET", "/orders/42?x=43", "", nil, named(0, "42")},
		{"deeper template", "POST", "/orders/42/settle", "", nil, named(2, "42")},
		{"zero", "GET", "/orders/0", "", nil, named(0, "0")},
		{"leading zero", "GET", "/orders/042", "", nil, invalid(0, MalformedID)},
		{"path parameter", "POST", "/orders/42;x=1/settle", "", nil, invalid(2, MalformedID)},
		{"percent-encoded digits", "POST", "/orders/%34%32/settle", "", nil, invalid(2, MalformedID)},
		{"full-width digits", "GET", "/orders/４２", "", nil, invalid(0, MalformedID)},
		{"largest number", "GET", "/orders/9223372036854775807", "", nil, named(0, "9223372036854775807")},
		{"larger than that", "GET", "/orders/9223372036854775808", "", nil, invalid(0, MalformedID)},
		{"too long", "GET", "/orders/12345678901234567890", "", nil, invalid(0, MalformedID)},
		{"sign", "GET", "/orders/+42", "", nil, invalid(0, MalformedID)},
		{"longer path", "GET", "/orders/42/lines", "", nil, unruled},
		{"no ID asked for", "POST", "/orders", "", nil, Match{Result: Anonymous, Rule: 1}},
		{"query", "GET", "/order.php?a=1&orderId=42", "", nil, named(3, "42")},
		{"no query", "GET", "/order.php", "", nil, invalid(3, MissingID)},
		{"empty in query", "GET", "/order.php?orderId=", "", nil, invalid(3, MalformedID)},
		{"twice in query", "GET", "/order.php?orderId=42&orderId=42", "", nil, ambiguous(3, RepeatedID)},
		{"escaped in query", "GET", "/order.php?orderId=4%32", "", nil, invalid(3, MalformedID)},
		{"header", "PUT", "/settle", "", HeaderList{{"x-order-id", "42"}}, named(4, "42")},
		{"header twice", "PUT", "/settle", "", HeaderList{{"x-order-id", "42"}, {"x-order-id", "43"}}, ambiguous(4, RepeatedID)},
		{"header joined", "PUT", "/settle", "", HeaderList{{"x-order-id", "42,43"}}, invalid(4, MalformedID)},
		{"header missing", "PUT", "/settle", "", HeaderList{{"x", "y"}}, invalid(4, MissingID)},
		{"header that CGI takes for it", "PUT", "/settle", "", HeaderList{{"x-order-id", "42"}, {"x_order_id", "43"}}, ambiguous(4, HeaderAlias)},
		{"header that is dropped", "PUT", "/settle", "", HeaderList{{"x-order-id", "42"}, {"connection", "close, X-Order-Id"}}, ambiguous(4, HeaderAlias)},
		{"host", "GET", "/o/1", "pay.example", nil, named(5, "1")},
		{"host with port, other case", "GET", "/o/1", "Pay.Example:8080", nil, named(5, "1")},
		{"host with a dot", "GET", "/o/1", "pay.example.", nil, named(5, "1")},
		{"other host", "GET", "/o/1", "shop.example", nil, named(6, "1")},
		{"IPv6 host", "GET", "/o/1", "[::1]:80", nil, named(6, "1")},
		{"file order beats literal", "GET", "/orders/99", "", nil, named(0, "99")},
		{"two names", "GET", "/eu/orders/7", "", nil, named(8, "7")},
		{"literal first, name second", "GET", "/orders/orders/7", "", nil, named(8, "7")},
		{"optional, missing", "POST", "/import", "", nil, Match{Result: Anonymous, Rule: 9}},
		{"optional, empty", "POST", "/import?id=", "", nil, Match{Result: Anonymous, Rule: 9}},
		{"optional, empty and given", "POST", "/import?id=&id=5", "", nil, ambiguous(9, RepeatedID)},
		{"optional, given", "POST", "/import?id=5", "", nil, named(9, "5")},
		{"cookie", "POST", "/cookie", "", HeaderList{{"cookie", "a=b; orderId=42"}}, named(12, "42")},
		{"cookie twice", "POST", "/cookie", "", HeaderList{{"cookie", "orderId=42"}, {"cookie", "orderId=43"}}, ambiguous(12, RepeatedID)},
		{"two places agree", "POST", "/two/42", "", HeaderList{{"x-order-id", "42"}}, named(13, "42")},
		{"two places differ", "POST", "/two/42", "", HeaderList{{"x-order-id", "43"}}, ambiguous(13, DifferentIDs)},
		{"one of two places", "POST", "/two/42", "", nil, named(13, "42")},
		{"case that does not matter", "POST", "/cASE/42/settle", "", nil, named(15, "42")},
		{"body needed", "POST", "/json", "", HeaderList{{"content-type", "application/json"}}, Match{Result: NeedsBody, Rule: 10}},
		{"body announced as too large", "POST", "/json", "", HeaderList{{"content-length", "1001"}}, Match{Result: TooLarge, Rule: 10, Reason: BodyTooLarge}},
		{"no body", "POST", "/json", "", HeaderList{{"content-length", "0"}}, invalid(10, MissingID)},
		{"empty target", "GET", "", "", nil, unruled},
		{"asterisk", "OPTIONS", "*", "", nil, unruled},
		{"only a query", "GET", "?id=4", "", nil, unruled},
	}
	table := testTable(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := table.Match(Request{Method: tt.method, Host: tt.host, Target: tt.target, Header: tt.header})
			got.Offset, tt.want.Offset = 0, 0 // tested by itself
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error("Match (-want +got):\n" + diff)
			}
		})
	}
}

func TestNewTableRefuses(t *testing.T) {
	ok := Rule{Name: "r", Methods: []string{"GET"}, Path: "/o/{id}"}
	tests := []struct {
		name   string
		change func(*Rule)
		want   string
	}{
		{"relative path", func(r *Rule) { r.Path = "o/{id}" }, `path "o/{id}" does not start with /`},
		{"query in path", func(r *Rule) { r.Path = "/o/{id}?x" }, "has a query or a fragment"},
		{"open brace", func(r *Rule) { r.Path = "/o/{id" }, `segment "{id" is not {name}`},
		{"partial segment", func(r *Rule) { r.Path = "/o/x{id}" }, "has to be a whole segment"},
		{"other name", func(r *Rule) { r.Path = "/o/{nr}" }, "has no segment {id}"},
		{"no methods", func(r *Rule) { r.Methods = nil }, "no methods"},
		{"no lengths", func(r *Rule) { r.IDs[0].Format = Format{} }, "ID lengths 0 to 0 are not within 1 to 256"},
		{"no pattern", func(r *Rule) { r.IDs[0].Format.Kind = Pattern }, "no pattern"},
		{"unnamed", func(r *Rule) { r.IDs = at(InQuery, "") }, "the ID has no name"},
		{"no members", func(r *Rule) { r.IDs = inJSON() }, "the ID has no name"},
		{"list in a form", func(r *Rule) { r.IDs = at(InForm, "x"); r.IDs[0].List = true }, "stands in JSON only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ok
			r.IDs = at(InPath, "id")
			tt.change(&r)
			_, err := NewTable([]Rule{r})
			if err == nil || !strings.HasPrefix(err.Error(), `rule "r": `) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestCanonical(t *testing.T) {
	pattern, err := CompilePattern(`[A-Z]{2}-[0-9]+|x.*`, AsIs)
	if err != nil {
		t.Fatal(err)
	}
	named := Format{Kind: Pattern, Min: 1, Max: 20, Pattern: pattern}
	uuid := Format{Kind: UUID, Case: Lower}
	upper, asIs := Format{Kind: UUID, Case: Upper}, Format{Kind: UUID}
	either, err := CompilePattern(`[A-Z]{2}-[0-9]+|[a-f]k`, Lower)
	if err != nil {
		t.Fatal(err)
	}
	folded, raised := Format{Kind: Pattern, Min: 1, Max: 20, Pattern: either, Case: Lower}, Format{Kind: Pattern, Min: 1, Max: 20, Pattern: either, Case: Upper}
	dated := Format{Kind: Timestamped, Min: 1, Max: 19, Layout: "20060102", At: 1}
	flake := Format{Kind: Snowflake, Min: 1, Max: 19, Epoch: time.Unix(0, 0), Shift: 22}
	narrow, text := Format{Kind: Digits, Min: 1, Max: 19, Largest: "2147483647"}, Format{Kind: Digits, Min: 1, Max: 64}
	millis := Format{Kind: Timestamped, Min: 17, Max: 17, Layout: EpochMillis}
	seconds := Format{Kind: Timestamped, Min: 1, Max: 19, Layout: EpochSeconds, At: 2, Largest: "999999999999999"}
	tests := []struct {
		format Format
		in     string
		want   string
		ok     bool
	}{
		{narrow, "2147483647", "2147483647", true},
		{narrow, "2147483648", "", false},
		{narrow, "4294967338", "", false}, // 42 to a backend of 32 bits
		{narrow, "999999999", "999999999", true},
		{narrow, "0", "0", true},
		{text, "99999999999999999999", "99999999999999999999", true},
		{digits, "9223372036854775808", "", false},
		{millis, "15688187285093508", "15688187285093508", true},
		{millis, "1568818728509350", "", false},
		{seconds, "991568818728", "991568818728", true},
		{seconds, "99156881872", "", false},
		{seconds, "9915688187280000", "", false},
		{digits, "", "", false},
		{digits, "42", "42", true},
		{digits, "4 2", "", false},
		{digits, "42\x00", "", false},
		{named, "AB-12", "AB-12", true},
		{named, "AB-12\n", "", false},
		{named, "zAB-12", "", false},
		{named, "x%41", "", false},
		{named, "x;y", "", false},
		{named, "xé", "", false},
		{uuid, "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000", true},
		{uuid, "123E4567-E89B-12d3-A456-426614174000", "123e4567-e89b-12d3-a456-426614174000", true},
		{upper, "123e4567-E89B-12d3-a456-426614174000", "123E4567-E89B-12D3-A456-426614174000", true},
		{asIs, "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174000", true},
		{asIs, "123E4567-E89B-12D3-A456-426614174000", "123E4567-E89B-12D3-A456-426614174000", true},
		{asIs, "123E4567-e89b-12d3-a456-426614174000", "", false},
		{folded, "AB-12", "ab-12", true},
		{folded, "aB-12", "ab-12", true},
		{folded, "Fk", "fk", true},
		{folded, "f\u212a", "", false}, // the sign of kelvin, which folds to k
		{raised, "aB-12", "AB-12", true},
		{raised, "gk", "", false},
		{dated, "920261121001", "920261121001", true},
		{dated, "920261321001", "", false},
		{dated, "92026", "", false},
		{dated, "9202611x1001", "", false},
		{flake, "1541815603606036480", "1541815603606036480", true},
		{flake, "9541815603606036480", "", false},
		{uuid, "123e4567e89b12d3a456426614174000", "", false},
		{uuid, "123e4567-e89b-12d3-a456-42661417400g", "", false},
	}
	for _, tt := range tests {
		got, ok := tt.format.Canonical(tt.in)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("Canonical(%q) = %q, %t, want %q, %t", tt.in, got, ok, tt.want, tt.ok)
		}
		if again, ok2 := tt.format.Canonical(got); ok && (!ok2 || again != got) {
			t.Errorf("Canonical(%q) = %q is not canonical itself", tt.in, got)
		}
	}
}

func TestCanonicalForms(t *testing.T) {
	pattern, err := CompilePattern(`[0-9a-fA-F-]+`, AsIs)
	if err != nil {
		t.Fatal(err)
	}
	uuid, text := Format{Kind: UUID, Case: Lower}, Format{Kind: Pattern, Min: 1, Max: 40, Pattern: pattern}
	const upper, lower = "123E4567-E89B-12D3-A456-426614174000", "123e4567-e89b-12d3-a456-426614174000"
	for _, tt := range []struct {
		formats []Format
		in      string
		want    []string
	}{
		{nil, upper, []string{upper}},
		{[]Format{uuid, uuid}, upper, []string{lower}},
		{[]Format{uuid, text, uuid, text}, upper, []string{lower, upper}},
		{[]Format{text, uuid}, upper, []string{upper, lower}},
		{[]Format{text, uuid}, lower, []string{lower}},
		{[]Format{digits, text, uuid, digits}, "42", []string{"42"}},
		{[]Format{digits, uuid}, "no ID", []string{"no ID"}},
		{[]Format{digits, uuid}, "", []string{""}},
	} {
		first, others := CanonicalForms(tt.formats, tt.in)
		if got := append([]string{first}, others...); !slices.Equal(got, tt.want) {
			t.Errorf("CanonicalForms(%v, %q) = %q, want %q", tt.formats, tt.in, got, tt.want)
		}
	}
}

func TestTime(t *testing.T) {
	twitter := time.UnixMilli(1288834974657)
	flake := Format{Kind: Snowflake, Epoch: twitter, Shift: 22}
	// The example of Twitter's documentation of its IDs.
	if got, ok := flake.Time("1541815603606036480"); !ok || got.UTC().Format(time.RFC3339) != "2022-06-28T16:07:40Z" {
		t.Errorf("snowflake: %v, %t", got.UTC(), ok)
	}
	dated := Format{Kind: Timestamped, Layout: "20060102150405", At: 2}
	if got, ok := dated.Time("9920261121103045777"); !ok || got.Format(time.RFC3339) != "2026-11-21T10:30:45Z" {
		t.Errorf("timestamped: %v, %t", got, ok)
	}
	for layout, id := range map[string]string{EpochMillis: "9917638085001237", EpochSeconds: "99176380850012345"} {
		epoch := Format{Kind: Timestamped, Layout: layout, At: 2}
		want := map[string]string{EpochMillis: "2025-11-22T10:48:20.123Z", EpochSeconds: "2025-11-22T10:48:20Z"}[layout]
		if got, ok := epoch.Time(id); !ok || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s: %v, %t, want %s", layout, got, ok, want)
		}
	}
	if _, ok := (&Format{Kind: Digits}).Time("42"); ok {
		t.Error("plain digits have no time")
	}
}

func TestCompilePatternKeepsItsAnchors(t *testing.T) {
	if _, err := CompilePattern(`a)|(b`, AsIs); err == nil {
		t.Error("an expression that closes the group was accepted")
	}
}

func manyRules(t testing.TB, n int) *Table {
	t.Helper()
	var rules []Rule
	for i := range n {
		rules = append(rules, Rule{
			Name: fmt.Sprint(i), Methods: []string{"POST"}, Path: fmt.Sprintf("/service%d/{tenant}/orders/{id}/settle", i),
			IDs: at(InPath, "id"),
		})
	}
	table, err := NewTable(rules)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestMatchDoesNotAllocate(t *testing.T) {
	table := manyRules(t, 100)
	req := Request{Method: "POST", Target: "/service99/eu/orders/1234567890/settle?a=b"}
	if n := testing.AllocsPerRun(100, func() { table.Match(req) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			table := manyRules(b, n)
			req := Request{Method: "POST", Target: fmt.Sprintf("/service%d/eu/orders/1234567890/settle?a=b", n-1)}
			b.ReportAllocs()
			for b.Loop() {
				if table.Match(req).Result != Named {
					b.Fatal("no match")
				}
			}
		})
	}
}
