package admin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/ordergate/ordergate/config"
)

// TestPrivate is who may have a report.
func TestPrivate(t *testing.T) {
	t.Parallel()
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9194} }
	for _, tt := range []struct {
		name         string
		local        net.Addr
		token, shown string
		want         int
	}{
		{"loopback", tcp("127.0.0.1"), "", "", 200},
		{"loopback of version 6", tcp("::1"), "", "", 200},
		{"a unix socket", &net.UnixAddr{Name: "/run/admin.sock", Net: "unix"}, "", "", 200},
		{"exposed", tcp("10.0.0.5"), "", "", 403},
		{"exposed with a token", tcp("10.0.0.5"), "the token", "the token", 200},
		{"loopback without the token", tcp("127.0.0.1"), "the token", "", 401},
		{"another token", tcp("127.0.0.1"), "the token", "the toke", 401},
	} {
		s := &Server{Config: &config.Config{Listen: config.Listen{Token: config.Secret(tt.token)}}}
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, tt.local), "GET", "/v1/bundle", nil)
		if tt.shown != "" {
			r.Header.Set("Authorization", "Bearer "+tt.shown)
		}
		w := httptest.NewRecorder()
		s.private(func(http.ResponseWriter, *http.Request) {})(w, r)
		if w.Code != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, w.Code, tt.want)
		}
	}
}
