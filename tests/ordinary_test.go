package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ordinary are the lines behind "GET /orders/%N" of requests that well-meaning clients send.
var ordinary = []struct {
	name, query string
	lines       []string
}{
	{"plain", "", nil},
	{"an empty query", "?", nil},
	{"parameters", "?utm_source=mail&utm_medium=x&_=1700000000&page=2&sort=-date&fields=total,lines", nil},
	{"nested parameters", "?filter[status]=paid&filter%5Bfrom%5D=2024-01-01&tags[]=a&tags[]=b", nil},
	{"JSONP", "?callback=jQuery35106_1700000000&format=json", nil},
	{"other letters", "?q=%E4%BD%A0%E5%A5%BD&name=M%C3%BCller&x=a+b", nil},
	{"a condition", "", []string{`If-None-Match: W/"42", "43"`, "If-Modified-Since: Sat, 29 Oct 1994 19:43:31 GMT"}},
	{"a range", "", []string{"Range: bytes=0-99", `If-Range: "42"`}},
	{"codings", "", []string{"Accept-Encoding: gzip, deflate, br, zstd", "TE: trailers"}},
	{"a JSON client", "", []string{"Content-Type: application/json", "Accept: application/json, text/plain, */*"}},
	{"a JSON client with a charset", "", []string{"Content-Type: application/json;charset=UTF-8"}},
	{"a form client", "", []string{"Content-Type: application/x-www-form-urlencoded"}},
	{"a form client with a charset", "", []string{"Content-Type: application/x-www-form-urlencoded; charset=UTF-8"}},
	{"a multipart client", "", []string{"Content-Type: multipart/form-data; boundary=b"}},
	{"a client of another type", "", []string{"Content-Type: text/plain;charset=utf-8"}},
	{"an empty body", "", []string{"Content-Length: 0"}},
	{"an empty form", "", []string{"Content-Type: application/x-www-form-urlencoded", "Content-Length: 0"}},
	{"an empty JSON body", "", []string{"Content-Type: application/json", "Content-Length: 0"}},
	{"cookies", "", []string{"Cookie: session=a1b2c3; _ga=GA1.2.3.4; cart=%7B%22a%22%3A1%7D; theme=dark; a=\"b c\"; x="}},
	{"cookies in several lines", "", []string{"Cookie: session=a1b2c3", "Cookie: theme=dark", "Cookie: lang=de"}},
	{"a large cookie", "", []string{"Cookie: session=" + strings.Repeat("x", 8000)}},
	{"a browser", "", []string{
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64)", "Referer: https://shop.example/orders/%N?id=43", "Origin: https://shop.example",
		"Sec-Fetch-Mode: cors", "Sec-Fetch-Site: same-origin", "Upgrade-Insecure-Requests: 1", "DNT: 1", "X-Requested-With: XMLHttpRequest", "Cache-Control: no-cache", "Pragma: no-cache",
	}},
	{"a proxy in front", "", []string{"X-Forwarded-For: 10.0.0.1, 10.0.0.2", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop", "X-Forwarded-Port: 443", "X-Real-IP: 10.0.0.1", "Via: 1.1 proxy", "Forwarded: for=10.0.0.1;proto=https;host=shop"}},
	{"traces", "", []string{"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Request-ID: 7b1f", "b3: 1-2-3", "X-Correlation-Id: 43"}},
	{"its own method", "", []string{"X-HTTP-Method-Override: GET"}},
	{"other IDs in headers", "", []string{"X-Order-Id: 43", "Id: 43", "X-User-Id: 7", "Idempotency-Key: 43"}},
	{"many headers", "", strings.Split(strings.Repeat("X-A: 1\n", 80)+"X-B: 2", "\n")},
	{"an expectation", "", []string{"Expect: 100-continue"}},
	{"authorization", "", []string{"Authorization: Basic dXNlcjpwYXNz", "Proxy-Authorization: Basic eA=="}},
}

// TestOrdinaryLookups looks up orders as clients do: those that there are, of which one was
// just created, are found, and absent ones are not.
func TestOrdinaryLookups(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{
		backend: b.addr(), orders: 10, envoy: unhurried(t),
		gate: edit(t, "sources: [seed]", "sources: [seed]\n    stale_after: 60s"),
	})
	created := 1000
	for _, o := range ordinary {
		for _, version := range []string{"HTTP/1.1", "absolute", "HTTP/2", "HTTP/2 with an empty frame"} {
			for _, method := range []string{"GET", "HEAD"} {
				if method == "HEAD" && version != "HTTP/1.1" {
					continue
				}
				created++
				if a := s.must("POST", fmt.Sprint("/orders?do=create&id=", created), ""); a.status != 201 {
					t.Fatalf("a create: %d %s", a.status, a.body)
				}
				for id, want := range map[int]int{5: 200, created: 200, created + 1: 404} {
					var lines []string
					for _, l := range o.lines {
						lines = append(lines, strings.ReplaceAll(l, "%N", fmt.Sprint(id)))
					}
					got, err := s.raw(version, method, fmt.Sprint("/orders/", id)+o.query, lines)
					if err != nil || got != want {
						t.Errorf("%s, %s %s, order %d: %d, %v; want %d", o.name, version, method, id, got, err, want)
					}
				}
			}
		}
	}
}

// raw sends a request without a body and returns the status of its answer.
func (s *stack) raw(version, method, target string, lines []string) (status int, err error) {
	addr := strings.TrimPrefix(s.url, "http://")
	if strings.HasPrefix(version, "HTTP/2") {
		return s.raw2(addr, method, target, lines, version != "HTTP/2")
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	if version == "absolute" {
		target = "http://shop" + target
	}
	text := method + " " + target + " HTTP/1.1\r\nHost: shop\r\n"
	for _, l := range lines {
		text += l + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"); err != nil {
		return 0, err
	}
	reader := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(reader, &http.Request{Method: method})
		if err != nil {
			return 0, err
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= 200 {
			return resp.StatusCode, nil
		}
	}
}

// raw2 is raw over HTTP/2. The request may end with a frame of its own, as those of some
// clients do.
func (s *stack) raw2(addr, method, target string, lines []string, frame bool) (status int, err error) {
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+addr, nil)
	if err != nil {
		return 0, err
	}
	req.Host, req.URL.Opaque = "shop", "//shop"+target
	for _, l := range lines {
		name, value, _ := strings.Cut(l, ": ")
		if name = strings.ToLower(name); name != "te" && name != "content-length" {
			req.Header[name] = append(req.Header[name], value)
		}
	}
	if frame {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("")), -1
	}
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: &protocols, DisableCompression: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, nil
}
