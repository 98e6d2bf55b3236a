package differential

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/order"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// namesOfPHP prints, for each query of a JSON list, the names that PHP makes of it.
const namesOfPHP = `
ini_set('max_input_vars', '10');
$all = [];
foreach (json_decode(stream_get_contents(STDIN)) as $query) {
    parse_str(base64_decode($query), $names);
    $all[] = array_map('strval', array_keys($names));
}
echo json_encode($all, JSON_INVALID_UTF8_SUBSTITUTE);`

// askPHP runs a script of PHP on a list, as JSON, and reads the list that it prints.
func askPHP(t *testing.T, script string, list, into any) {
	t.Helper()
	bedtest.NeedProcesses(t)
	in, err := json.Marshal(list)
	bedtest.Check(t, err)
	cmd := exec.CommandContext(t.Context(), program(t, "php", "php"), "-r", script)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	bedtest.Check(t, err)
	bedtest.Check(t, json.Unmarshal(out, into))
}

// TestNamesOfPHP has PHP itself say what it makes of names, and holds the gate to it:
// whatever PHP takes for order_id, or for another rule's id, is the order or refused.
func TestNamesOfPHP(t *testing.T) {
	format := order.Format{Kind: order.Digits, Min: 1, Max: 19}
	table, err := order.NewTable([]order.Rule{
		{Methods: []string{"GET"}, Path: "/orders", IDs: []order.ID{{In: order.InQuery, Name: "order_id", Format: format}}, Backend: order.PHP},
		{Methods: []string{"GET"}, Path: "/orders/{id}", IDs: []order.ID{{In: order.InPath, Name: "id", Format: format}}, Backend: order.PHP, OtherMethods: true},
	})
	bedtest.Check(t, err)

	// Names of all pieces up to a length, and of some at random.
	pieces := []string{"order", "id", "_", ".", "[", "]", "+", "%20", "%5b", "%5D", "%00", "x", "method"}
	var names []string
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				names = append(names, a+b+c)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var name strings.Builder
		for range 2 + r.IntN(6) {
			name.WriteString(pick(r, pieces...))
		}
		names = append(names, name.String(), phpSpelling(r, pick(r, "order_id", "id", "_method"), true))
	}
	queries := make([][]byte, len(names)) // base64 in JSON
	for i, name := range names {
		queries[i] = []byte(name + "=42")
	}
	var made [][]string
	askPHP(t, namesOfPHP, queries, &made)

	counts := map[string]int{}
	for i, name := range names {
		for _, as := range made[i] {
			target, method := "", "GET"
			switch as {
			case "order_id":
				target = "/orders?order_id=43&" + name + "=42"
			case "id":
				target = "/orders/43?" + name + "=42"
			case "_method":
				target, method = "/orders/43?"+name+"=GET", "POST"
			default:
				continue
			}
			counts[as]++
			if m := table.Match(order.Request{Method: method, Target: target}); m.Result != order.Ambiguous {
				t.Errorf("PHP takes %q for %q, and the gate has %+v of %s", name, as, m, target)
			}
		}
	}
	t.Logf("of %d names: %v", len(names), counts)
	for _, as := range []string{"order_id", "id", "_method"} {
		if counts[as] < 100 {
			t.Errorf("PHP took %d names for %q: too few", counts[as], as)
		}
	}
}
