package tests

import (
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// failedRules are those of a shop that answers 200 to everything, and redirects strangers.
const failedRules = `  - {name: save, match: {methods: [POST], path: /save}, id: {format: digits}, create: {filter: orders, learn: {response_json: data}}}
  - {name: at, match: {methods: [POST], path: /at}, id: {format: digits}, create: {filter: orders, learn: {response_header: x-new-order}}}
  - {name: pay, match: {methods: [POST], path: "/pay/{id}"}, id: {path: id}, settle: {lock: settlement, once: {}}}
  - name: order-create
`

const meaning = `answer:
  failed: [{status: 302, header: {location: "/login$"}}, {status: 200, content_type: text/html}]
  done: [{json: {resultCode: 200}}]
  absent: [{status: 200, json: {resultCode: 404}}]
filters:
`

// TestAnswersOfFailures has creates and settlements that fail with 200, or with a redirect to a
// login: they are no doubt, and are not stored.
func TestAnswersOfFailures(t *testing.T) {
	t.Parallel()
	reply := func(status, contentType, body string, header ...string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			status, contentType, strings.Join(header, ""), len(body), body)
	}
	const json = "application/json"
	answers := []string{
		reply("302 Found", "text/html", "", "Location: https://shop.example/login\r\n"),
		reply("200 OK", "text/html; charset=utf-8", "<title>Error</title>"),
		reply("200 OK", json, `{"resultCode":404,"data":null}`),
		reply("200 OK", json, `{"resultCode":404}`, "X-New-Order: 123456\r\n"),
		reply("200 OK", json, `{"resultCode":200,"data":123457}`),
		reply("200 OK", json, `{"resultCode":200}`, "X-New-Order: 123458\r\n"),
		reply("200 OK", json, `{"resultCode":500}`), // nothing says that this failed
	}
	s := newStack(t, settings{
		backend: newScripted(t, answers).addr(), orders: 10, envoy: unhurried(t),
		gate: edit(t, "  - name: order-create\n", failedRules, "filters:\n", meaning, "sources: [seed]", "sources: [seed]\n    stale_after: 60s"),
	})
	refuses := func() bool { return s.must("GET", "/orders/9999", "").status == 404 }
	for n := range answers {
		paths := []string{"/save", "/at"}
		switch n {
		case 4:
			paths = []string{"/save"}
		case 3, 5:
			paths = []string{"/at"}
		}
		for _, path := range paths {
			if got := s.must("POST", fmt.Sprintf("%s?n=%d", path, n), ""); !strings.Contains(answers[n], fmt.Sprint(got.status)) {
				t.Fatalf("answer %d is %d", n, got.status)
			}
			if failed := n < len(answers)-1; refuses() != failed {
				t.Errorf("%s, answer %d: absent orders are refused: %v", path, n, !failed)
			}
		}
	}
	s.reload(t)
	for id, want := range map[string]int{"123456": 404, "123457": 200, "123458": 200} {
		if got := s.must("GET", "/orders/"+id, "").status; got != want {
			t.Errorf("order %s is %d, want %d", id, got, want)
		}
	}
	// One settlement after the other: what failed is done again, and what was done is not.
	for i, tt := range []struct {
		n       int
		verdict string
	}{{0, ""}, {1, ""}, {2, ""}, {6, ""}, {4, ""}, {4, "replayed"}, {1, "replayed"}} {
		var got answer
		bedtest.Eventually(t, "the lock is free", func() bool { // it is released behind an answer that is not stored
			got = s.must("POST", fmt.Sprintf("/pay/1?n=%d", tt.n), "")
			return got.status != 409
		})
		if got.verdict != tt.verdict {
			t.Errorf("settlement %d: %d, verdict %q, want %q", i, got.status, got.verdict, tt.verdict)
		}
	}
}

// TestLookupsAnswered200 has a backend that says in JSON, or by a redirect, that it has no such
// order. ext_proc sees the answers to reads here.
func TestLookupsAnswered200(t *testing.T) {
	t.Parallel()
	var passed atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/orders/"))
		exists := err == nil && id <= 990
		if !exists && r.Header.Get("x-ordergate-verdict") == "maybe" {
			passed.Add(1)
		}
		switch {
		case !exists && id%2 == 1:
			http.Redirect(w, r, "/none", http.StatusFound)
			return
		case strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"): // it would not be readable
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = fmt.Fprintf(z, `{"resultCode":%d}`, map[bool]int{true: 200, false: 404}[exists])
			_ = z.Close()
			return
		}
		_, _ = fmt.Fprintf(w, `{"resultCode":%d}`, map[bool]int{true: 200, false: 404}[exists])
	}))
	defer backend.Close()
	declared := edit(t, "\nfilters:\n", `
answer: {done: [{json: {resultCode: 200}}], absent: [{json: {resultCode: 404}}, {status: 302, header: {location: "^/none$"}}]}
filters:
`)
	s := newStack(t, settings{
		backend: strings.TrimPrefix(backend.URL, "http://"), orders: 990, envoy: allThroughProc(t),
		gate: both(leaky(t, "0.01", "capacity: 1000"), declared),
	})
	s.probe(http.MethodGet, 900, 91) // these exist
	s.probe(http.MethodGet, 100_001, 600)
	if got := s.must(http.MethodGet, "/orders/7", ""); got.status != 200 || got.body != `{"resultCode":200}` {
		t.Errorf("got %d %q", got.status, got.body)
	}
	if passed.Load() < 10 {
		t.Fatalf("only %d of 600 passed", passed.Load())
	}
	bedtest.Eventually(t, "what passed is counted", func() bool { return s.number(passedMetric) == float64(passed.Load()) })
	bedtest.Eventually(t, "the rate is known", func() bool { return about(s.number(measuredMetric), float64(passed.Load())/600, 0.2) })
}

// TestPreconditions creates and settles by GET at a service behind Apache 2.4, which looks at the
// preconditions of a GET when the script has run (CGI, FastCGI): measured.
func TestPreconditions(t *testing.T) {
	t.Parallel()
	var ran, kept atomic.Int64
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := ran.Add(1)
		if r.Method != http.MethodGet {
			if r.Header.Get("If-Match") == "" {
				t.Errorf("%s %s lost its precondition", r.Method, r.URL)
			}
			return
		}
		for name, status := range map[string]int{"If-Match": 412, "If-Unmodified-Since": 412, "If-None-Match": 304, "If-Modified-Since": 304} {
			if r.Header.Get(name) != "" {
				kept.Add(1)
				w.WriteHeader(status)
				return
			}
		}
		_, _ = fmt.Fprintf(w, `{"data":%d}`, 1000+n)
	}))
	defer backend.Close()
	s := newStack(t, settings{
		backend: strings.TrimPrefix(backend.URL, "http://"), orders: 10, envoy: allThroughProc(t),
		gate: edit(t, "  - name: order-create\n", `  - {name: save, match: {methods: [GET, PUT], path: /save}, id: {format: digits}, create: {filter: orders, learn: {response_json: data}}}
  - {name: pay, match: {methods: [GET], path: "/pay/{id}"}, id: {path: id}, settle: {lock: settlement, once: {}}}
  - name: order-create
`),
	})
	const old = "Thu, 01 Jan 1970 00:00:01 GMT"
	for i, h := range [][2]string{{"If-Match", `"x"`}, {"If-Unmodified-Since", old}, {"If-None-Match", "*"}, {"If-Modified-Since", old}} {
		for _, path := range []string{"/save", fmt.Sprintf("/pay/%d", i), fmt.Sprintf("/pay/%d", i)} {
			s.must("GET", path, "", h[0], h[1])
		}
	}
	if n := ran.Load(); n != 8 || kept.Load() != 0 {
		t.Errorf("the backend ran %d times, want 8; %d times with a precondition", n, kept.Load())
	}
	for _, id := range []string{"1001", "1003", "1005", "1007"} {
		s.must("GET", "/orders/"+id, "", "If-None-Match", `"x"`).want(t, 304, "") // a lookup keeps it
	}
	s.must("PUT", "/save", "", "If-Match", `"x"`)
}
