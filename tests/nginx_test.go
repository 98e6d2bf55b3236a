package tests

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// httpStack is ordergate with its HTTP listener, a backend for reads, and what
// stands in for the Envoy that writes go to.
type httpStack struct {
	*stack
	http          string // "host:port" of ordergate's HTTP listener
	reads, writes *backend
}

func newHTTPStack(t testing.TB, changes ...func(string) string) *httpStack {
	t.Helper()
	bed := bedtest.New(t)
	s := &httpStack{
		stack: &stack{Bed: bed, t: t, server: bed.Redis()},
		reads: newBackend(t), writes: newBackend(t),
	}
	config := s.GateExample(s.server.Addr(), idFile(t, 10))
	for _, change := range changes {
		config = change(config)
	}
	s.gate = s.Gate(s.Build("./cmd/sidecar", true), config, "ORDERGATE_LISTEN_HTTP=127.0.0.1:0")
	s.http = s.GateAddr(s.gate, "http")
	return s
}

// awaitRefusals waits until orders that are absent are refused, for a test that starts nothing
// else: its first lookups may come before the first window.
func (s *httpStack) awaitRefusals() {
	s.t.Helper()
	bedtest.Eventually(s.t, "absent orders are refused", func() bool {
		return s.forwardAuth("http://"+s.http+"/check/forward-auth", "/orders/77").status == http.StatusNotFound
	})
}

// forwardAuth asks about a GET as Traefik does.
func (s *httpStack) forwardAuth(address, uri string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", address, nil)
	must(s.t, err)
	req.Header = http.Header{
		"X-Forwarded-Uri": {uri}, "X-Forwarded-Method": {"GET"}, "X-Forwarded-Host": {"shop"}, "X-Forwarded-Proto": {"http"},
	}
	resp, err := client.Do(req)
	must(s.t, err)
	body, err := io.ReadAll(resp.Body)
	must(s.t, err)
	must(s.t, resp.Body.Close())
	return answerOf(resp, body)
}

// substitute replaces what must occur in a text.
func substitute(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("there is no %q to replace", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// newNginx starts nginx with the example in front of all that. Changes are pairs of what to
// replace in it.
func newNginx(t testing.TB, changes ...string) *httpStack {
	t.Helper()
	s := newHTTPStack(t)
	text, err := os.ReadFile(filepath.Join(s.Root(), "examples", "nginx", "nginx.conf"))
	must(t, err)
	config := substitute(t, string(text),
		"listen 127.0.0.1:8000;", "listen 127.0.0.1:0;",
		"server 127.0.0.1:9193;", "server "+s.http+";",
		"server 127.0.0.1:8080;", "server "+s.reads.addr()+";",
		"server 127.0.0.1:10000;", "server "+s.writes.addr()+";",
	)
	nginx, err := s.Bed.Bed.Nginx(t.Context(), substitute(t, config, changes...))
	bedtest.Check(t, err)
	s.url = "http://" + nginx.Addr()
	s.awaitRefusals()
	return s
}

// raw sends bytes as they are and returns the answer.
func (s *httpStack) raw(request string) answer {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(s.t, err)
	defer conn.Close()
	must(s.t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, request)
	must(s.t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	return answerOf(resp, text)
}

func TestNginx(t *testing.T) {
	t.Parallel()
	s := newNginx(t)

	t.Run("absent", func(t *testing.T) {
		before := len(s.reads.seen())
		a := s.must("GET", "/orders/77?x=1", "")
		a.want(t, 404, "absent")
		if a.body != `{"error":"order not found"}` || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("answered %q of type %q", a.body, a.header.Get("Content-Type"))
		}
		if a := s.must("HEAD", "/orders/77", ""); a.status != 404 || a.verdict != "absent" {
			t.Errorf("HEAD: %d %q", a.status, a.verdict)
		}
		if n := len(s.reads.seen()) - before; n != 0 {
			t.Errorf("%d of them reached the backend", n)
		}
	})

	t.Run("malformed", func(t *testing.T) {
		s.must("GET", "/orders/042", "").want(t, 400, "invalid")
		s.must("POST", "/orders/x/settle", strings.Repeat("x", 100_000)).want(t, 400, "invalid")
		if n := s.reads.arrived("/orders/042") + s.writes.arrived("/orders/x/settle"); n != 0 {
			t.Errorf("%d of them reached a backend", n)
		}
	})

	t.Run("existing", func(t *testing.T) {
		forged := []string{
			"x-ordergate-verdict", "acquired", "x-ordergate-key", "order:lock:1", "x-ordergate-fence", "9", "x-ordergate-lease", "me",
			"X-Original-URI", "/orders/77", "X-Original-Method", "POST",
		}
		for path, verdict := range map[string]string{"/orders/5?a=%2F&b=+": "maybe", "/elsewhere//x/../y": ""} {
			s.raw("GET "+path+" HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n"+headerLines(forged)+"\r\n").want(t, 200, "")
			got := s.reads.seen()[len(s.reads.seen())-1]
			if got.RequestURI != path || got.Host != "shop" {
				t.Errorf("the backend was asked for %q of %q, want %q of shop", got.RequestURI, got.Host, path)
			}
			if got.Proto != "HTTP/1.1" {
				t.Errorf("it was asked in %s, which Envoy refuses", got.Proto)
			}
			if v := got.Header.Get("x-ordergate-verdict"); v != verdict {
				t.Errorf("%s: verdict %q at the backend, want %q", path, v, verdict)
			}
			for _, name := range []string{"x-ordergate-key", "x-ordergate-fence", "x-ordergate-lease", "X-Original-URI", "X-Original-Method"} {
				if v := got.Header.Values(name); v != nil {
					t.Errorf("the client's %s %q arrived", name, v)
				}
			}
		}
	})

	t.Run("without a host", func(t *testing.T) {
		s.raw("GET /orders/5 HTTP/1.0\r\n\r\n").want(t, 200, "")
		s.raw("GET /orders/77 HTTP/1.0\r\n\r\n").want(t, 404, "absent")
	})

	t.Run("clients", func(t *testing.T) {
		s.must("GET", "/clients", "", "X-Forwarded-For", "192.0.2.1").want(t, 200, "")
		got := s.reads.seen()[len(s.reads.seen())-1]
		if from := got.Header.Values("X-Forwarded-For"); len(from) != 1 || from[0] != "127.0.0.1" {
			t.Errorf("the backend was asked for %q", from)
		}
	})

	t.Run("forged", func(t *testing.T) {
		before := len(s.reads.seen())
		for _, name := range []string{"x-ordergate-settled-at", "x-ordergate-lease-lost", "x-ordergate-new"} {
			for _, path := range []string{"/orders/5", "/elsewhere"} {
				s.must("GET", path, "", name, "9").want(t, 400, "ambiguous")
			}
		}
		if n := len(s.reads.seen()) - before; n != 0 {
			t.Errorf("%d of them reached the backend", n)
		}
		s.must("GET", "/elsewhere", "", "X.Ordergate.Fence", "9", "X_Ordergate_Fence", "9").want(t, 200, "")
		for name := range s.reads.seen()[before].Header {
			if strings.Contains(strings.ToLower(name), "ordergate") {
				t.Errorf("%s reached the backend", name)
			}
		}
	})

	t.Run("reads with a body", func(t *testing.T) {
		before := len(s.writes.seen())
		body := `{"id":77}`
		s.raw("GET /orders/5 HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"+body).want(t, 200, "")
		s.raw("GET /orders/5 HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n"+body+"\r\n0\r\n\r\n").want(t, 200, "")
		if n := len(s.writes.seen()) - before; n != 2 {
			t.Errorf("%d of 2 went to the Envoy", n)
		}
		s.raw("GET /orders/5 HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\n\r\n").want(t, 200, "")
		if n := len(s.writes.seen()) - before; n != 2 {
			t.Error("one without a body went to the Envoy")
		}
	})

	t.Run("writes", func(t *testing.T) {
		body := strings.Repeat("x", 100_000)
		s.must("POST", "/orders/5/settle", body).want(t, 200, "")
		if s.writes.arrived("/orders/5/settle") != 1 || s.reads.arrived("/orders/5/settle") != 0 {
			t.Error("a write did not go to the Envoy")
		}
	})

	t.Run("fooling", func(t *testing.T) {
		before := len(s.reads.seen())
		for _, forged := range [][]string{
			{"X-Original-URI", "/orders/5"},
			{"X-Original-URI", "/orders/5", "x-original-uri", "/orders/6"},
			{"X_Original_URI", "/orders/5"},
			{"X-Original-Method", "PATCH"},
			{"X-Original-URI", "/orders/5", "Connection", "X-Original-URI"},
			{"X-Forwarded-Uri", "/orders/5", "X-Forwarded-Method", "PATCH"},
			{"x-ordergate-verdict", "maybe"},
			{"x-ordergate-answer", "/check/envoy/orders/5"},
		} {
			a := s.raw("GET /orders/77 HTTP/1.1\r\nHost: shop\r\n" + headerLines(forged) + "\r\n")
			if a.status != 404 || a.verdict != "absent" {
				t.Errorf("%q: %d %q", forged, a.status, a.verdict)
			}
		}
		s.raw("GET http://shop/orders/77 HTTP/1.1\r\nHost: shop\r\n\r\n").want(t, 404, "absent")
		for _, path := range []string{"/ordergate/check", "/ordergate/check?x"} {
			if a := s.must("GET", path, ""); a.status != 404 || a.verdict != "" {
				t.Errorf("%s: %d %q, want nginx's own 404", path, a.status, a.verdict)
			}
		}
		if n := len(s.reads.seen()) - before; n != 0 {
			t.Errorf("%d of them reached the backend", n)
		}
	})
}

// TestNginxThatCaches has nginx cache what ordergate answers, as some recipes for
// auth_request do: an order that comes to exist is not refused by what was said before.
func TestNginxThatCaches(t *testing.T) {
	t.Parallel()
	s := newNginx(t,
		"upstream service {", "proxy_cache_path answers keys_zone=answers:1m; upstream service {",
		"proxy_connect_timeout 250ms;", "proxy_cache answers; proxy_cache_key $request_uri$uri; proxy_cache_valid any 10m; proxy_connect_timeout 250ms;")
	for range 2 {
		s.must("GET", "/orders/77", "").want(t, 404, "absent")
	}
	if status, text := s.admin("POST", "/filters/orders/ids", `{"ids":["77"]}`); status != 200 {
		t.Fatalf("telling of an order: %d %s", status, text)
	}
	s.must("GET", "/orders/77", "").want(t, 200, "")
}

func headerLines(pairs []string) string {
	var lines strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		lines.WriteString(pairs[i] + ": " + pairs[i+1] + "\r\n")
	}
	return lines.String()
}

// TestNginxWithoutSidecar takes ordergate away and brings it back: lookups go on.
func TestNginxWithoutSidecar(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		away, back func(*testing.T, *testbed.Gate)
	}{
		{"killed", func(_ *testing.T, g *testbed.Gate) { g.Kill() }, nil},
		{"hanging",
			func(t *testing.T, g *testbed.Gate) { must(t, g.Pause()) },
			func(t *testing.T, g *testbed.Gate) { must(t, g.Resume()) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newNginx(t)
			s.must("GET", "/orders/77", "").want(t, 404, "absent")
			tt.away(t, s.gate)
			// Pausing takes the kernel a moment.
			bedtest.Eventually(t, "ordergate is away", func() bool { return s.must("GET", "/orders/78", "").status == 200 })
			for range 3 {
				s.must("GET", "/orders/77", "", "x-ordergate-verdict", "maybe").want(t, 200, "")
			}
			if n := s.reads.arrived("/orders/77"); n != 3 {
				t.Fatalf("%d requests reached the backend, want 3", n)
			}
			for _, r := range s.reads.seen() {
				if v := r.Header.Get("x-ordergate-verdict"); v != "" {
					t.Errorf("the client's own verdict %q reached the backend", v)
				}
			}
			if tt.back != nil {
				tt.back(t, s.gate)
				bedtest.Eventually(t, "lookups are decided again", func() bool { return s.must("GET", "/orders/77", "").status == 404 })
			}
		})
	}
}
