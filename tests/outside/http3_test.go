package outside

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// exampleHTTP3 adds the listener of examples/envoy/http3.yaml to an example: with the filters of the
// one that is there, as it says.
func exampleHTTP3(t testing.TB, root string, certificates *testbed.Certificates) func(string) string {
	t.Helper()
	shown, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "http3.yaml"))
	bedtest.Check(t, err)
	own := replaced(t,
		"port_value: 10000", "port_value: 0",
		"/etc/envoy/certificate.pem", certificates.ServerCert,
		"/etc/envoy/key.pem", certificates.ServerKey,
	)(string(shown))
	return func(example string) string {
		before, rest, found := strings.Cut(example, "    filter_chains:\n    - filters:\n")
		filters, after, ended := strings.Cut(rest, "\n  clusters:\n")
		if !found || !ended {
			t.Fatal("the example has no listener, followed by its clusters")
		}
		chain := replaced(t, "stat_prefix: orders\n", "stat_prefix: orders-http3\n          codec_type: HTTP3\n")(filters)
		listener := "  " + strings.ReplaceAll(own, "\n", "\n  ")
		listener = replaced(t, "filters: []   # those of the listener `orders`", "filters:\n"+chain)(listener)
		return before + "    filter_chains:\n    - filters:\n" + filters + "\n\n" + listener + "\n  clusters:\n" + after
	}
}

// http3Site is a site with that listener.
type http3Site struct {
	*site
	addr string
	tls  *tls.Config
}

// onBothHTTP3 runs a test with ordergate beside Envoy and inside, each with a backend of its
// own. A request has 2 s.
func onBothHTTP3(t *testing.T, test func(*testing.T, *http3Site)) {
	t.Helper()
	certificates, err := testbed.NewCertificates(filepath.Join(t.TempDir(), "certificates"))
	bedtest.Check(t, err)
	authority, err := os.ReadFile(certificates.CA)
	bedtest.Check(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	shortened := replaced(t, "request_timeout: 20s", "request_timeout: 2s")
	addListener := exampleHTTP3(t, bedtest.New(t).Root(), certificates)
	for _, attachment := range []string{"sidecar", "module"} {
		t.Run(attachment, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, attachment, change{
				backend: true, gate: longWindow(t),
				envoy: func(text string) string { return addListener(shortened(text)) },
			})
			test(t, &http3Site{s, s.ListenerAddr(s.envoy, "orders-http3"), &tls.Config{
				RootCAs: roots, ServerName: "localhost", NextProtos: []string{"h3"}, ClientSessionCache: tls.NewLRUClientSessionCache(0),
			}})
		})
	}
}

// http3 connects, and waits for the handshake unless it is to send early data.
func (s *http3Site) http3(t *testing.T, early bool) *rawHTTP3 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	dial := quic.DialAddr
	if early {
		dial = quic.DialAddrEarly
	}
	conn, err := dial(ctx, s.addr, s.tls, nil)
	bedtest.Check(t, err)
	t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	c := &rawHTTP3{conn}
	bedtest.Check(t, c.begin())
	return c
}

// requestOf returns the fields of a request.
func requestOf(method, path string, more ...string) []string {
	return append([]string{":method", method, ":scheme", "https", ":authority", "shop", ":path", path}, more...)
}

// status sends a complete request, and returns the status of its answer; 0: there is none.
func (s *http3Site) status(t *testing.T, fields ...string) int {
	t.Helper()
	c := s.http3(t, false)
	stream, err := c.open(fields...)
	bedtest.Check(t, err)
	_ = stream.Close()
	status, _ := c.status(stream)
	return status
}

// last returns the headers of the request that came last.
func (b *backend) last() http.Header {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.seen[len(b.seen)-1].Header
}

// TestHTTP3 has what HTTP/1.1 and HTTP/2 are tested for hold over HTTP/3 as well.
func TestHTTP3(t *testing.T) {
	t.Parallel()
	onBothHTTP3(t, func(t *testing.T, s *http3Site) {
		t.Run("verdicts", func(t *testing.T) {
			for _, tt := range []struct {
				fields []string
				status int
			}{
				{requestOf("GET", "/orders/5"), 200},
				{requestOf("GET", "/orders/987654321098"), 404},
				{requestOf("HEAD", "/orders/987654321098"), 404},
				{requestOf("GET", "//orders/987654321098"), 404},
				{requestOf("POST", "/orders/987654321098/settle"), 404},
				{requestOf("POST", "/orders/5/settle"), 200},
				{requestOf("GET", "/Orders/987654321098"), 400},
				{requestOf("get", "/orders/987654321098"), 400},
				{requestOf("POST", "/orders/%2535/settle"), 400},
				// Envoy resets these.
				{requestOf("GET", "/orders%2f5"), 400},
				{requestOf("GET", "http://shop/orders/987654321098"), 0},
				{requestOf("GET", "/orders/987654321098", "host", "other"), 0},
				{requestOf("GET", "/orders/5", "x_ordergate_fence", "9"), 0},
				{requestOf("GET", "/orders/5", "X-Ordergate-Fence", "9"), 0},
				{requestOf("POST", "/orders/5/settle", "content-length", "9"), 0},
				{requestOf("POST", "/orders/5/settle", "transfer-encoding", "chunked"), 0},
			} {
				if status := s.status(t, tt.fields...); status != tt.status {
					t.Errorf("%q: %d, want %d", tt.fields, status, tt.status)
				}
			}
			if n := s.backend.arrived("/orders/987654321098"); n != 0 {
				t.Errorf("%d lookups of an absent order reached the backend", n)
			}
		})

		t.Run("forged", func(t *testing.T) {
			for _, name := range []string{"x-ordergate-fence", "x.ordergate.fence", "x-ordergate-lease", "x-ordergate-settled-at", "x~ordergate~key"} {
				if status := s.status(t, requestOf("GET", "/elsewhere", name, "9")...); status != 200 {
					t.Errorf("%s: %d", name, status)
				}
				for arrived := range s.backend.last() {
					if strings.Contains(strings.ToLower(arrived), "ordergate") {
						t.Errorf("%s reached the backend as %s", name, arrived)
					}
				}
			}
		})

		t.Run("in pieces", func(t *testing.T) {
			c := s.http3(t, false)
			stream, err := c.open(requestOf("POST", "/orders/7/settle")...)
			bedtest.Check(t, err)
			answered := make(chan int, 1)
			go func() {
				status, _ := c.status(stream)
				answered <- status
			}()
			for status := -1; status < 0; {
				if keys := s.locks(); len(keys) > 0 {
					t.Fatalf("locked before it was complete: %q", keys)
				}
				select {
				case status = <-answered:
					if status != 408 {
						t.Errorf("it ended with %d", status)
					}
				case <-time.After(100 * time.Millisecond): // a byte now and then
					_, _ = stream.Write(frame(frameData, []byte("x")))
				}
			}
		})

		t.Run("reset before it is complete", func(t *testing.T) {
			stream, err := s.http3(t, false).open(requestOf("POST", "/orders/8/settle")...)
			bedtest.Check(t, err)
			_, err = stream.Write(frame(frameData, []byte("x")))
			bedtest.Check(t, err)
			stream.CancelWrite(0x10c) // H3_REQUEST_CANCELLED
			stream.CancelRead(0x10c)
			if status := s.status(t, requestOf("POST", "/orders/8/settle")...); status != 200 {
				t.Errorf("the next settlement got %d", status)
			}
			if n := s.backend.arrived("/orders/8/settle"); n != 1 {
				t.Errorf("%d settlements reached the backend", n)
			}
		})

		for i, leave := range map[int]func(*rawHTTP3, *quic.Stream){
			20: func(_ *rawHTTP3, stream *quic.Stream) { stream.CancelRead(0x10c) }, // STOP_SENDING
			21: func(c *rawHTTP3, _ *quic.Stream) { _ = c.CloseWithError(0x100, "") },
		} {
			t.Run(fmt.Sprint("left ", i), func(t *testing.T) {
				path := fmt.Sprintf("/orders/%d/settle", i)
				c := s.http3(t, false)
				stream, err := c.open(requestOf("POST", path+"?hang")...)
				bedtest.Check(t, err)
				_ = stream.Close()
				bedtest.Eventually(t, "it is at the backend", func() bool { return s.backend.arrived(path) == 1 })
				leave(c, stream)
				bedtest.Eventually(t, "its lock is held", func() bool {
					ttl, err := s.redis.PTTL(t.Context(), fmt.Sprintf("order:lock:%d", i)).Result()
					return err == nil && ttl > 31*time.Second // longer than the lease of a call that runs
				})
				if status := s.status(t, requestOf("POST", path)...); status != 409 {
					t.Errorf("the next settlement got %d, want 409", status)
				}
				if n := s.backend.arrived(path); n != 1 {
					t.Errorf("%d settlements reached the backend", n)
				}
				bedtest.Check(t, s.redis.Del(t.Context(), fmt.Sprintf("order:lock:%d", i)).Err())
			})
		}

		t.Run("early data", func(t *testing.T) {
			_ = s.status(t, requestOf("GET", "/elsewhere")...) // the session has a ticket now
			c := s.http3(t, true)
			stream, err := c.open(requestOf("POST", "/orders/30/settle")...)
			bedtest.Check(t, err)
			_ = stream.Close()
			if status, err := c.status(stream); status != 200 {
				t.Errorf("the settlement got %d, %v", status, err)
			}
			if state := c.ConnectionState(); state.Used0RTT || !state.TLS.DidResume {
				t.Errorf("early data %v, want none; the session resumed %v", state.Used0RTT, state.TLS.DidResume)
			}
			if early := s.backend.last()["Early-Data"]; early != nil {
				t.Errorf("the backend got Early-Data: %q", early)
			}
		})
	})
}
