package command

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// mutable passes connections on to an address, until they are muted: then they stay open,
// and nothing arrives.
func mutable(t *testing.T, upstream string) (addr string, muted *atomic.Bool) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	muted = new(atomic.Bool)
	var wg sync.WaitGroup
	pass := func(from, to net.Conn) {
		defer to.Close()
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if muted.Load() {
				continue
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", upstream)
			if err != nil {
				_ = from.Close()
				return
			}
			stop := context.AfterFunc(t.Context(), func() { _, _ = from.Close(), to.Close() })
			wg.Go(func() { defer stop(); pass(from, to) })
			wg.Go(func() { pass(to, from) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return listener.Addr().String(), muted
}

// TestSilentProxy has the connection of an Envoy fall silent while a settlement runs, as
// that of one whose machine died. Its lock is held, and not renewed for ever. An Envoy that
// asks ordergate for signs of life all the time is not cut off.
func TestSilentProxy(t *testing.T) {
	t.Parallel()
	bed := bedtest.New(t)
	server := bed.Redis()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	release := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("hang") {
			<-release
		}
	}))
	defer backend.Close()
	defer close(release)

	ids := filepath.Join(t.TempDir(), "orders.csv")
	bedtest.Check(t, os.WriteFile(ids, []byte("1\n"), 0o600))
	text := bed.GateExample(server.Addr(), ids)
	text = strings.NewReplacer("lease: 90s", "lease: 10s", "hold: 60s", "hold: 100s").Replace(text)
	file := writeConfig(t, text)
	load := func() (*config.Effective, error) { return config.LoadEffective(file, config.Options{}) }
	e, err := load()
	bedtest.Check(t, err)
	var out bedtest.Log
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		opts := serveOptions{file: file, load: load, keepalive: time.Second}
		served <- serve(ctx, e, opts, slog.New(slog.NewTextHandler(&out, nil)), func(string) string { return "" })
	}()
	defer func() {
		stop()
		bedtest.Check(t, <-served)
	}()
	addr := func(name string) (addr string) {
		re := regexp.MustCompile(`name=` + name + ` addr=(\S+)`)
		bedtest.Eventually(t, name+" is served", func() bool {
			m := re.FindStringSubmatch(out.String())
			if m != nil {
				addr = m[1]
			}
			return m != nil
		})
		return addr
	}
	through, muted := mutable(t, addr("proc"))
	envoyConfig, err := bed.EnvoyExample(addr("authz"), through, strings.TrimPrefix(backend.URL, "http://"))
	bedtest.Check(t, err)
	const options = "explicit_http_config: { http2_protocol_options: {} }"
	if !strings.Contains(envoyConfig, options) {
		t.Fatalf("the example has no %q", options)
	}
	envoyConfig = bedtest.Replace(envoyConfig, options, "explicit_http_config: { http2_protocol_options: { connection_keepalive: { interval: 0.2s, timeout: 60s } } }")
	url := "http://" + bed.ListenerAddr(bed.Envoy(envoyConfig), "orders")

	var calls sync.WaitGroup
	defer calls.Wait()
	callCtx, leave := context.WithCancel(t.Context())
	defer leave()
	settle := func(path string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(callCtx, http.MethodPost, url+path, http.NoBody)
		bedtest.Check(t, err)
		req.Close = true
		return http.DefaultClient.Do(req)
	}
	key := func() time.Duration { return client.PTTL(t.Context(), "order:lock:1").Val() }
	calls.Go(func() {
		if resp, err := settle("/orders/1/settle?hang"); err == nil {
			_ = resp.Body.Close()
		}
	})
	bedtest.Eventually(t, "it is locked", func() bool { return key() > 0 })
	// For longer than gRPC bears too many questions: the lease is renewed, not held.
	renewed := time.Now().Add(2 * time.Second)
	bedtest.Eventually(t, "it is renewed", func() bool {
		if left := key(); left > 10*time.Second {
			t.Fatalf("the lock is held for %v: the connection was closed", left)
		}
		return time.Now().After(renewed)
	})
	muted.Store(true)
	bedtest.Eventually(t, "it is held", func() bool { return key() > 10*time.Second })
}
