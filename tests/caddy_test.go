package tests

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// newCaddy starts Caddy with what ordergate prints for it, in front of the example.
func newCaddy(t testing.TB) *httpStack {
	t.Helper()
	s := newHTTPStack(t)
	cmd := exec.CommandContext(t.Context(), s.Build("./cmd/sidecar", false), "envoy", "--config", s.gate.ConfigFile(), "--for", "caddy",
		"--listen", "127.0.0.1:0", "--backend", s.reads.addr(), "--behind", s.writes.addr())
	cmd.Env = append(cmd.Environ(), "ORDERGATE_LISTEN_HTTP="+s.http)
	text, err := cmd.Output()
	must(t, err)
	caddy, err := s.Bed.Bed.Caddy(t.Context(), string(text))
	bedtest.Check(t, err)
	s.url = "http://" + caddy.Addr()
	s.awaitRefusals()
	return s
}

// TestCaddy has the real Caddy send lookups to ordergate first, and everything else to Envoy.
func TestCaddy(t *testing.T) {
	needsSidecar(t, "it asks ordergate over HTTP")
	t.Parallel()
	s := newCaddy(t)
	const host = " HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n"
	forged := headerLines([]string{
		"x-ordergate-verdict", "acquired", "x-ordergate-key", "order:lock:1", "x-ordergate-fence", "9", "x-ordergate-lease", "me", "X-Original-URL", "/orders/5", "X-Rewrite-URL", "/orders/5",
		"X-Forwarded-Uri", "/orders/5", "X-Forwarded-Method", "PATCH", "X-Forwarded-Host", "other",
	})
	for path, verdict := range map[string]string{"/orders/5?a=%2F&b=+": "", "/elsewhere//x/../y": ""} {
		s.raw("GET "+path+host+forged+"\r\n").want(t, 200, verdict)
		got := s.reads.seen()[len(s.reads.seen())-1]
		if got.RequestURI != path || got.Host != "shop" {
			t.Errorf("the backend was asked for %q of %q, want %q of shop", got.RequestURI, got.Host, path)
		}
		for _, name := range []string{"x-ordergate-verdict", "x-ordergate-key", "x-ordergate-fence", "x-ordergate-lease", "X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Uri", "X-Forwarded-Method"} {
			if v := got.Header.Values(name); v != nil {
				t.Errorf("the client's %s %q arrived", name, v)
			}
		}
	}
	before := len(s.reads.seen())
	a := s.must("GET", "/orders/77?x=1", "")
	a.want(t, 404, "absent")
	if a.body != `{"error":"order not found"}` || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("answered %q of type %q", a.body, a.header.Get("Content-Type"))
	}
	s.must("HEAD", "/orders/77", "").want(t, 404, "absent")
	s.must("GET", "/orders/042", "").want(t, 400, "invalid")
	for _, fooling := range []string{
		forged, "X-Forwarded-Uri: /orders/5\r\nConnection: X-Forwarded-Uri\r\n", "Connection: X-Forwarded-Method, X-Forwarded-Host\r\n", "X_Forwarded_Uri: /orders/5\r\n",
		"X-Forwarded-Uri: /orders/5\r\nx-forwarded-uri: /orders/6\r\n", "x-ordergate-answer: /check/envoy/orders/5\r\n", "Upgrade: h2c\r\n", "Expect: 100-continue\r\n",
	} {
		s.raw("GET /orders/77 HTTP/1.1\r\nHost: shop\r\n"+fooling+"\r\n").want(t, 404, "absent")
	}
	s.raw("GET http://shop/orders/77"+host+"\r\n").want(t, 404, "absent")
	for _, name := range []string{"x-ordergate-settled-at", "X.Ordergate.Fence", "X_Ordergate_Fence", "X-Ordergate_Key", "X!Ordergate!Lease"} {
		for _, path := range []string{"/orders/5", "/elsewhere"} {
			s.must("GET", path, "", name, "9").want(t, 400, "ambiguous")
		}
	}
	const body = `{"id":77}`
	chunked := s.raw("GET /orders/5" + host + "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n" + body + "\r\n0\r\n\r\n")
	if chunked.status != 413 {
		t.Errorf("a GET with a body of unknown length: %d", chunked.status)
	}
	for _, r := range s.reads.seen()[before:] {
		// Caddy may send the request on before it breaks off the body.
		if text := s.reads.body(r); r.RequestURI != "/orders/5" || len(r.TransferEncoding) == 0 || text != io.ErrUnexpectedEOF.Error() {
			t.Errorf("the backend has %s %s with %v and %q", r.Method, r.RequestURI, r.Header, text)
		}
	}
	s.raw("GET /orders/5"+host+"Content-Length: 0\r\n\r\n").want(t, 200, "")
	s.raw("GET /orders/5"+host+"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n").want(t, 200, "")
	if n := len(s.writes.seen()); n != 0 {
		t.Errorf("%d reads went to the Envoy", n)
	}
	s.raw("GET /orders/5"+host+"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n"+body).want(t, 200, "")
	s.must("POST", "/orders/5/settle", strings.Repeat("x", 100_000)).want(t, 200, "")
	if n := len(s.writes.seen()); n != 2 {
		t.Errorf("%d of 2 requests went to the Envoy", n)
	}
	// Here nothing but a backend gets the writes, so the doctor sends none of a rule's.
	if out, code := s.doctor(); code != 1 || !strings.Contains(out, "FAIL  attachment: a marked POST is not answered by ordergate") {
		t.Errorf("exit status %d:\n%s", code, out)
	}
	for _, r := range s.writes.seen()[2:] {
		if r.URL.Path != gate.MarkedPath {
			t.Errorf("the doctor has sent %s %s", r.Method, r.URL)
		}
	}
	s.gate.Kill()
	if a := s.must("GET", "/orders/5", ""); a.status != 502 {
		t.Errorf("while ordergate is away: %d", a.status)
	}
}
