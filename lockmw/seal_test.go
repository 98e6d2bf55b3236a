package lockmw

import (
	"context"
	"slices"
	"testing"

	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/metadata"

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

// TestAuthzOff has streams say that ext_authz is off: what comes sealed is a client's, and the first reply
// alone shows Envoy's guard that ext_proc has the request.
func TestAuthzOff(t *testing.T) {
	b := newBed(t)
	seal := gate.NewSeal()
	b.server.opts.Seal, b.server.opts.RenewSeal = seal, func(context.Context) { t.Error("the key is renewed for a client's path") }
	g := b.server.current.Load().gate
	open := func(value, method, path string, header ...string) (stream, *extproc.ProcessingResponse) {
		ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(t.Context(), gate.AuthzOff[0], value))
		t.Cleanup(cancel)
		client, err := b.client.Process(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s := stream{client, t, cancel}
		return s, s.say(whole(requestHeaders(append(header, ":method", method, ":path", path, ":authority", "shop")...)))
	}
	removes := func(r *extproc.ProcessingResponse, name string) bool {
		return slices.Contains(r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders(), name)
	}
	shown := func(r *extproc.ProcessingResponse) bool {
		return r.GetDynamicMetadata().GetFields()[gate.GuardNamespace].GetStructValue().GetFields()[gate.GuardField].GetBoolValue()
	}
	for _, path := range []string{seal.Hide("POST", "/orders/42/settle"), seal.Hide("POST", "/none"), "/.ordergate/not-bracketed?seal=x"} {
		if _, r := open("off", "POST", path); r.GetImmediateResponse().GetStatus().GetCode() != 503 {
			t.Errorf("%s: %v", path, r)
		}
	}
	for _, path := range []string{"/orders/42/settle", "/orders", "/orders.php", "/none"} {
		for range 2 {
			b.lock.Grants <- nil
		}
		s, r := open("off", "POST", path)
		if r.GetRequestHeaders() == nil || !shown(r) {
			t.Errorf("%s: %v", path, r)
		}
		if path == "/none" {
			_, forged := open("off", "POST", path, "x.ordergate.key", "a client's")
			if !removes(r, "x-original-url") || !removes(forged, "x-original-url") || !removes(forged, "x.ordergate.key") {
				t.Errorf("a backend may obey a client's header: %v, %v", r, forged)
			}
		}
		if path == "/orders/42/settle" {
			if fields := r.GetDynamicMetadata().GetFields()[gate.MetadataNamespace].GetStructValue().GetFields(); fields["verdict"].GetStringValue() != "acquired" {
				t.Errorf("%s: %v", path, r)
			}
			if r := s.say(answered("200", "via_upstream")); shown(r) {
				t.Errorf("%s: shown twice", path)
			}
		}
		if _, r := open("on", "POST", path); r.GetRequestHeaders() == nil || shown(r) {
			t.Errorf("%s, with ext_authz: %v", path, r)
		}
	}
	if _, r := open("off", "POST", "/orders/042/settle"); r.GetImmediateResponse().GetStatus().GetCode() != 400 {
		t.Errorf("a malformed order: %v", r)
	}
	if !g.NonePasses() {
		t.Error("a request passes ext_authz")
	}
}
