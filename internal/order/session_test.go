package order

import "testing"

// TestSessionInPath has the session, by which a rule locks, in the path or in a cookie.
func TestSessionInPath(t *testing.T) {
	format := Format{Kind: Hashed}
	session, _ := format.Canonical("4F4F4F4F4F4F4F4F")
	cookie := func(text string) HeaderList { return HeaderList{{"cookie", text}} }
	for _, r := range []oddRequest{
		{"a cookie", "POST", "/pay", cookie("JSESSIONID=4F4F4F4F4F4F4F4F"), "", session},
		{"the path", "POST", "/pay;jsessionid=4F4F4F4F4F4F4F4F", nil, "", session},
		{"the path, and other parameters", "POST", "/pay;jsessionid=4F4F4F4F4F4F4F4F.node1?a=b", cookie("a=b"), "", session},
		{"both", "POST", "/pay;jsessionid=4F4F4F4F4F4F4F4F.node1", cookie("JSESSIONID=4f4f4f4f4f4f4f4f.node2"), "", session},
		{"two sessions", "POST", "/pay;jsessionid=5F", cookie("JSESSIONID=4F4F4F4F4F4F4F4F"), "", "different_ids"},
		{"none", "POST", "/pay", nil, "", "missing_id"},
		{"a character of no session", "POST", "/pay;jsessionid=4F+", nil, "", "malformed_id"},
		{"such a character beside a cookie", "POST", "/pay;jsessionid=4F+", cookie("JSESSIONID=4F4F4F4F4F4F4F4F"), "", "different_ids"},
		{"another cookie's rule", "POST", "/other;jsessionid=4F4F4F4F4F4F4F4F", nil, "", "missing_id"},
	} {
		for _, b := range []Backend{Tomcat, Spring} {
			id := func(name string) []ID { return []ID{{In: InCookie, Name: name, Format: format}} }
			table, err := NewTable([]Rule{
				{Name: "pay", Methods: []string{"POST"}, Path: "/pay", IDs: id("JSESSIONID"), Backend: b},
				{Name: "other", Methods: []string{"POST"}, Path: "/other", IDs: id("SID"), Backend: b},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := r.answer(table); got != r.want {
				t.Errorf("profile %d: %s: %s: got %q, want %q", b, r.name, r.target, got, r.want)
			}
		}
	}
}
