package tests

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

const adminToken = "a token of many bytes"

// withToken has the admin address want a token.
func withToken(t testing.TB) func(yaml string) string {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(adminToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(yaml string) string {
		yaml = bedtest.Replace(yaml, "\nlisten:\n", "\nlisten:\n  token_file: "+file+"\n  admin_hosts: [gate.internal]\n")
		return bedtest.Replace(yaml, "    sources: [seed]\n", "    sources: [seed]\n    expand: {}\n")
	}
}

// admin asks the admin address.
func (s *stack) admin(method, path, body string, header ...string) (status int, text string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.GateAddr(s.gate, "admin")+path, strings.NewReader(body))
	must(s.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	must(s.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	must(s.t, err)
	return resp.StatusCode, string(answer)
}

// TestAdminToken tries each change, at each path, without the token.
func TestAdminToken(t *testing.T) {
	t.Parallel()
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10, gate: withToken(t)})
	good := []string{"Authorization", "Bearer " + adminToken}
	const ids = `{"ids":["11"]}`
	for _, path := range []string{
		"/filters/orders/ids", "/filters/orders/load", "/filters/orders/expand", "/filters/orders/trust", "/filters/orders/snapshot",
		"/v1/filters/orders/ids", "/filters/none/load", "/elsewhere",
	} {
		for _, header := range [][]string{
			nil,
			{"Sec-Fetch-Site", "same-origin"},
			{"Sec-Fetch-Site", "none", "Origin", "http://localhost"},
			{"Authorization", "Bearer " + adminToken + "x"},
			{"Authorization", "Bearer"},
			{"Authorization", adminToken},
			{"Authorization", "Basic " + adminToken},
		} {
			for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "post"} {
				if status, text := s.admin(method, path, ids, header...); status != 401 {
					t.Errorf("%s %s with %q: %d %s", method, path, header, status, text)
				}
			}
		}
	}
	s.must("GET", "/orders/11", "").want(t, 404, "absent")
	if status, text := s.admin("POST", "/filters/orders/ids", ids, append(good, "Sec-Fetch-Site", "cross-site")...); status != 403 {
		t.Errorf("from another site: %d %s", status, text)
	}
	for _, path := range []string{"/filters/orders/ids", "/filters/orders/load", "/filters/orders/expand", "/v1/filters/orders/ids"} {
		if status, text := s.admin("POST", path, ids, good...); status != 200 {
			t.Errorf("POST %s with the token: %d %s", path, status, text)
		}
	}
	s.must("GET", "/orders/11", "").want(t, 200, "")
	for _, path := range []string{"/metrics", "/healthz", "/readyz", "/filters/orders", "/filters/orders/contains?id=1"} {
		if status, text := s.admin("GET", path, ""); status != 200 {
			t.Errorf("GET %s without a token: %d %s", path, status, text)
		}
	}
}

// TestAdminHosts asks under names that a web page may have made its own.
func TestAdminHosts(t *testing.T) {
	t.Parallel()
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10, gate: withToken(t)})
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:9194": 200, "[::1]:9194": 200, "[::1]": 200, "192.0.2.1": 200, "localhost": 200, "LocalHost:1": 200, "localhost.": 200,
		"gate.internal": 200, "Gate.Internal:80": 200,
		"evil.example": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:9194": 421, "gate.internal.evil.example": 421, "ordergate": 421, "0x7f000001": 421,
	} {
		for _, path := range []string{"/metrics", "/readyz", "/filters/orders", "/filters/orders/contains?id=1"} {
			if status, text := s.admin("GET", path, "", "Host", host); status != want {
				t.Errorf("GET %s of %s: %d %.100s, want %d", path, host, status, text, want)
			}
		}
		if status, text := s.admin("POST", "/filters/orders/ids", `{"ids":["11"]}`, "Host", host, "Authorization", "Bearer "+adminToken); status != want {
			t.Errorf("POST of %s: %d %.100s, want %d", host, status, text, want)
		}
	}
}

// TestAdminCommands changes a filter by the command, which has the token from the file.
func TestAdminCommands(t *testing.T) {
	t.Parallel()
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10, gate: withToken(t)})
	binary, file := s.Build("./cmd/sidecar", false), commandFile(t, s)
	for _, command := range []string{"filter add orders 11", "filter expand orders", "load --filter orders", "filter info orders"} {
		out, err := exec.CommandContext(t.Context(), binary, append(strings.Fields(command), "--config", file)...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	s.must("GET", "/orders/11", "").want(t, 200, "")
}

// TestAdminSlow has clients that never end: of headers, of a body, and of a body that is too
// large. None is held for long, and none counts as an operator's request.
func TestAdminSlow(t *testing.T) {
	t.Parallel()
	s := newStack(t, settings{backend: newBackend(t).addr(), orders: 10, gate: withToken(t)})
	head := "POST /filters/orders/ids HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + adminToken + "\r\n"
	for _, tc := range []struct {
		name, sent, want string
	}{
		{"headers that do not end", "GET /metrics HTTP/1.1\r\nHost: loc", ""},
		{"large headers", "GET /metrics HTTP/1.1\r\nHost: localhost\r\nx: " + strings.Repeat("a", 1<<17) + "\r\n\r\n", "431"},
		{"a body that does not come", head + "Content-Length: 10\r\n\r\n{", "400"},
		{"a body of a request without the token", "POST /filters/orders/ids HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n{", "401"},
		{"a large body", head + fmt.Sprintf("Content-Length: %d\r\n\r\n", 3<<20) + strings.Repeat(" ", 3<<20), "413"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", s.GateAddr(s.gate, "admin"))
			must(t, err)
			defer conn.Close()
			must(t, conn.SetDeadline(time.Now().Add(2*time.Minute)))
			go func() { _, _ = io.WriteString(conn, tc.sent) }()
			answer, err := io.ReadAll(bufio.NewReader(conn))
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the connection was kept")
			}
			if _, rest, _ := strings.Cut(string(answer), " "); !strings.HasPrefix(rest, tc.want) {
				t.Errorf("answered %.200q, want %s", answer, tc.want)
			}
		})
	}
	s.must("GET", "/orders/11", "").want(t, 404, "absent")
}
