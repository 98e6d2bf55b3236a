package tests

import (
	"encoding/json"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// describing has Envoy's access log show all metadata.
func describing(yaml string) string {
	const last = `                  ms: "%DURATION%"` + "\n"
	return bedtest.Replace(yaml, last, last+`                  authz: "%DYNAMIC_METADATA(envoy.filters.http.ext_authz)%"
                  metadata: "%DYNAMIC_METADATA(ordergate)%"
`)
}

// described returns the metadata that Envoy's access log has of the request of a path: those of
// lookups, and those of all else. Inside Envoy they are the same.
func (s *stack) described(path string) (authz, rest map[string]any) {
	s.t.Helper()
	type entry struct {
		Path            string
		Authz, Metadata map[string]any
	}
	var found entry
	bedtest.Eventually(s.t, "the access log has "+path, func() bool {
		text, err := os.ReadFile(s.envoy.Output())
		must(s.t, err)
		for line := range strings.Lines(string(text)) {
			found = entry{}
			if json.Unmarshal([]byte(line), &found) == nil && (found.Path == path || strings.HasSuffix(found.Path, url.QueryEscape(path))) { // sealed
				return true
			}
		}
		return false
	})
	delete(found.Authz, "ext_authz_duration") // Envoy's own
	if *attachment == asModule {
		return found.Metadata, found.Metadata
	}
	return found.Authz, found.Metadata
}

// oddOrders is a rule whose orders may be any text.
const oddOrders = `
  - name: odd
    match: {methods: [GET], path: /odd}
    id: {query: id, format: pattern, pattern: "(?s).*"}
    lookup: {filter: orders}
`

// TestMetadata has what Envoy's access log says of decisions, with orders that are not harmless in one.
func TestMetadata(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: edit(t, "\nrules:\n", "\nrules:"+oddOrders), envoy: describing})
	s.redis.HSet(t.Context(), "order:lock:5", "another:1", 1)
	is := func(fields ...any) map[string]any {
		m := make(map[string]any)
		for i := 0; i < len(fields); i += 2 {
			m[fields[i].(string)] = fields[i+1]
		}
		return m
	}
	for _, tt := range []struct {
		method, path string
		authz        bool // of ext_authz
		want         map[string]any
	}{
		{"GET", "/elsewhere", true, nil},
		{"GET", "/orders/1", true, is("rule", "order-lookup", "action", "lookup", "verdict", "maybe", "order", "1")},
		{"GET", "/orders/77", true, is("rule", "order-lookup", "action", "lookup", "verdict", "absent", "order", "77")},
		{"GET", "/orders/abc", true, is("rule", "order-lookup", "action", "lookup", "verdict", "invalid", "reason", "malformed_id")},
		{"GET", "/odd?id=<b>'", true, is("rule", "odd", "action", "lookup", "verdict", "absent", "order", "%3Cb%3E%27")},
		{"POST", "/orders/1/settle", false, is("rule", "commission-settle", "action", "settle", "verdict", "acquired", "order", "1", "fence", "FENCE", "outcome", "known")},
		{"POST", "/orders/5/settle", false, is("rule", "commission-settle", "action", "settle", "verdict", "busy", "order", "5", "outcome", "not_forwarded")},
		{"POST", "/orders?do=create&id=4711", false, is("rule", "order-create", "action", "create", "order", "4711")},
	} {
		s.must(tt.method, tt.path, "")
		authz, got := s.described(tt.path)
		if tt.authz {
			got = authz
		}
		if wait, ok := got["wait_ms"]; ok && (wait.(float64) <= 0 || tt.authz) {
			t.Errorf("%s: it waited for %v ms", tt.path, wait)
		}
		delete(got, "wait_ms")
		if seen := b.seen(); got["fence"] != nil && got["fence"] == seen[len(seen)-1].Header.Get("x-ordergate-fence") {
			got["fence"] = "FENCE"
		}
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.method, tt.path, diff)
		}
	}
}
