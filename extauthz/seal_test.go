package extauthz

import (
	"strings"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// TestSeal hides the paths of settlements, also beside forged headers, and no others.
func TestSeal(t *testing.T) {
	s, seal := newServer(t), gate.NewSeal()
	s.Attach(seal)
	client := authv3.NewAuthorizationClient(dial(t, s))
	for _, tt := range []struct {
		path, verdict string
		headers       map[string]string
		sealed        bool
	}{
		{"/both/42?a=1", "maybe", nil, true},
		{"/both/42", "maybe", map[string]string{"x-ordergate-new": "1"}, true},
		{"/orders/42", "maybe", nil, false},
		{"/other", "", nil, false},
		{seal.Hide("GET", "/both/42"), "", nil, true}, // a client has it from an error page or a log
	} {
		r, err := client.Check(t.Context(), checkRequest(tt.path, tt.headers))
		if err != nil {
			t.Fatal(err)
		}
		verdict, path := "", ""
		for _, h := range r.GetOkResponse().GetHeaders() {
			switch h.GetHeader().GetKey() {
			case gate.HeaderVerdict:
				verdict = h.GetHeader().GetValue()
			case ":path":
				path = h.GetHeader().GetValue()
			default:
				t.Errorf("%s: the header %s", tt.path, h.GetHeader().GetKey())
			}
		}
		if verdict != tt.verdict || (path != "") != tt.sealed || len(r.GetOkResponse().GetHeadersToRemove()) == 0 {
			t.Errorf("%s: verdict %q, path %q, %v", tt.path, verdict, path, r)
		}
		if target, ok := seal.Reveal("GET", path); tt.sealed && (target != tt.path || !ok) {
			t.Errorf("%s is hidden as %s, revealed as %q", tt.path, path, target)
		}
	}
}

// TestSealTooLarge has a path that Envoy would not carry when it is sealed.
func TestSealTooLarge(t *testing.T) {
	s := newServer(t)
	s.Attach(gate.NewSeal())
	client := authv3.NewAuthorizationClient(dial(t, s))
	for path, want := range map[string]int32{
		"/both/42?a=" + strings.Repeat("*", 30<<10): 431, "/both/42?a=" + strings.Repeat("a", 30<<10): 0, "/other?a=" + strings.Repeat("*", 30<<10): 0,
	} {
		r, err := client.Check(t.Context(), checkRequest(path, nil))
		if got := int32(r.GetDeniedResponse().GetStatus().GetCode()); err != nil || got != want {
			t.Errorf("%.20s: %d, want %d: %v", path, got, want, err)
		}
	}
}
