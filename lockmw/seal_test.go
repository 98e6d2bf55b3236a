package lockmw

import (
	"context"
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// TestSeal restores the paths that ext_authz has hidden, of every kind of request.
func TestSeal(t *testing.T) {
	b := newBed(t)
	seal, renewed := gate.NewSeal(), 0
	b.server.opts.Seal, b.server.opts.RenewSeal = seal, func(context.Context) { renewed++ }
	open := func(method, path string) *extproc.ProcessingResponse {
		s := b.open()
		return s.say(whole(requestHeaders(":method", method, ":path", path, ":authority", "shop")))
	}
	for _, tt := range []struct{ method, target string }{
		{"POST", "/orders/42/settle?a=%2F"},
		{"POST", "/orders"},
		{"POST", "/orders.php"},
		{"GET", "/orders/42"},
		{"GET", "/none"},
	} {
		b.lock.Grants <- nil
		r, restored := open(tt.method, seal.Hide(tt.method, tt.target)), ""
		for _, h := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
			if h.GetHeader().GetKey() == ":path" {
				restored += string(h.GetHeader().GetRawValue())
			}
		}
		if restored != tt.target {
			t.Errorf("%s %s: restored %q", tt.method, tt.target, restored)
		}
	}
	for _, path := range []string{
		seal.Hide("POST", "/orders/42"), gate.NewSeal().Hide("GET", "/orders/42"), seal.Hide("GET", seal.Hide("GET", "/orders/42")), seal.Hide("GET", "/orders/42") + "A",
	} {
		if r := open("GET", path); r.GetImmediateResponse().GetStatus().GetCode() != 503 {
			t.Errorf("%s: %v", path, r)
		}
	}
	if renewed != 3 {
		t.Errorf("the key was renewed %d times, want 3", renewed)
	}
}
