package tests

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// mark has ordergate make a mark, as doctor does.
func (s *stack) mark(stage, rule string) string {
	s.t.Helper()
	query := url.Values{"stage": {stage}, "rule": {rule}}
	resp, err := client.Post("http://"+s.GateAddr(s.gate, "admin")+"/v1/doctor/marks?"+query.Encode(), "", nil)
	must(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	must(s.t, err)
	var report struct{ Mark string }
	must(s.t, json.Unmarshal(text, &report))
	if report.Mark == "" {
		s.t.Fatalf("no mark: %s", text)
	}
	return report.Mark
}

// report is that in an answer; nil: there is none.
func (a answer) report() *gate.Report {
	var r gate.Report
	if json.Unmarshal([]byte(a.body), &r) != nil || r.Nonce == "" {
		return nil
	}
	return &r
}

// TestMarksAttacked has clients forge marks, and use those of others. Each such request is the
// settlement that it would be without: it has its lock at the backend, and no mark.
func TestMarksAttacked(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	const settle, body = "/orders/5/settle", `{"amount":1}`
	send := func(mark string, path string) answer {
		return s.must("POST", path, body, "x-ordergate-doctor", mark, "Content-Type", "application/json")
	}
	used := s.mark("proc", "commission-settle")
	for _, stage := range []string{"authz", "proc"} {
		mark := s.mark(stage, "commission-settle")
		if stage == "proc" {
			mark = used
		}
		if a := send(mark, settle); a.status != 200 || a.report() == nil || a.report().Rule != "commission-settle" {
			t.Errorf("%s: %d %s", stage, a.status, a.body)
		}
	}
	if n := len(b.seen()); n != 0 {
		t.Fatalf("%d marked requests have reached the backend", n)
	}
	if n := s.redis.Exists(t.Context(), "order:lock:5", "redisson_lock_token:{order:lock:5}").Val(); n != 0 {
		t.Error("a marked request has taken the lock")
	}
	forged := strings.Replace(s.mark("authz", ""), "authz", "proc", 1)
	for name, mark := range map[string]string{"used": used, "forged": forged, "nonsense": "x", "of another stage": strings.Replace(used, "proc.", "backend.", 1)} {
		a := send(mark, settle)
		requests := b.seen()
		if a.status != 200 || a.report() != nil || len(requests) == 0 {
			t.Fatalf("%s: %d %s", name, a.status, a.body)
		}
		last := requests[len(requests)-1]
		if last.URL.Path != settle || last.Header.Get("x-ordergate-fence") == "" || last.Header.Get("x-ordergate-doctor") != "" || b.body(last) != body {
			t.Errorf("%s: the backend has %s with %v and %q", name, last.URL, last.Header, b.body(last))
		}
	}
	if a := s.must("GET", "/orders/4711", "", "x-ordergate-doctor", used); a.status != 404 || a.verdict != "absent" {
		t.Errorf("a lookup with a used mark: %d %s", a.status, a.verdict)
	}
	before := len(b.seen())
	if a, err := s.send(t.Context(), "POST", settle, body, "x-ordergate-doctor", strings.Repeat("proc.", 200_000)); err == nil && a.status != 431 || len(b.seen()) > before {
		t.Errorf("a mark of 1 MB: %d", a.status) // Envoy may end the connection before it has the answer
	}
	if a := send(s.mark("backend", "commission-settle"), settle); a.report() == nil || a.report().Answer == nil || a.report().Answer.Details != "via_upstream" {
		t.Errorf("to the backend: %s", a.body)
	}
	for _, r := range b.seen()[before:] {
		if r.URL.Path != "/.ordergate/doctor" || r.Header.Get("Content-Type") != "application/vnd.ordergate.body-not-seen" {
			t.Errorf("to the backend: it has %s %v", r.URL, r.Header)
		}
	}
	bedtest.Eventually(t, "they are counted", func() bool {
		return s.metric(`ordergate_doctor_marks_total{result="repeated"}`) != "0" && s.metric(`ordergate_doctor_marks_total{result="forged"}`) != "0"
	})
}

// TestMarksOfTwoInstances has ext_authz served by one ordergate and ext_proc by another one, and takes
// the marks of both.
func TestMarksOfTwoInstances(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module is one instance")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	other := s.second(settings{backend: b.addr(), orders: 10})
	mixed := &stack{Bed: s.Bed, t: t, server: s.server, redis: s.redis, gate: s.gate}
	mixed.envoy = s.Envoy(check(t)(s.EnvoyExample(s.GateAddr(s.gate, "authz"), s.GateAddr(other.gate, "proc"), b.addr())))
	mixed.url = "http://" + s.ListenerAddr(mixed.envoy, "orders")
	taken := func(from *stack) func() bool {
		return func() bool {
			a := mixed.must("POST", "/orders/5/settle", "", "x-ordergate-doctor", from.mark("proc", "commission-settle"))
			return a.report() != nil && a.report().Sealed && a.report().Adapter == gate.AdapterProc
		}
	}
	for name, from := range map[string]*stack{"ext_authz": s, "ext_proc": other} {
		bedtest.Eventually(t, "a mark of that at "+name+" is taken", taken(from))
	}
	must(t, s.redis.Set(t.Context(), "ordergate:seal", strings.Repeat("0123456789abcdef", 2), 0).Err())
	bedtest.Eventually(t, "a mark with another key is taken", taken(s))
}

// TestSealedMark uses the path that ext_authz has made of a marked request, as an access log shows it
// of one that ext_proc does not answer.
func TestSealedMark(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module seals nothing")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: edit(t, settleRoute,
		"                typed_per_filter_config:\n"+disabled(procFilter, "ext_proc.v3.ExtProcPerRoute")+strings.TrimPrefix(settleRoute, "                typed_per_filter_config:\n"))})
	if a := s.must("POST", "/orders/5/settle", "", "x-ordergate-doctor", s.mark("proc", "commission-settle")); a.report() != nil {
		t.Fatalf("ext_proc is off, and answers: %s", a.body)
	}
	var sealed *http.Request
	for _, r := range b.seen() {
		if r.URL.Path != "/.ordergate/not-bracketed" || r.Header.Get("x-ordergate-doctor") != "" {
			t.Errorf("the backend has %s with %v", r.URL, r.Header)
		}
		sealed = r
	}
	for _, path := range []string{sealed.RequestURI} {
		if a := s.must("POST", path, "", "Content-Type", "application/json"); a.report() != nil || a.status == 200 {
			t.Errorf("a sealed path is answered %d %s", a.status, a.body)
		}
	}
}
