package differential

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// forgedRules have one rule of each kind.
const forgedRules = `
  - {name: lookup, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id, format: digits}, lookup: {filter: orders}}
  - {name: lookup-by-post, match: {methods: [POST], path: "/orders/{id}/show"}, id: {path: id, format: digits}, lookup: {filter: orders}}
  - {name: new, match: {methods: [POST], path: /orders}, id: {format: digits}, create: {filter: orders, learn: {response_json: orderId}}}
  - {name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id, format: digits}, settle: {lock: settlement}}
  - {name: settle-by-body, match: {methods: [POST], path: "/settle"}, id: {json: orderId, format: digits}, settle: {lock: settlement}}
  - {name: observed, match: {methods: [POST], path: "/orders/{id}/pay"}, id: {path: id, format: digits}, settle: {lock: settlement}, mode: observe}
`

// forgedRequests are one for each rule, and for none. Those of a rule have the headers that
// ordergate sets on them.
var forgedRequests = []struct {
	line, body string
	sets       []string
	observed   bool
}{
	{"GET /elsewhere", "", nil, false},
	{"POST /elsewhere", "note=x", nil, false},
	{"GET /orders/43", "", []string{"VERDICT"}, false},
	{"POST /orders/43/show", "", []string{"VERDICT"}, false},
	{"POST /orders?new=143", "", nil, false},
	{"POST /orders/43/settle", "", []string{"FENCE", "KEY", "LEASE", "VERDICT"}, false},
	{"POST /settle", `{"orderId":43}`, []string{"FENCE", "KEY", "LEASE", "VERDICT"}, false},
	{"POST /orders/43/pay", "", nil, true},
}

// forgedHeaders are all that a client may send to have PHP, behind some server, take it for
// one of ordergate's. The value of each is "forged".
func forgedHeaders() (all [][]string) {
	for _, name := range []string{"key", "fence", "lease", "verdict", "lease-lost", "settled-at", "not-invented-yet"} {
		plain := "x-ordergate-" + name
		all = append(all, []string{plain}, []string{strings.ToUpper(plain)}, []string{plain, plain})
		for _, r := range []string{"_", ".", "~", "!"} {
			spelt := strings.ReplaceAll(plain, "-", r)
			all = append(all, []string{spelt}, []string{strings.Replace(plain, "-", r, 1)}, []string{"X-Ordergate" + r + name}, []string{spelt, plain, spelt})
		}
	}
	for _, name := range []string{"x-original-url", "x-rewrite-url"} {
		for _, r := range []string{"-", "_", ".", "~"} {
			all = append(all, []string{strings.ReplaceAll(name, "-", r)})
		}
	}
	return all
}

// TestForgedHeaders sends headers in ordergate's names, in each spelling, with requests of
// each kind: PHP sees those that ordergate set, and no other.
func TestForgedHeaders(t *testing.T) {
	backends := []struct {
		name string
		run  func(t *testing.T, root, script, file string) string
	}{{"php", runPHP}, {"fpm", runNginx}, {"apache", runApache}}
	for part, b := range backends {
		for _, inside := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/inside=%v", b.name, inside), func(t *testing.T) {
				t.Parallel()
				bed := bedtest.New(t)
				file := filepath.Join(t.TempDir(), "sightings")
				backend := b.run(t, bed.Root(), "server", file)
				addr := ""
				if inside {
					addr = newModule(t, bed, bed.Module(), backend, true, 2, forgedRules)
				} else {
					addr = newFront(t, bed, backend, true, 2, forgedRules).addr
				}
				requests, sets := requestsWithForged(part, len(backends))
				wantAnswers(t, requests, sendAll(t.Context(), addr, requests, connections))
				wantOwn(t, readForged(t, file), sets)
			})
		}
	}
}

// requestsWithForged are one part of all requests with each of the forged headers, or all
// parts with SOAK, and what ordergate sets on each, by its name. Those without a forged
// header are called "plain", and belong to every part.
func requestsWithForged(part, parts int) (requests []request, sets map[string][]string) {
	sets = make(map[string][]string)
	for n, r := range forgedRequests {
		for i, names := range append(forgedHeaders(), nil) {
			if names != nil && (n+i)%parts != part && os.Getenv("SOAK") == "" {
				continue // another backend gets it
			}
			if r.observed && strings.HasSuffix(strings.Join(names, ""), "url") {
				continue // in mode observe a request passes that would be refused for it
			}
			for _, version := range []string{"HTTP/1.1", overHTTP2} {
				kind := "plain"
				if names != nil {
					kind = fmt.Sprint(i)
				}
				name := fmt.Sprintf("%s: %s, %s", kind, r.line, version)
				requests = append(requests, forgedRequest(name, r.line, version, r.body, names))
				sets[name] = r.sets
			}
		}
	}
	return requests, sets
}

// wantOwn checks that PHP saw no forged header, and each plain request.
func wantOwn(t *testing.T, seen []forgedSighting, sets map[string][]string) {
	t.Helper()
	shown, plain := 0, 0
	for _, s := range seen {
		if strings.HasPrefix(s.Case, "plain") {
			plain++
		}
		if got := slices.Sorted(maps.Keys(s.Headers)); !s.isOwn(sets[s.Case]) && shown < maxShown {
			shown++
			t.Errorf("%s: PHP has %v, want %v: %v", s.Case, got, sets[s.Case], s.Headers)
		}
	}
	if want := 2 * len(forgedRequests); plain != want {
		t.Errorf("PHP has seen %d plain requests, want %d", plain, want)
	}
}

// forgedRequest makes a request with these headers.
func forgedRequest(name, line, version, body string, forged []string) request {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\r\nhost: orders\r\nx-case: %s\r\n", line, version, name)
	for _, h := range forged {
		fmt.Fprintf(&b, "%s: forged\r\n", h)
	}
	if body != "" {
		kind := "text/plain"
		if body[0] == '{' {
			kind = "application/json"
		}
		fmt.Fprintf(&b, "content-type: %s\r\n", kind)
	}
	method, _, _ := strings.Cut(line, " ")
	if method == "POST" {
		fmt.Fprintf(&b, "content-length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	r := request{name: name, raw: b.String(), method: method}
	if version == overHTTP2 {
		r.http2 = inHTTP2(r.raw)
	}
	return r
}

// forgedSighting is what PHP had of one request.
type forgedSighting struct {
	Case    string
	Headers map[string]string // "HTTP_X_ORDERGATE_KEY"
}

// isOwn reports whether all headers are ordergate's own, and none is missing. With a forged
// verdict that came twice ordergate may set none.
func (s forgedSighting) isOwn(sets []string) bool {
	for name, value := range s.Headers {
		if !slices.Contains(sets, strings.TrimPrefix(name, "HTTP_X_ORDERGATE_")) || strings.Contains(value, "forged") {
			return false
		}
	}
	return len(s.Headers) == len(sets) || len(s.Headers) == 0 && len(sets) == 1
}

func readForged(t *testing.T, path string) (all []forgedSighting) {
	t.Helper()
	text, err := os.ReadFile(path)
	bedtest.Check(t, err)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var s forgedSighting
		bedtest.Check(t, json.Unmarshal(lines.Bytes(), &s))
		all = append(all, s)
	}
	return all
}
