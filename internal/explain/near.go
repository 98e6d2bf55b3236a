package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ordergate/ordergate/internal/admin"
	"github.com/ordergate/ordergate/internal/order"
)

// maxNeighbours bounds the rules that a request is near.
const maxNeighbours = 5

// neighbour is a rule that a request misses by one thing.
type neighbour struct {
	Rule    string `json:"rule"`
	Differs string `json:"differs"` // method, host, path or query
	Text    string `json:"text"`    // the difference in words
}

// neighbours returns the rules that the request misses by its method, its host, one segment of
// its path or one parameter, in file order.
func (q *Explainer) neighbours() []neighbour {
	all := []neighbour{}
	for i := range q.rules {
		if missed := q.differences(&q.rules[i]); len(missed) == 1 && missed[0].Text != "" && len(all) < maxNeighbours {
			all = append(all, missed[0])
		}
	}
	return all
}

// differences returns what keeps a rule from matching. A path that is far from the rule's has no
// text.
func (q *Explainer) differences(r *order.Rule) (all []neighbour) {
	add := func(part, format string, args ...any) {
		all = append(all, neighbour{r.Name, part, fmt.Sprintf(format, args...)})
	}
	if !r.AdmitsMethod(q.Method) {
		add("method", "the method is %s, not %s", q.Method, strings.Join(r.Methods, " or "))
	}
	if !r.AdmitsHost(q.Host) {
		if q.Host == "" {
			add("host", "it wants -H 'host: %s'", r.Host)
		} else {
			add("host", "the host is %s, not %s", admin.Visible(q.Host), r.Host)
		}
	}
	path, query, _ := strings.Cut(q.Target, "?")
	if text, same := pathDifference(r, path); !same {
		all = append(all, neighbour{r.Name, "path", text})
	}
	for _, name := range slices.Sorted(maps.Keys(r.Query)) {
		want, got := r.Query[name], []string{}
		for _, pair := range pairs(query, "&") {
			if n, value, _ := strings.Cut(pair, "="); n == name {
				got = append(got, value)
			}
		}
		switch {
		case slices.ContainsFunc(got, func(value string) bool { return slices.Contains(want, value) }):
		case len(got) == 0:
			add("query", "it has no parameter %s=%s", name, strings.Join(want, " or "))
		default:
			add("query", "the parameter %s is %s, not %s", name, admin.Visible(got[0]), strings.Join(want, " or "))
		}
	}
	return all
}

// pathDifference describes the one segment by which a path differs from a rule's. The text is
// empty if the path is not near.
func pathDifference(r *order.Rule, path string) (text string, same bool) {
	want, got := strings.Split(r.Path, "/"), strings.Split(path, "/")
	literals, differing := 0, []int{} // literal segments that are the same; indices of those that differ
	for i := 1; i < min(len(want), len(got)); i++ {
		isName := strings.HasPrefix(want[i], "{")
		switch {
		case isName && got[i] != "":
		case !isName && (want[i] == got[i] || r.IgnoreCase && strings.EqualFold(want[i], got[i])):
			literals++
		default:
			differing = append(differing, i)
		}
	}
	switch {
	case len(differing) == 0 && len(want) == len(got):
		return "", true
	case len(differing) == 0 && literals > 0 && len(want) == len(got)+1:
		return "the path lacks /" + want[len(got)], false
	case len(differing) == 0 && literals > 0 && len(want)+1 == len(got):
		return fmt.Sprintf("the path has /%s behind %s", admin.Visible(got[len(want)]), r.Path), false
	case len(differing) == 1 && len(want) == len(got):
		i := differing[0]
		if got[i] == "" && literals > 0 {
			return "the path has nothing for /" + want[i], false
		}
		if literals > 0 || isAlike(got[i], want[i]) {
			return fmt.Sprintf("the path has /%s, not /%s", admin.Visible(got[i]), want[i]), false
		}
	}
	return "", false
}

// isAlike reports whether one segment begins with the other, without regard to case.
func isAlike(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}
