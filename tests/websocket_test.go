package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestWebsocket upgrades a connection through a route with the settings of docs/envoy.md.
func TestWebsocket(t *testing.T) {
	t.Parallel()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/chat" || r.Header.Get("Upgrade") != "websocket" {
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(conn, rw)
	}))
	defer backend.Close()
	s := newStack(t, settings{backend: strings.TrimPrefix(backend.URL, "http://"), orders: 10, envoy: edit(t, "              - name: reads\n", `              - name: websockets
                match: { path: /chat }
                route: { cluster: backend-reads, timeout: 0s, upgrade_configs: [{ upgrade_type: websocket }] }
                typed_per_filter_config:
                  envoy.filters.http.buffer:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute
                    disabled: true
              - name: reads
`)})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprintf(conn, "GET /chat HTTP/1.1\r\nHost: shop\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	must(t, err)
	r := bufio.NewReader(conn)
	a, err := http.ReadResponse(r, nil)
	must(t, err)
	defer a.Body.Close()
	if a.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", a.StatusCode)
	}
	for _, word := range []string{"hello", "again"} {
		_, err := fmt.Fprintln(conn, word)
		must(t, err)
		if echo, err := r.ReadString('\n'); echo != word+"\n" {
			t.Errorf("echo %q, %v", echo, err)
		}
	}
}
