package differential

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// partSources are the places of a part in these tests. The backends take it for the order: what
// they see has to be the part in the lock's key.
var partSources = []source{inPath, inHeader, inQuery, inCookie}

// ofAShop is the order's ID within the part, in a header of every request.
const ofAShop = "7"

// partRules settle an order by its ID within a part.
func partRules() string {
	var b strings.Builder
	place := map[source]string{inPath: "path: id", inQuery: "query: orderId", inHeader: "header: x-order-id", inCookie: "cookie: orderId"}
	for _, s := range partSources {
		path := "/" + string(s) + "/settle"
		if s == inPath {
			path = "/orders/{id}/settle"
		}
		fmt.Fprintf(&b, "  - {name: %s, match: {methods: [POST], path: \"%s\"}, id: {header: x-within, format: digits}, parts: {tenant: {%s, format: digits}}, settle: {lock: settlement}}\n",
			s, path, place[s])
	}
	return b.String()
}

// partRequests returns the settlements among some requests whose order is a part here. It leaves
// out those by which a front controller routes a path: to see these, the gate has to know the
// parameters that name an order there, and here they name a part.
func partRequests(all []request, front bool) (some []request) {
	for _, r := range all {
		routed := slices.ContainsFunc(r.mutations, func(name string) bool { return strings.Contains(name, "front controller") })
		if !r.settle || !slices.Contains(partSources, r.source) || r.source == inPath && (front || routed) {
			continue
		}
		r.raw = strings.Replace(r.raw, "\r\n", "\r\nX-Within: "+ofAShop+"\r\n", 1)
		if r.http2 != nil {
			r.http2 = inHTTP2(r.raw)
		}
		some = append(some, r)
	}
	return some
}

// TestParts sends what is odd about a part in a header, a query or a cookie to real backends:
// each settles under the lock of the part that it saw, or not at all.
func TestParts(t *testing.T) {
	for _, b := range backends {
		if b.soak {
			continue
		}
		for _, inside := range []bool{false, true} {
			if inside && b.name != "php" && b.name != "tomcat" {
				continue // the attachments read requests in one way
			}
			t.Run(fmt.Sprintf("%s/inside=%v", b.name, inside), func(t *testing.T) {
				t.Parallel()
				bed := bedtest.New(t)
				file := filepath.Join(t.TempDir(), "sightings")
				backend := b.run(t, bed.Root(), file)
				config := strings.Replace(gateConfig(t, bed, 2, partRules()), `"order:lock:{id}"`, `"order:lock:{tenant}/{id}"`, 1)
				addr := ""
				if inside {
					addr = moduleOf(t, bed, bed.Module(), backend, b.front, config)
				} else {
					addr = frontOf(t, bed, backend, b.front, config).addr
				}
				known := partRequests(plain(decoyEnd, b.front), b.front)
				for i, a := range sendAll(t.Context(), addr, known, 1) {
					if a.status != 200 {
						t.Errorf("the plain request for %d is answered by %+v: %q", known[i].order, a, known[i].raw)
					}
				}
				plainSeen := len(readSightings(t, file))
				if plainSeen < len(known) || len(known) == 0 {
					t.Errorf("of %d plain requests %d are seen", len(known), plainSeen)
				}
				odd := partRequests(generate(1, b.name, b.front, testSize), b.front)
				answers := sendAll(t.Context(), addr, odd, connections)
				wantAnswers(t, odd, answers)
				seen := readSightings(t, file)
				sent := make(map[string]request)
				for _, r := range slices.Concat(known, odd) {
					sent[r.name] = r
				}
				for _, s := range seen {
					if s.What == "settle" && s.Key != "order:lock:"+s.Order+"/"+ofAShop {
						t.Errorf("%s saw the part %s under the key %q: %q", b.name, s.Order, s.Key, sent[s.Case].raw[:min(len(sent[s.Case].raw), 1000)])
					}
				}
				t.Logf("%d requests: %s; %d were seen", len(odd), figures(answers), len(seen)-plainSeen)
			})
		}
	}
}
