package lockmw

import (
	"testing"

	procmode "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

func lookup() *extproc.ProcessingRequest {
	return requestHeaders(":method", "GET", ":path", "/orders/42", ":authority", "shop", gate.HeaderVerdict, "maybe")
}

func TestLookup(t *testing.T) {
	for _, tc := range []struct{ name, status, details, did string }{
		{"missing", "404", "via_upstream", "not found 42"},
		{"there", "200", "via_upstream", ""},
		{"Envoy's answer", "404", "route_not_found", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBed(t)
			s := b.open()
			r := s.say(lookup())
			mode := r.GetModeOverride()
			if mode.GetResponseHeaderMode() != procmode.ProcessingMode_SEND || mode.GetResponseTrailerMode() != procmode.ProcessingMode_SKIP ||
				mode.GetResponseBodyMode() != procmode.ProcessingMode_NONE {
				t.Errorf("mode %v, want the response's headers and no more", mode)
			}
			for _, name := range r.GetRequestHeaders().GetResponse().GetHeaderMutation().GetRemoveHeaders() {
				if name == gate.HeaderVerdict {
					t.Error("the verdict of ext_authz does not reach the backend")
				}
			}
			if typeOf(s.say(answered(tc.status, tc.details)).GetResponse()) != "response headers" {
				t.Error("the answer waits for a reply")
			}
			s.wantEnd()
			if did := b.did.Short(); did != tc.did {
				t.Errorf("did %q, want %q", did, tc.did)
			}
		})
	}
}

// TestLookupLeaves is an Envoy that shows no answers, and a client that leaves.
func TestLookupLeaves(t *testing.T) {
	b := newBed(t)
	s := b.open()
	s.say(lookup())
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	s.wantEnd()
	if did := b.did.Short(); did != "" {
		t.Errorf("did %q", did)
	}
}

// TestOnlyAnswers is a filter that shows nothing but answers, as examples/envoy has
// it.
func TestOnlyAnswers(t *testing.T) {
	about := func(method, path string, more ...string) map[string]any {
		attrs := map[string]any{
			"request.method": method, "request.path": path, "request.host": "shop", "response.code_details": "via_upstream",
		}
		for i := 0; i+1 < len(more); i += 2 {
			attrs[more[i]] = more[i+1]
		}
		return attrs
	}
	for _, tc := range []struct {
		name   string
		status string
		attrs  map[string]any
		did    string
	}{
		{"missing", "404", about("GET", "/orders/42?x=1"), "not found 42"},
		{"gone", "410", about("GET", "/orders/42"), "not found 42"},
		{"there", "200", about("GET", "/orders/42"), ""},
		{"another method", "404", about("DELETE", "/orders/42"), ""},
		{"by a header", "404", about("GET", "/order", "request.headers['x-order-id']", "7"), "not found 7"},
		{"by a header, quoted otherwise", "404", about("GET", "/order", `request.headers["x-order-id"]`, "7"), "not found 7"},
		{"no such header", "404", about("GET", "/order"), ""},
		{"odd attributes", "404", about("GET", "/order", "request.headers[", "7", "request.headers[']", "7", "request.headers['']", "7"), ""},
		{"without the request", "404", map[string]any{"response.code_details": "via_upstream"}, ""},
		{"an upgrade that failed", "403", map[string]any{"response.code_details": "upgrade_failed"}, ""},
		{"numbers for text", "404", map[string]any{"request.method": 1, "request.path": 2}, ""},
	} {
		for _, waits := range []bool{true, false} {
			t.Run(tc.name, func(t *testing.T) {
				b := newBed(t)
				s := b.open()
				msg := answeredWith(tc.status, tc.attrs)
				msg.ObservabilityMode = !waits
				if waits {
					if got := typeOf(s.say(msg).GetResponse()); got != "response headers" {
						t.Errorf("answered with %s", got)
					}
				} else if err := s.Send(msg); err != nil {
					t.Fatal(err)
				}
				s.wantEnd()
				if did := b.did.Short(); did != tc.did {
					t.Errorf("did %q, want %q", did, tc.did)
				}
			})
		}
	}
}
