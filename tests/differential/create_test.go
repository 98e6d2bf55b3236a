package differential

import (
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// creates are the rules of the routes that create orders.
const creates = `
  - {name: new, match: {methods: [POST], path: /orders}, id: {format: digits}, create: {filter: orders, learn: {response_json: orderId}}}
  - {name: new-script, match: {methods: [POST], path: /index.php, query: {action: create}}, id: {format: digits}, create: {filter: orders, learn: {response_json: orderId}}}
  - {name: new-file, match: {methods: [POST], path: /shop/create.php}, id: {format: digits}, create: {filter: orders, learn: {response_json: orderId}}}
`

// TestDifferentialCreates sends odd requests to routes that create orders: each order that
// a backend made has been learned.
func TestDifferentialCreates(t *testing.T) {
	const combinations = 200
	for _, b := range backends {
		if !b.front {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			bed := bedtest.New(t)
			file := filepath.Join(t.TempDir(), "sightings")
			front := newFront(t, bed, b.run(t, bed.Root(), file), true, 1, creates)
			hash := fnv.New64a()
			hash.Write([]byte(b.name))
			g := &generator{rand: rand.New(rand.NewPCG(seed(t, false), hash.Sum64()))}
			routes, all := []source{newAtPath, newByScript, newByFile}, mutations()
			for _, s := range routes {
				g.add(s, true, nil)
				for _, m := range all {
					g.add(s, true, []mutation{m})
				}
			}
			for range combinations {
				g.add(pick(g.rand, routes...), true, []mutation{pick(g.rand, all...), pick(g.rand, all...)})
			}
			sent := make(map[string]request)
			for _, r := range g.requests {
				sent[r.name] = r
			}
			answers := sendAll(t.Context(), front.addr, g.requests, connections)
			wantAnswers(t, g.requests, answers)
			var broken []failure
			seen := readSightings(t, file)
			for _, s := range seen {
				if s.What == "create" && !front.mayExist(t, s.Order) {
					broken = append(broken, failure{s, sent[s.Case], "created, and not learned"})
				}
			}
			classes := classify(broken)
			t.Logf("%s: %d requests: %s; %d orders, %d not learned (%d classes)", b.name, len(g.requests), figures(answers), len(seen), len(broken), len(classes))
			for i, c := range classes {
				if i == maxShown {
					break
				}
				t.Errorf("%s: %v", b.name, c)
			}
		})
	}
}

// mayExist asks the filter for an order.
func (f *front) mayExist(t *testing.T, order string) bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.admin+"/filters/orders/contains?id="+order, nil)
	bedtest.Check(t, err)
	resp, err := http.DefaultClient.Do(req)
	bedtest.Check(t, err)
	defer resp.Body.Close()
	var found struct{ Answer string }
	bedtest.Check(t, json.NewDecoder(resp.Body).Decode(&found))
	return found.Answer == "maybe"
}
