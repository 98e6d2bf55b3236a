package order

import "testing"

// TestHosts has requests that reach another host than they name, to a backend that goes by a
// header which proxies set.
func TestHosts(t *testing.T) {
	table, err := NewTable([]Rule{
		{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", Host: "shop.example", IDs: at(InPath, "id")},
		{Name: "other", Methods: []string{"POST"}, Path: "/orders/{id}/settle", Host: "old.example", IDs: at(InPath, "id")},
	})
	if err != nil {
		t.Fatal(err)
	}
	const settle = "/orders/42/settle"
	for _, tt := range []struct {
		name, host, target string
		header             HeaderList
		want               Result
	}{
		{"its host", "shop.example", settle, nil, Named},
		{"in other letters, with a port and the root's dot", "SHOP.example.:8443", settle, nil, Named},
		{"another host", "blog.example", settle, nil, Unruled},
		{"forwarded", "blog.example", settle, HeaderList{{"x-forwarded-host", "shop.example"}}, Ambiguous},
		{"forwarded, with a port", "blog.example", settle, HeaderList{{"x-forwarded-host", "Shop.Example:443"}}, Ambiguous},
		{"forwarded in a list", "blog.example", settle, HeaderList{{"x-forwarded-host", "a.example, shop.example"}}, Ambiguous},
		{"forwarded, as CGI spells it", "blog.example", settle, HeaderList{{"x_forwarded.host", "shop.example"}}, Ambiguous},
		{"forwarded by the standard's header", "blog.example", settle, HeaderList{{"forwarded", `for=1.2.3.4;HOST="shop.example:443";proto=https`}}, Ambiguous},
		{"another rule's host", "shop.example", settle, HeaderList{{"x-forwarded-host", "old.example"}}, Ambiguous},
		{"another host than the rule's", "shop.example", settle, HeaderList{{"x-forwarded-host", "blog.example"}}, Named},
		{"its own host", "shop.example:80", settle, HeaderList{{"x-forwarded-host", "shop.example"}}, Named},
		{"a path near it", "blog.example", "/orders/42/settle/", HeaderList{{"x-host", "shop.example"}}, Ambiguous},
		{"another path", "blog.example", "/posts", HeaderList{{"x-forwarded-host", "shop.example"}}, Unruled},
		{"an address", "[::1]:8443", settle, nil, Unruled},
		{"an address in a header", "blog.example", settle, HeaderList{{"forwarded", `for="[2001:db8::1]:4711";proto=https;by=_hidden`}}, Unruled},
		{"two ports", "shop.example:80:90", settle, nil, Ambiguous},
		{"two colons", "shop.example::", settle, nil, Ambiguous},
		{"a bracket behind the port", "shop.example:]", settle, nil, Ambiguous},
		{"two dots at the end", "shop.example..", settle, nil, Ambiguous},
		{"a user", "blog.example@shop.example", settle, nil, Ambiguous},
		{"a user that looks like it", "shop.example:80@blog.example", settle, nil, Ambiguous},
		{"escaped", "%73hop.example", settle, nil, Ambiguous},
		{"two hosts", "blog.example,shop.example", settle, nil, Ambiguous},
		{"beyond ASCII", "ｓhop.example", settle, nil, Ambiguous},
		{"odd, and another path", "shop.example:80:90", "/posts", nil, Unruled},
		{"odd in a header", "blog.example", settle, HeaderList{{"x-forwarded-host", "shop.example:80:90"}}, Ambiguous},
		{"quoted in a header", "blog.example", settle, HeaderList{{"forwarded", `host="sh\op.example"`}}, Ambiguous},
	} {
		m := table.Match(Request{Method: "POST", Host: tt.host, Target: tt.target, Header: tt.header, BodyState: BodyComplete})
		if m.Result != tt.want || m.Result == Ambiguous && m.Reason != HostOverride {
			t.Errorf("%s: result %d (%s), want %d", tt.name, m.Result, m.Reason, tt.want)
		}
	}
}

// TestHostsOfOtherRules has requests to a host that one rule is for, which come under another
// rule by the host that a header names.
func TestHostsOfOtherRules(t *testing.T) {
	table, err := NewTable([]Rule{
		{Name: "old", Methods: []string{"POST"}, Path: "/orders/{id}/settle", Host: "old.example", Pass: true},
		{Name: "own", Methods: []string{"POST"}, Path: "/orders/{id}/settle", Host: "shop.example", IDs: at(InPath, "id")},
		{Name: "settle", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: at(InPath, "id")},
		{Name: "refund", Methods: []string{"POST"}, Path: "/orders/{id}/refund", IDs: at(InPath, "id")},
	})
	if err != nil {
		t.Fatal(err)
	}
	const settle, refund = "/orders/42/settle", "/orders/42/refund"
	form := HeaderList{{"x-forwarded-host", "any.example"}, {"content-type", typeForm}}
	for _, tt := range []struct {
		name, host, target string
		header             HeaderList
		want               Result
	}{
		{"exempt", "old.example", settle, nil, Unruled},
		{"exempt, and its own host", "old.example", settle, HeaderList{{"x-forwarded-host", "OLD.example:80"}}, Unruled},
		{"exempt, and the host of a proxy", "old.example", settle, HeaderList{{"x-forwarded-server", "proxy1"}}, Unruled},
		{"exempt, and no host", "old.example", settle, HeaderList{{"forwarded", "for=1.2.3.4;proto=https;by=10.0.0.1"}}, Unruled},
		{"exempt, and no host of that rule", "old.example", "/posts", HeaderList{{"x-forwarded-host", "any.example"}}, Unruled},
		{"exempt, but for the header", "old.example", settle, HeaderList{{"x-forwarded-host", "any.example"}}, Ambiguous},
		{"the second of a list", "old.example", settle, HeaderList{{"x-forwarded-host", "old.example, any.example"}}, Ambiguous},
		{"the standard's header", "old.example", settle, HeaderList{{"forwarded", `for=1.2.3.4, for=2;Host="any.example"`}}, Ambiguous},
		{"a rule's host", "old.example", settle, HeaderList{{"x-forwarded-host", "shop.example"}}, Ambiguous},
		{"another path of the exempt host", "old.example", refund, HeaderList{{"x-forwarded-host", "any.example"}}, Named},
		{"exempt by the header only", "any.example", settle, HeaderList{{"x-forwarded-host", "old.example"}}, Named},
		{"from one rule to another", "shop.example", settle, HeaderList{{"x-forwarded-host", "any.example"}}, Ambiguous},
		{"from no rule's host to another", "a.example", settle, HeaderList{{"x-forwarded-host", "b.example"}}, Named},
		{"a front controller, not seen", "shop.example", "/index.php", form, NeedsBody},
	} {
		req := Request{Method: "POST", Host: tt.host, Target: tt.target, Header: tt.header, BodyState: BodyComplete}
		if tt.want == NeedsBody {
			req.BodyState = BodyUnseen
		}
		if m := table.Match(req); m.Result != tt.want || m.Result == Ambiguous && m.Reason != HostOverride {
			t.Errorf("%s: result %d (%s), want %d", tt.name, m.Result, m.Reason, tt.want)
		}
	}
}
