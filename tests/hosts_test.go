package tests

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// shopOnly is a backend that settles for the host "shop" alone. It says with which fence.
const shopOnly = `
error_log stderr;
events {}
http {
    access_log /dev/stdout;
    server {
        listen 127.0.0.1:0;
        if ($host != shop) { return 404; }
        location / { return 200 "fence=$http_x_ordergate_fence"; }
    }
}
`

// TestHostsOfRules settles at a host that rules are for, in whatever spelling. nginx, which
// is the backend, takes some for that host: none of these is settled without a lock.
func TestHostsOfRules(t *testing.T) {
	t.Parallel()
	nginx, err := bedtest.New(t).Bed.Nginx(t.Context(), shopOnly)
	bedtest.Check(t, err)
	s := newStack(t, settings{backend: nginx.Addr(), orders: 10, gate: func(yaml string) string {
		return substitute(t, yaml, "match: {", "match: {host: shop, ")
	}})
	addr := strings.TrimPrefix(s.url, "http://")
	const locked, unlocked = "fence=1", "fence="
	for _, tt := range []struct {
		target, host string
		extra        string
		locked       bool // it has to be settled, with its lock
	}{
		{"", "shop", "", true},
		{"", "SHOP", "", true},
		{"", "shop.", "", true},
		{"", "shop:8080", "", true},
		{"", "Shop.:8080", "", true},
		{"", "shop:", "", true},
		{"http://shop", "other", "", true},
		{"http://SHOP:80", "other", "", true},
		{"", "shop", "X-Forwarded-Host: shop:443\r\n", true},
		{"", "shop:80:90", "", false},
		{"", "shop::", "", false},
		{"", "shop:80:", "", false},
		{"", "shop:80]", "", false},
		{"", "shop:]", "", false},
		{"", "shop..", "", false},
		{"", "shop:80@other", "", false},
		{"", "other@shop", "", false},
		{"", "other:80@shop", "", false},
		{"", "sh%6fp", "", false},
		{"", "shop,other", "", false},
		{"", "other\r\nHost: shop", "", false},
		{"", "shop\r\nHost: other", "", false},
		{"", "[shop]", "", false},
		{"http://shop:80:90", "other", "", false},
		{"http://other@shop", "other", "", false},
		{"http://other", "shop", "", false},
		{"", "other", "", false},
	} {
		answer := sendRaw(t, addr, "POST "+tt.target+"/orders/5/settle HTTP/1.1\r\nHost: "+tt.host+"\r\n"+tt.extra+
			"Content-Length: 0\r\nConnection: close\r\n\r\n")
		if strings.HasSuffix(answer, unlocked) {
			t.Errorf("%q, %q: settled without its lock", tt.target, tt.host)
		} else if tt.locked && !strings.Contains(answer, locked) {
			t.Errorf("%q, %q: not settled: %.100q", tt.target, tt.host, answer)
		}
	}
}

// sendRaw sends bytes as they are, and returns all that comes until the connection ends.
func sendRaw(t testing.TB, addr, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = io.WriteString(conn, request)
	must(t, err)
	answer, _ := io.ReadAll(conn) // Envoy resets some
	return string(answer)
}
