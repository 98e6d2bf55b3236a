package order

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// obvious is the matcher one would write without a thought to speed: rule by
// rule, segment by segment.
func obvious(rules []Rule, req Request) (rule int, id string) {
	path, _, _ := strings.Cut(req.Target, "?")
	have := strings.Split(path, "/")
	for i, r := range rules {
		want := strings.Split(r.Path, "/")
		if !slices.Contains(r.Methods, req.Method) || len(have) != len(want) {
			continue
		}
		id, ok := "", true
		for j := range want {
			isVar := strings.HasPrefix(want[j], "{")
			ok = ok && (isVar && have[j] != "" || want[j] == have[j])
			if want[j] == "{id}" {
				id = have[j]
			}
		}
		if ok {
			return i, id
		}
	}
	return -1, ""
}

func TestMatchAgreesWithTheObviousMatcher(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "orders", "7", ""})
	template := rapid.SampledFrom([]string{"a", "b", "orders", "{x}", "{y}"})
	method := rapid.SampledFrom([]string{"GET", "POST"})
	rapid.Check(t, func(t *rapid.T) {
		var rules []Rule
		for range rapid.IntRange(1, 8).Draw(t, "rules") {
			segments := append(rapid.SliceOfN(template, 0, 3).Draw(t, "template"), "{id}")
			segments = append(segments, rapid.SliceOfN(template, 0, 2).Draw(t, "rest")...)
			rules = append(rules, Rule{
				Methods: []string{method.Draw(t, "method")}, Path: "/" + strings.Join(segments, "/"),
				IDs: at(InPath, "id"), OtherMethods: true, Backend: Tomcat,
			})
		}
		table, err := NewTable(rules)
		if err != nil {
			t.Fatal(err)
		}
		req := Request{
			Method: method.Draw(t, "asked"),
			Target: "/" + strings.Join(rapid.SliceOfN(word, 0, 6).Draw(t, "path"), "/"),
		}
		wantRule, wantID := obvious(rules, req)
		got := table.Match(req)
		if wantRule < 0 && got.Result == Ambiguous && strings.Contains(req.Target+"/", "//") {
			return // an empty segment, which a backend may skip
		}
		if got.Rule != wantRule {
			t.Fatalf("rule %d, want %d", got.Rule, wantRule)
		}
		if canonical, ok := digits.Canonical(wantID); wantRule >= 0 && (ok != (got.Result == Named) || ok && canonical != got.ID) {
			t.Fatalf("match %+v, want ID %q", got, wantID)
		}
	})
}

func FuzzMatch(f *testing.F) {
	for _, seed := range []string{"/orders/42", "/orders/%34%32/settle", "//", "/orders/42;x=1", "/order.php?id=1&id=2", ""} {
		f.Add("GET", seed, "h:80")
	}
	table := testTable(f)
	f.Fuzz(func(t *testing.T, method, target, host string) {
		m := table.Match(Request{Method: method, Target: target, Host: host})
		if m.Result == Named && !strings.Contains(target, m.ID) {
			t.Errorf("ID %q does not stand in the target", m.ID)
		}
		if m.Result == Named && !isDigits(m.ID) {
			t.Errorf("ID %q is not digits", m.ID)
		}
		if refused := m.Result == Invalid || m.Result == Ambiguous; (m.Reason != NoReason) != refused {
			t.Errorf("result %d with reason %q", m.Result, m.Reason)
		}
	})
}
