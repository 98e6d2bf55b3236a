package extauthz

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/ordergate/ordergate/internal/gate"
)

// reportIn returns the report in an answer, nil if there is none.
func reportIn(text string) *gate.Report {
	var r gate.Report
	if json.Unmarshal([]byte(text), &r) != nil || r.Nonce == "" {
		return nil
	}
	return &r
}

// TestProve answers a marked check, or sends it on with its mark in the sealed path, once.
func TestProve(t *testing.T) {
	s, seal := newServer(t), gate.NewSeal()
	s.Attach(seal)
	s.Prove(gate.NewMarks(seal, nil))
	client := authv3.NewAuthorizationClient(dial(t, s))
	text := seal.Sign(gate.NewMark(gate.StageAuthz, "both", 0))
	request := func(path, mark string) *authv3.CheckResponse {
		r, err := client.Check(t.Context(), checkRequest(path, map[string]string{gate.HeaderDoctor: mark}))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := reportIn(request("/both/42", text).GetDeniedResponse().GetBody()); r == nil || r.Rule != "both" || !r.Named || r.Sealed || r.Adapter != gate.AdapterAuthz {
		t.Errorf("report %+v", r)
	}
	if r := request("/orders/42", text).GetDeniedResponse(); r.GetStatus().GetCode() != 400 || r.GetBody() != gate.RefusedMark(gate.MarkRepeated).Body {
		t.Errorf("a lookup with a used mark: %v", r)
	}
	text = seal.Sign(gate.NewMark(gate.StageProc, "both", 0))
	path := ""
	for _, h := range request("/orders/43", text).GetOkResponse().GetHeaders() {
		if h.GetHeader().GetKey() == ":path" {
			path = h.GetHeader().GetValue()
		}
	}
	target, _ := seal.Reveal("GET", path)
	if target, mark := gate.Unmark(target); target != "/orders/43" || mark != text {
		t.Errorf("%q hides %q with the mark %q", path, target, mark)
	}
	text = seal.Sign(gate.NewMark(gate.StageAuthz, "", 0))
	if r := reportIn(request(seal.HideMarked("GET", "/both/42", text), "").GetDeniedResponse().GetBody()); r == nil || !r.Sealed || r.Target != "/both/42" {
		t.Errorf("behind ext_proc: %+v", r)
	}
}

// TestProveHTTP answers a marked sub-request of each proxy. nginx fetches the answer, once.
func TestProveHTTP(t *testing.T) {
	s, seal := newServer(t), gate.NewSeal()
	s.Prove(gate.NewMarks(seal, nil))
	server := httptest.NewServer(s.HTTPHandler())
	t.Cleanup(server.Close)
	addr, line := server.Listener.Addr().String(), func() string {
		return gate.HeaderDoctor + ": " + seal.Sign(gate.NewMark(gate.StageAuthz, "", 0))
	}
	if a, _ := ask(t, addr, traefikAsks("/orders/43", line())); a.Status != 403 || reportIn(a.Body) == nil || reportIn(a.Body).Rule != "path" {
		t.Errorf("Traefik: %+v", a)
	}
	a, _ := ask(t, addr, nginxAsks("/orders/43", line()))
	if a.Status != 403 || a.Body != "" || a.Answer == "" {
		t.Fatalf("nginx: %+v", a)
	}
	if b, _ := ask(t, addr, subrequest("GET", a.Answer)); b.Status != 200 || reportIn(b.Body) == nil {
		t.Errorf("nginx, the answer: %+v", b)
	}
	if b, _ := ask(t, addr, subrequest("GET", a.Answer)); b.Status != 500 {
		t.Errorf("nginx, the answer again: %+v", b)
	}
	refused := gate.RefusedMark(gate.MarkForged)
	a, _ = ask(t, addr, nginxAsks("/orders/42", gate.HeaderDoctor+": forged"))
	if b, _ := ask(t, addr, subrequest("GET", a.Answer)); a.Status != 403 || b.Status != 400 || b.Body != refused.Body {
		t.Errorf("nginx, a forged mark: %+v %+v", a, b)
	}
	if a, _ := ask(t, addr, traefikAsks("/orders/42", gate.HeaderDoctor+": forged")); a.Status != 403 || a.Body != refused.Body {
		t.Errorf("Traefik, a forged mark: %+v", a)
	}
}
