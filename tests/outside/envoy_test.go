package outside

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// backend is an order service that a test looks into.
type backend struct {
	*httptest.Server
	hang chan struct{} // closed: what hangs goes on

	mu   sync.Mutex
	seen []*http.Request
}

func newBackend(t testing.TB) *backend {
	bedtest.NeedProcesses(t)
	b := &backend{hang: make(chan struct{})}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		b.mu.Lock()
		b.seen = append(b.seen, r)
		b.mu.Unlock()
		switch {
		case r.URL.Query().Has("hang"):
			select {
			case <-b.hang:
			case <-r.Context().Done():
			}
		case r.URL.Query().Has("prints"): // and pays when it goes on
			if r.URL.Query().Get("prints") == "" {
				w.Header().Set("Content-Length", "1000")
			}
			fmt.Fprintln(w, "<h1>Settling</h1>")
			_ = http.NewResponseController(w).Flush()
			if r.URL.Query().Get("prints") != "whole" {
				<-b.hang
			}
		case r.URL.Query().Has("fail"):
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Query().Has("slow"):
			select {
			case <-time.After(50 * time.Millisecond): // far longer than what a client asks Envoy for
			case <-r.Context().Done():
			}
		case r.URL.Query().Has("large"):
			_, _ = io.CopyN(w, zeros{}, 64<<20)
		}
	}))
	t.Cleanup(func() {
		close(b.hang)
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func (b *backend) addr() string { return strings.TrimPrefix(b.URL, "http://") }

// arrived counts the requests for a path.
func (b *backend) arrived(path string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.seen {
		if r.URL.Path == path {
			n++
		}
	}
	return n
}

// ask makes one request from an address, on a connection of its own.
func (s *site) ask(from, method, target string, header ...string) (int, http.Header) {
	s.t.Helper()
	client := s.client(from)
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+target, nil)
	bedtest.Check(s.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header[header[i]] = append(req.Header[header[i]], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Logf("%s %s: %v", method, target, err)
		return 0, nil
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header
}

// TestEnvoyHeadersOfClients has a client on loopback ask Envoy, by its own headers, to
// send a settlement twice, to give up early, or to tell more. None has any effect.
func TestEnvoyHeadersOfClients(t *testing.T) {
	t.Parallel()
	for _, attachment := range []string{"sidecar", "module"} {
		s := newSite(t, attachment, change{backend: true})
		b := s.backend
		for i, header := range [][]string{
			{"X-Envoy-Retry-On", "5xx", "X-Envoy-Max-Retries", "3"},
			{"X-Envoy-Retry-On", "retriable-status-codes", "X-Envoy-Retriable-Status-Codes", "503"},
			{"X-Envoy-Retry-Grpc-On", "unavailable"},
			{"X-Envoy-Retry-On", "5xx", "X-Forwarded-For", "10.0.0.1", "X-Envoy-Internal", "true"},
		} {
			path := fmt.Sprintf("/orders/%d/settle", i+1)
			before := b.arrived(path)
			if status, _ := s.ask("127.0.0.1", "POST", path+"?fail", header...); status != 503 {
				t.Errorf("%s: %v: %d, want the backend's 503", attachment, header, status)
			}
			if n := b.arrived(path) - before; n != 1 {
				t.Errorf("%s: %v: the settlement arrived %d times", attachment, header, n)
			}
		}
		for _, header := range [][]string{
			{"X-Envoy-Upstream-Rq-Timeout-Ms", "1"},
			{"X-Envoy-Upstream-Rq-Per-Try-Timeout-Ms", "1"},
			{"X-Envoy-Upstream-Rq-Timeout-Ms", "1", "X-Envoy-Upstream-Rq-Timeout-Alt-Response", "1"},
			{"X-Envoy-Retry-On", "5xx", "X-Envoy-Hedge-On-Per-Try-Timeout", "true", "X-Envoy-Upstream-Rq-Per-Try-Timeout-Ms", "1"},
		} {
			if status, _ := s.ask("127.0.0.1", "POST", "/orders/20/settle?slow", header...); status != 200 {
				t.Errorf("%s: %v: %d, want 200", attachment, header, status)
			}
		}
		s.ask("127.0.0.1", "GET", "/elsewhere", "X-Envoy-Decorator-Operation", "x", "X-Envoy-Original-Path", "/orders/9", "X-Envoy-Max-Retries", "9", "X-Envoy-Ip-Tags", "a")
		b.mu.Lock()
		for name, values := range b.seen[len(b.seen)-1].Header {
			if strings.HasPrefix(name, "X-Envoy-") && name != "X-Envoy-Expected-Rq-Timeout-Ms" && name != "X-Envoy-External-Address" { // Envoy's own
				t.Errorf("%s: the backend got %s: %q", attachment, name, values)
			}
		}
		b.mu.Unlock()
	}
}

// TestAccessLog sends bytes that a terminal obeys, and a line break, as a path. Each line
// of the log is JSON, and has none of them.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	onBoth(t, change{backend: true}, func(t *testing.T, s *site) {
		served := 0
		for i, path := range []string{
			// Envoy refuses the first two before it brings them into one spelling.
			"/\x9b31mred%2f", "/\u009b31mred%2f", "/\u202e%2f\"},{\"path\":\"/forged", "/\x9b31mred", "/\xc2\x9b31mred", "/a\u0085b", "/\xff\xfe", "/\x1b[31m", "/a\nb", "/a\"},{\"path\":\"/forged", "/\u202egnp", "/\xe2\x80\xa8x", "/\x7f",
		} {
			c, err := s.rawHTTP2(t.Context(), "127.0.0.1")
			bedtest.Check(t, err)
			stream, err := c.open(true, ":method", "GET", ":scheme", "http", ":authority", "shop", ":path", path, "user-agent", fmt.Sprint(i))
			bedtest.Check(t, err)
			status, err := c.status(stream, 10*time.Second)
			t.Logf("%q: %d, %v", path, status, err) // Envoy refuses some, by closing the connection
			if status > 0 {
				served++
			}
			_ = c.Close()
		}
		s.ask("127.0.0.1", "GET", "/the-last")
		bedtest.Eventually(t, "the last request is logged", func() bool {
			text, err := os.ReadFile(s.envoy.Output())
			bedtest.Check(t, err)
			return strings.Contains(string(text), "/the-last")
		})
		if lines := s.checkAccessLog(); lines < served || served < 5 {
			t.Errorf("the log has %d lines of %d requests", lines, served)
		}
	})
}

// checkAccessLog reads what Envoy wrote: its lines are JSON, or its own, and have nothing
// but visible ASCII. It returns how many are JSON.
func (s *site) checkAccessLog() (lines int) {
	s.t.Helper()
	f, err := os.Open(s.envoy.Output())
	bedtest.Check(s.t, err)
	defer f.Close()
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if i := strings.IndexFunc(line, func(r rune) bool { return (r < ' ' && r != '\t') || r > '~' }); i >= 0 {
			s.t.Errorf("Envoy's log has the byte %#x: %q", line[i], line)
		}
		if !strings.HasPrefix(line, "{") {
			continue
		}
		lines++
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil || len(fields) != s.fields {
			s.t.Errorf("%d fields, error %v, in %q", len(fields), err, line)
			return lines // the next ones would be like it, a million of them in a long run
		}
	}
	bedtest.Check(s.t, scanner.Err())
	return lines
}

// TestRequestInPieces begins settlements and goes on with a byte now and then: no lock is
// taken for what is not complete, nothing of it reaches the backend, and it ends.
func TestRequestInPieces(t *testing.T) {
	t.Parallel()
	onBoth(t, change{backend: true, envoy: replaced(t, "request_timeout: 20s", "request_timeout: 2s")}, func(t *testing.T, s *site) {
		for _, head := range []string{
			"POST /orders/7/settle HTTP/1.1\r\nHost: shop\r\nContent-Length: 1000\r\n\r\n",
			"POST /orders/7/settle HTTP/1.1\r\nHost: shop\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n",
			"POST /elsewhere HTTP/1.1\r\nHost: shop\r\nContent-Length: 1000\r\n\r\n",
			"GET /orders/7 HTTP/1.1\r\nHost: shop\r\nContent-Length: 1000\r\n\r\n",
		} {
			conn, err := s.dial(t.Context(), "127.0.1.1")
			bedtest.Check(t, err)
			begun := time.Now()
			_, err = conn.Write([]byte(head))
			bedtest.Check(t, err)
			ended := make(chan string, 1)
			go func() {
				answer, _ := io.ReadAll(conn)
				ended <- string(answer)
			}()
			for answer := ""; answer == ""; {
				if keys := s.locks(); len(keys) > 0 {
					t.Errorf("locked before it was complete: %q", keys)
				}
				select {
				case answer = <-ended:
					if !strings.HasPrefix(answer, "HTTP/1.1 408 ") {
						t.Errorf("%.20s: it ended with %.40q", head, answer)
					}
				case <-time.After(100 * time.Millisecond): // a byte now and then
					_, _ = conn.Write([]byte("x"))
				}
				if time.Since(begun) > 20*time.Second {
					t.Fatalf("%.20s: it goes on", head)
				}
			}
			_ = conn.Close()
		}
		if b := s.backend; b.arrived("/orders/7/settle")+b.arrived("/elsewhere")+b.arrived("/orders/7") > 0 {
			t.Error("what is not complete reached the backend")
		}
		if status, _ := s.ask("127.0.0.1", "POST", "/orders/7/settle"); status != 200 {
			t.Errorf("the order is settled with %d", status)
		}
	})
}

// TestOneClientsSettlements has one client settle as fast as it can. It is slowed, and
// another client is not.
func TestOneClientsSettlements(t *testing.T) {
	t.Parallel()
	few := func(text string) string {
		return strings.ReplaceAll(text, "max_tokens: 1000, tokens_per_fill: 100,", "max_tokens: 20, tokens_per_fill: 10,")
	}
	onBoth(t, change{backend: true, envoy: few}, func(t *testing.T, s *site) {
		limited := 0
		for i := range 200 {
			if status, _ := s.ask("127.0.1.1", "POST", fmt.Sprintf("/orders/%d/settle", i+1), "X-Forwarded-For", fmt.Sprintf("10.0.0.%d", i)); status == 429 {
				limited++
			}
		}
		if limited == 0 {
			t.Error("nothing was limited")
		}
		for range 5 {
			if status, _ := s.ask("127.0.1.2", "POST", "/orders/500/settle"); status != 200 {
				t.Errorf("another client got %d", status)
			}
		}
		if status, _ := s.ask("127.0.1.1", "GET", "/orders/500"); status != 200 {
			t.Errorf("a read of the limited client got %d", status)
		}
	})
}

// TestWritesThatHang fills all connections that writes have. Reads are served, and what is
// too much is refused at once.
func TestWritesThatHang(t *testing.T) {
	t.Parallel()
	onBoth(t, change{}, func(t *testing.T, s *site) {
		var refused atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			all.Go(func() {
				if status, _ := s.ask(fmt.Sprintf("127.0.1.%d", i/10+1), "POST", fmt.Sprintf("/orders/%d/settle?slow=3000", i+1)); status == 503 {
					refused.Add(1)
				}
			})
		}
		bedtest.Eventually(t, "the connections of writes are used up", func() bool { return refused.Load() > 0 })
		for i := range 20 {
			begun := time.Now()
			status, _ := s.ask("127.0.0.1", "GET", fmt.Sprintf("/orders/%d", i+1))
			if took := time.Since(begun); status != 200 || took > 5*time.Second {
				t.Errorf("a lookup got %d after %v", status, took)
			}
		}
		all.Wait()
	})
}

// TestSlowReader takes an answer so slowly that it would last for an hour. It holds the
// backend until the route's timeout.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	onBoth(t, change{backend: true, envoy: replaced(t, "timeout: 15s }", "timeout: 2s }", "stream_idle_timeout: 60s", "stream_idle_timeout: 4s")}, func(t *testing.T, s *site) {
		conn, err := s.dial(t.Context(), "127.0.1.1")
		bedtest.Check(t, err)
		defer conn.Close()
		bedtest.Check(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		_, err = conn.Write([]byte("GET /elsewhere?large HTTP/1.1\r\nHost: shop\r\n\r\n"))
		bedtest.Check(t, err)
		busy := func() int64 {
			stats, err := s.envoy.Stats(t.Context(), "cluster.backend-reads.upstream_rq_active")
			bedtest.Check(t, err)
			return stats["cluster.backend-reads.upstream_rq_active"]
		}
		bedtest.Eventually(t, "the backend sends", func() bool { return busy() == 1 })
		bedtest.Eventually(t, "the backend is free", func() bool {
			_, _ = conn.Read(make([]byte, 10))
			return busy() == 0
		})
	})
}

// TestAbsentOrdersLeaveNothing settles orders that do not exist: Redis has nothing of it.
func TestAbsentOrdersLeaveNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, change{gate: longWindow(t)}, func(t *testing.T, s *site) {
		for i := range 20 {
			if status, h := s.ask("127.0.0.1", "POST", fmt.Sprintf("/orders/%d/settle", 1e9+i)); status != 404 || h.Get("x-ordergate-verdict") != "absent" {
				t.Errorf("an order that does not exist is settled with %d", status)
			}
		}
		keys, err := s.redis.Keys(t.Context(), "*order:lock:10000000*").Result()
		bedtest.Check(t, err)
		if len(keys) > 0 {
			t.Errorf("Redis has %q", keys)
		}
	})
}
