package order

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var digits = Format{Kind: Digits, Min: 1, Max: 19}

// headers is a Header of plain values.
type headers map[string][]string

func (h headers) Get(name string) (string, int) {
	v := h[name]
	if len(v) == 0 {
		return "", 0
	}
	return v[len(v)-1], len(v)
}

func testTable(t testing.TB) *Table {
	t.Helper()
	inPath := ID{In: InPath, Name: "id", Format: digits}
	table, err := NewTable([]Rule{
		0: {Name: "lookup", Methods: []string{"GET", "HEAD"}, Path: "/orders/{id}", ID: inPath},
		1: {Name: "create", Methods: []string{"POST"}, Path: "/orders", ID: ID{Format: digits}},
		2: {Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", ID: inPath},
		3: {Name: "query", Methods: []string{"GET"}, Path: "/order.php", ID: ID{In: InQuery, Name: "id", Format: digits}},
		4: {Name: "header", Methods: []string{"PUT"}, Path: "/settle", ID: ID{In: InHeader, Name: "x-order", Format: digits}},
		5: {Name: "host", Methods: []string{"GET"}, Path: "/o/{id}", Host: "pay.example", ID: inPath},
		6: {Name: "any host", Methods: []string{"GET"}, Path: "/o/{id}", ID: inPath},
		7: {Name: "literal, but later", Methods: []string{"GET"}, Path: "/orders/99", ID: ID{}.withFormat()},
		8: {Name: "shop", Methods: []string{"GET"}, Path: "/{shop}/orders/{id}", ID: inPath},
		9: {Name: "optional", Methods: []string{"POST"}, Path: "/import", ID: ID{In: InQuery, Name: "id", Optional: true, Format: digits}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func (id ID) withFormat() ID { id.Format = digits; return id }

func TestMatch(t *testing.T) {
	unruled := Match{Rule: -1}
	named := func(rule int, id string) Match { return Match{Result: Named, Rule: rule, ID: id} }
	invalid := func(rule int, why string) Match { return Match{Result: Invalid, Rule: rule, Reason: why} }
	repeated := func(rule int) Match { return Match{Result: Ambiguous, Rule: rule, Reason: ReasonRepeated} }

	tests := []struct {
		name, method, target, host string
		header                     headers
		want                       Match
	}{
		{"path", "GET", "/orders/42", "", nil, named(0, "42")},
		{"second method", "HEAD", "/orders/42", "", nil, named(0, "42")},
		{"other method", "DELETE", "/orders/42", "", nil, unruled},
		{"methods are case-sensitive", "get", "/orders/42", "", nil, unruled},
		{"query does not count", "GET", "/orders/42?id=43", "", nil, named(0, "42")},
		{"deeper template", "POST", "/orders/42/settle", "", nil, named(2, "42")},
		{"zero", "GET", "/orders/0", "", nil, named(0, "0")},
		{"leading zero", "GET", "/orders/042", "", nil, invalid(0, ReasonMalformed)},
		{"path parameter", "POST", "/orders/42;x=1/settle", "", nil, invalid(2, ReasonMalformed)},
		{"percent-encoded digits", "POST", "/orders/%34%32/settle", "", nil, invalid(2, ReasonMalformed)},
		{"full-width digits", "GET", "/orders/４２", "", nil, invalid(0, ReasonMalformed)},
		{"too long", "GET", "/orders/12345678901234567890", "", nil, invalid(0, ReasonMalformed)},
		{"sign", "GET", "/orders/+42", "", nil, invalid(0, ReasonMalformed)},
		{"empty segment", "GET", "/orders/", "", nil, unruled},
		{"double slash", "GET", "//orders/42", "", nil, unruled},
		{"longer path", "GET", "/orders/42/lines", "", nil, unruled},
		{"no ID asked for", "POST", "/orders", "", nil, Match{Result: Anonymous, Rule: 1}},
		{"query", "GET", "/order.php?a=1&id=42", "", nil, named(3, "42")},
		{"query without it", "GET", "/order.php?ID=42", "", nil, invalid(3, ReasonMissing)},
		{"no query", "GET", "/order.php", "", nil, invalid(3, ReasonMissing)},
		{"empty in query", "GET", "/order.php?id=", "", nil, invalid(3, ReasonMalformed)},
		{"twice in query", "GET", "/order.php?id=42&id=42", "", nil, repeated(3)},
		{"escaped in query", "GET", "/order.php?id=4%32", "", nil, invalid(3, ReasonMalformed)},
		{"header", "PUT", "/settle", "", headers{"x-order": {"42"}}, named(4, "42")},
		{"header twice", "PUT", "/settle", "", headers{"x-order": {"42", "43"}}, repeated(4)},
		{"header joined", "PUT", "/settle", "", headers{"x-order": {"42,43"}}, invalid(4, ReasonMalformed)},
		{"header missing", "PUT", "/settle", "", headers{}, invalid(4, ReasonMissing)},
		{"no headers", "PUT", "/settle", "", nil, invalid(4, ReasonMissing)},
		{"host", "GET", "/o/1", "pay.example", nil, named(5, "1")},
		{"host with port, other case", "GET", "/o/1", "Pay.Example:8080", nil, named(5, "1")},
		{"other host", "GET", "/o/1", "shop.example", nil, named(6, "1")},
		{"IPv6 host", "GET", "/o/1", "[::1]:80", nil, named(6, "1")},
		{"file order beats literal", "GET", "/orders/99", "", nil, named(0, "99")},
		{"two names", "GET", "/eu/orders/7", "", nil, named(8, "7")},
		{"literal first, name second", "GET", "/orders/orders/7", "", nil, named(8, "7")},
		{"optional, missing", "POST", "/import", "", nil, Match{Result: Anonymous, Rule: 9}},
		{"optional, given", "POST", "/import?id=5", "", nil, named(9, "5")},
		{"empty target", "GET", "", "", nil, unruled},
		{"asterisk", "OPTIONS", "*", "", nil, unruled},
		{"only a query", "GET", "?id=4", "", nil, unruled},
	}
	table := testTable(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			req := Request{Method: tt.method, Host: tt.host, Target: tt.target}
			if tt.header != nil {
				req.Header = tt.header
			}
			if diff := cmp.Diff(tt.want, table.Match(req)); diff != "" {
				t.Error("Match (-want +got):\n" + diff)
			}
		})
	}
}

func TestNewTableRefuses(t *testing.T) {
	ok := Rule{Name: "r", Methods: []string{"GET"}, Path: "/o/{id}", ID: ID{In: InPath, Name: "id", Format: digits}}
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
		{"no lengths", func(r *Rule) { r.ID.Format = Format{} }, "ID lengths 0 to 0 are not within 1 to 256"},
		{"no pattern", func(r *Rule) { r.ID.Format.Kind = Pattern }, "no pattern"},
		{"unnamed", func(r *Rule) { r.ID = ID{In: InQuery, Format: digits} }, "the ID has no name"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := ok
			tt.change(&r)
			_, err := NewTable([]Rule{r})
			if err == nil || !strings.HasPrefix(err.Error(), `rule "r": `) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

func TestCanonical(t *testing.T) {
	pattern, err := CompilePattern(`[A-Z]{2}-[0-9]+|x.*`)
	if err != nil {
		t.Fatal(err)
	}
	named := Format{Kind: Pattern, Min: 1, Max: 20, Pattern: pattern}
	uuid := Format{Kind: UUID}
	tests := []struct {
		format Format
		in     string
		want   string
		ok     bool
	}{
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

func TestCompilePatternKeepsItsAnchors(t *testing.T) {
	if _, err := CompilePattern(`a)|(b`); err == nil {
		t.Error("an expression that closes the group was accepted")
	}
}

func manyRules(t testing.TB, n int) *Table {
	t.Helper()
	var rules []Rule
	for i := range n {
		rules = append(rules, Rule{
			Name: fmt.Sprint(i), Methods: []string{"POST"}, Path: fmt.Sprintf("/service%d/{tenant}/orders/{id}/settle", i),
			ID: ID{In: InPath, Name: "id", Format: digits},
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
