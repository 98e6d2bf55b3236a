package tests

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplies has answers of ordergate as a shop has them: pages with 200, redirects and headers
// of its own.
func TestReplies(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "absent.html")
	const text = "<title>M\u00fcller: no such order</title>\n"
	must(t, os.WriteFile(page, []byte(text), 0o600))
	const rules = `
  - {name: page, match: {methods: [GET, HEAD], path: "/page/{id}"}, id: {path: id}, lookup: {filter: orders, absent: {status: 200, content_type: text/html; charset=utf-8, body_file: PAGE, headers: {X-Shop: a b}}}}
  - {name: redirect, match: {methods: [GET], path: "/redirect/{id}"}, id: {path: id}, lookup: {filter: orders, absent: {status: 302, headers: {location: "/cart?from=1", cache-control: private}}}}
  - {name: pay, match: {methods: [POST], path: "/pay/{id}"}, id: {path: id}, settle: {lock: settlement, busy: {status: 200, content_type: text/plain, body: wait}}, lookup: {filter: orders}}
`
	gate := edit(t, "\nrules:\n", "\nrules:"+strings.ReplaceAll(rules, "PAGE", page))
	if *attachment != asModule {
		gate = both(gate, edit(t, "\nlisten:\n", "\nlisten:\n  http: 127.0.0.1:0\n"))
	}
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: gate})
	check := func(got answer, status int, contentType, body string, header ...string) {
		t.Helper()
		if got.status != status || got.body != body || got.header.Get("Content-Type") != contentType {
			t.Errorf("got %d %q %q, want %d %q %q", got.status, got.header.Get("Content-Type"), got.body, status, contentType, body)
		}
		for i := 0; i < len(header); i += 2 {
			if v := got.header.Get(header[i]); v != header[i+1] {
				t.Errorf("%s is %q, want %q", header[i], v, header[i+1])
			}
		}
	}
	const html = "text/html; charset=utf-8"
	check(s.must("GET", "/page/99", ""), 200, html, text, "X-Ordergate-Verdict", "absent", "X-Shop", "a b", "Cache-Control", "no-store")
	check(s.must("HEAD", "/page/99", ""), 200, html, "", "X-Ordergate-Verdict", "absent")
	check(s.must("GET", "/redirect/99", ""), 302, s.must("GET", "/redirect/99", "").header.Get("Content-Type"), "", "Location", "/cart?from=1", "Cache-Control", "private")
	if got := s.must("GET", "/page/1", ""); got.header.Get("X-Shop") != "" || got.status == 200 && strings.Contains(got.body, "no such order") {
		t.Errorf("an order that exists gets %+v", got)
	}
	must(t, s.redis.HSet(t.Context(), "order:lock:7", "another:1", 1).Err())
	check(s.must("POST", "/pay/7", ""), 200, "text/plain", "wait", "X-Ordergate-Verdict", "busy")
	if n := b.arrived("/page/99") + b.arrived("/redirect/99") + b.arrived("/pay/7"); n > 0 {
		t.Errorf("%d requests arrived", n)
	}
	if *attachment == asModule {
		return
	}
	// To a proxy that asks by HTTP, 2xx would mean that the request passes.
	for path, status := range map[string]int{"/page/99": 403, "/redirect/99": 302, "/page/1": 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.GateAddr(s.gate, "http")+"/check/envoy"+path, nil)
		must(t, err)
		resp, err := client.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		if resp.StatusCode != status {
			t.Errorf("%s is answered with %d, want %d", path, resp.StatusCode, status)
		}
	}
}
