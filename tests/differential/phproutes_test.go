package differential

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// routesOfPHP prints, for each query of a JSON list, the routes that shops find in it: as OpenCart
// 4 cleans them, and as Yii does, which trims slashes. Classes of PHP ignore case.
const routesOfPHP = `
$all = [];
foreach (json_decode(stream_get_contents(STDIN)) as $query) {
    parse_str($query, $get);
    $route = $get['route'] ?? '';
    $route = is_array($route) ? (string) reset($route) : $route;
    $cleaned = preg_replace('/[^a-zA-Z0-9_|\\/\\.]/', '', str_replace('%7C', '|', str_replace('|', '.', $route)));
    $cleaned = preg_replace('/\\.index$/', '', $cleaned);
    $all[] = [strtolower($cleaned), strtolower(trim($route, '/'))];
}
echo json_encode($all, JSON_INVALID_UTF8_SUBSTITUTE);`

// TestRoutesOfPHP has PHP itself read queries by which a front controller chooses what it runs,
// and holds the gate to it: what leads to the route of a rule is matched or refused.
func TestRoutesOfPHP(t *testing.T) {
	id := []order.ID{{In: order.InQuery, Name: "order_id", Format: order.Format{Kind: order.Digits, Min: 1, Max: 19}}}
	const ruled, other = "payment/cod.confirm", "checkout/confirm"
	var tables []*order.Table
	for _, backend := range []order.Backend{order.Strict, order.PHP} {
		table, err := order.NewTable([]order.Rule{
			{Name: "pay", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"route": {ruled}}, IDs: id, Backend: backend},
			{Name: "confirm", Methods: []string{"POST"}, Path: "/index.php", Query: map[string][]string{"route": {other}}, IDs: id, Backend: backend},
		})
		bedtest.Check(t, err)
		tables = append(tables, table)
	}
	r := rand.New(rand.NewPCG(1, 3))
	queries := []string{}
	for range 20_000 {
		var route strings.Builder
		for _, c := range pick(r, ruled, ruled, other, other+".index", other+"x", "common/home") {
			switch r.IntN(24) {
			case 0:
				route.WriteString(strings.ToUpper(string(c)))
			case 1:
				route.WriteString(pick(r, "%25", "%00", "%0a", "-", "+", "%20", "$", "~", "%c3%a9", "!", "'", "%7C", "|", "%257C"))
				route.WriteRune(c)
			case 2:
				route.WriteString(escapeAll(string(c)))
			default:
				route.WriteRune(c)
			}
		}
		name := pick(r, "route", "route", "route", "route", "route[]", "route%5B%5D", "+route", "%72oute", "route%00", "Route", "route.x", "route[a")
		pairs := []string{name + "=" + pick(r, "", "", "", "/") + route.String() + pick(r, "", "", "/"), "order_id=42"}
		switch r.IntN(6) {
		case 0:
			pairs = append(pairs, "route="+pick(r, ruled, "common/home", ""))
		case 1:
			pairs = append([]string{"route=" + pick(r, other, "common/home")}, pairs...)
		}
		queries = append(queries, strings.Join(pairs, "&"))
	}
	var routes [][]string
	askPHP(t, routesOfPHP, queries, &routes)
	counts, wrong := map[string]int{}, 0
	for i, query := range queries {
		to := ""
		for _, route := range routes[i] {
			if route == ruled || route == other {
				to = route
			}
		}
		for _, table := range tables {
			m := table.Match(order.Request{Method: "POST", Target: "/index.php?" + query, BodyState: order.BodyComplete})
			what := "is refused"
			switch m.Result {
			case order.Named:
				what = "is matched"
			case order.Unruled:
				what = "passes"
			}
			counts[what+" "+to]++
			if to != "" && what == "passes" {
				if wrong++; wrong <= maxShown {
					t.Errorf("PHP takes %s for the route %s, and it passes", query, to)
				}
			}
		}
	}
	t.Logf("of %d queries: %v", len(queries), counts)
	for _, kind := range []string{"is matched " + ruled, "is refused " + ruled, "is refused " + other, "passes "} {
		if counts[kind] < 100 {
			t.Errorf("%d queries of the kind %q: too few", counts[kind], kind)
		}
	}
}
