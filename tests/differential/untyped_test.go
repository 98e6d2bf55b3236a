package differential

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// untypedRules read the order from JSON on the routes of which the backends read it from JSON
// and from a form, both as the profile says by default and as a strict rule that accepts.
func untypedRules(profile string) string {
	var b strings.Builder
	for _, r := range []struct{ name, backend, query string }{
		{"default", "backend: " + profile, ""},
		{"accepts", "json_without_type: accept", ", query: {mode: accept}"},
		{"refuses", "json_without_type: refuse, backend: " + profile, ", query: {mode: refuse}"},
		{"strict", "backend: strict", ", query: {mode: strict}"},
	} {
		for _, place := range []string{"json", "form"} {
			fmt.Fprintf(&b, "  - {name: %s-%s, match: {methods: [POST], path: /%s/settle%s}, id: {json: orderId, format: digits}, settle: {lock: settlement}, %s}\n",
				r.name, place, place, r.query, r.backend)
		}
	}
	// Those that match by a parameter have to come first.
	lines := strings.SplitAfter(b.String(), "\n")
	return strings.Join(append(lines[2:8:8], lines[:2]...), "")
}

// untypedBodies name order 43, and another one to a backend that reads them as a form.
var untypedBodies = []string{
	`{"orderId":43}`,
	`{"orderId":43,"x":"&orderId=143&id=143&order_id=143&"}`,
	`{"a=1&orderId=143&b":1,"orderId":43}`,
	"{\"x\":\"&orderId=143&\",\r\n\"orderId\":43}",
}

// waysOf are the ways in which Spring's routes read a body; other backends try all of theirs.
func waysOf(backend, place string) []string {
	switch {
	case backend != "spring35":
		return []string{"any"}
	case place == "json":
		return []string{"long", "model", "lenient"}
	}
	return []string{"long", "model"}
}

// TestJSONWithoutAType sends JSON without a Content-Type to real backends: where ordergate
// accepts it, each backend takes it for the order that is locked, or for none.
func TestJSONWithoutAType(t *testing.T) {
	profiles := map[string]string{"tomcat": "tomcat", "spring35": "spring", "php": "php", "fpm": "php", "apache": "php"}
	for _, b := range backends {
		profile := profiles[b.name]
		if profile == "" {
			continue // the long run alone has it
		}
		for _, inside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/inside=%v", b.name, inside), func(t *testing.T) {
				t.Parallel()
				bed := bedtest.New(t)
				file := filepath.Join(t.TempDir(), "sightings")
				backend := b.run(t, bed.Root(), file)
				addr := ""
				if inside {
					addr = newModule(t, bed, bed.Module(), backend, b.front, 2, untypedRules(profile))
				} else {
					addr = newFront(t, bed, backend, b.front, 2, untypedRules(profile)).addr
				}
				var requests []request
				var wanted []int // statuses
				add := func(query, place, body, headers string, want int) {
					for _, way := range waysOf(b.name, place) {
						name := strings.TrimSpace(fmt.Sprintf("%d: /%s/settle%s  %s", len(requests), place, query, headers))
						raw := fmt.Sprintf("POST /%s/settle%s HTTP/1.1\r\nhost: orders\r\nx-way: %s\r\nx-case: %s\r\n%scontent-length: %d\r\n\r\n%s", place, query, way, name, headers, len(body), body)
						requests, wanted = append(requests, request{name: name, raw: raw, method: "POST"}), append(wanted, want)
					}
				}
				for query, want := range map[string]int{"": 200, "?mode=accept": 200, "?mode=refuse": 400, "?mode=strict": 400} {
					for _, place := range []string{"json", "form"} {
						for _, body := range untypedBodies {
							add(query, place, body, "", want)
						}
						// None of these is what an old client sends.
						add(query, place, "orderId=43", "", 400)
						add(query, place, `{"orderId":43}`, "content-type:\r\n", 400)
						add(query, place, `{"orderId":43}`, "content-type: text/plain\r\n", 400)
						add(query, place, `{"orderId":43}`, "content-type: application/json\r\n", 200)
					}
				}
				for i, a := range sendAll(t.Context(), addr, requests, 1) {
					// Of what passes, Spring's routes refuse some themselves.
					passed := a.verdict == "" && (a.status == 200 || b.name == "spring35" && (a.status == 415 || a.status == 400))
					if refused := a.status == 400 && a.verdict != ""; passed != (wanted[i] == 200) || refused == passed {
						t.Errorf("%d %q, want %d: %q", a.status, a.verdict, wanted[i], requests[i].raw)
					}
				}
				read := 0
				for _, s := range readSightings(t, file) {
					if fault := s.fault(2); fault != "" {
						t.Errorf("%s: %s: %+v", s.Case, fault, s)
					}
					if strings.Contains(s.Case, "/json/settle?mode=accept") {
						read++
					}
				}
				if read < len(untypedBodies) {
					t.Errorf("the backend has read %d bodies without a type, want %d", read, len(untypedBodies))
				}
			})
		}
	}
}
