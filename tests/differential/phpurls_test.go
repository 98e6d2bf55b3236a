package differential

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// pathsOfPHP prints, for each target of a JSON list, the path that parse_url finds; false
// where it finds no URL.
const pathsOfPHP = `
$all = [];
foreach (json_decode(stream_get_contents(STDIN)) as $target) {
    $all[] = parse_url($target, PHP_URL_PATH);
}
echo json_encode($all, JSON_INVALID_UTF8_SUBSTITUTE);`

// TestPathsOfPHP has PHP itself say which path it finds in targets, and holds the gate to it:
// a front controller that goes by parse_url finds no other order, whether it takes what
// parse_url cannot read for the root or for a path.
func TestPathsOfPHP(t *testing.T) {
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	rules := []order.Rule{
		{Name: "path", Methods: []string{"POST"}, Path: "/orders/{id}/settle", IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}}},
		{Name: "script", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"action": {"settle"}}, IDs: []order.ID{{In: order.InQuery, Name: "id", Format: format}}},
	}
	root := order.Rule{Name: "root", Methods: []string{"POST"}, Path: "/", Query: map[string][]string{"action": {"settle"}}, IDs: []order.ID{{In: order.InQuery, Name: "id", Format: format}}}
	var tables []*order.Table
	for _, backend := range []order.Backend{order.Strict, order.PHP} {
		for _, set := range [][]order.Rule{rules, append([]order.Rule{root}, rules...), {root}} {
			all := append([]order.Rule{}, set...)
			for i := range all {
				all[i].Backend = backend
			}
			table, err := order.NewTable(all)
			bedtest.Check(t, err)
			tables = append(tables, table)
		}
	}

	r := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"/", "//", "/", ":", ":80", ":80/", ":0", ":65536/", ":99999", "?", "@", "x", "orders", "orders/42/settle", "/orders/42/settle", "42", "settle", "index.php", "[::1]", "[", "http:", "a=b"}
	queries := []string{"?action=settle&id=42", "?route=/orders/42/settle", "?/orders/42/settle"} // of a front controller
	targets := []string{}
	for range 40_000 {
		var target strings.Builder
		target.WriteString(pick(r, "/", "/", "//"))
		for range 1 + r.IntN(5) {
			target.WriteString(pick(r, pieces...))
		}
		text := target.String()
		if r.IntN(2) == 0 {
			text, _, _ = strings.Cut(text, "?")
			text += pick(r, queries...)
		}
		targets = append(targets, text)
	}
	var paths []any
	askPHP(t, pathsOfPHP, targets, &paths)

	settles := regexp.MustCompile(`^/+orders/+42/+settle/*$`)
	counts, wrong := map[string]int{}, 0
	for i, target := range targets {
		raw, query, _ := strings.Cut(target, "?")
		read := []string{"/"} // "?: '/'", of a path that is not there
		kind := "no URL"
		switch path := paths[i].(type) {
		case string:
			read, kind = []string{path}, "a path"
		case bool:
			read = append(read, raw)
		case nil:
			kind = "no path"
		}
		for _, path := range read {
			byPath := settles.MatchString(path)
			if !byPath && (path != "/" || !slices.Contains(queries, "?"+query)) {
				continue
			}
			counts[kind]++
			for n, table := range tables {
				if n%3 == 2 && (byPath || !strings.HasPrefix(query, "action=")) {
					continue // it has no such rule
				}
				m := table.Match(order.Request{Method: "POST", Target: target, BodyState: order.BodyComplete})
				if m.Result == order.Unruled || m.Result == order.Named && m.ID != "42" {
					if wrong++; wrong <= maxShown {
						t.Errorf("PHP takes %s for %s, and table %d has %+v", target, path, n, m)
					}
				}
			}
		}
	}
	t.Logf("of %d targets: %v", len(targets), counts)
	for _, kind := range []string{"a path", "no path", "no URL"} {
		if counts[kind] < 50 {
			t.Errorf("%d targets of which PHP finds %s: too few", counts[kind], kind)
		}
	}
}
