package tests

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

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

// TestMarksAttacked has clients forge marks, and use those of others. ordergate refuses each such
// request, and none reaches the backend.
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
	for name, tt := range map[string]struct{ mark, result string }{
		"used": {used, "repeated"}, "forged": {forged, "forged"}, "nonsense": {"x", "forged"}, "of another stage": {strings.Replace(used, "proc.", "backend.", 1), "forged"},
	} {
		for _, request := range [][2]string{{"POST", settle}, {"GET", "/orders/4711"}, {"GET", "/orders/5"}, {"GET", "/other"}} {
			a := s.must(request[0], request[1], "", "x-ordergate-doctor", tt.mark)
			if a.status != 400 || a.report() != nil || !strings.Contains(a.body, `"ordergate_mark":"`+tt.result+`"`) || a.header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s, %s: %d %s", name, request, a.status, a.body)
			}
		}
		if n := len(b.seen()); n != 0 {
			t.Errorf("%s: %d requests have reached the backend", name, n)
		}
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
	mixed.envoy = s.Envoy(throughBoth(t)(check(t)(s.EnvoyExample(s.GateAddr(s.gate, "authz"), s.GateAddr(other.gate, "proc"), b.addr()))))
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

// TestDoctorOfTwoDeployments has one or both of the filters ask an ordergate with another Redis.
func TestDoctorOfTwoDeployments(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module is one instance")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortWaits(t)})
	other := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortWaits(t)})
	for want, authz := range map[string]*stack{
		"FAIL  attachment: an ordergate has refused the mark: a proxy has changed the mark, or that ordergate has another Redis":                           other,
		"FAIL  rule commission-settle, POST ext_proc: its ordergate cannot read the path that ext_authz has sealed, so each of these requests fails (503)": s,
	} {
		mixed := &stack{Bed: s.Bed, t: t, server: s.server, redis: s.redis, gate: s.gate}
		mixed.envoy = s.Envoy(throughBoth(t)(check(t)(s.EnvoyExample(s.GateAddr(authz.gate, "authz"), s.GateAddr(other.gate, "proc"), b.addr()))))
		mixed.url = "http://" + s.ListenerAddr(mixed.envoy, "orders")
		if out, code := mixed.doctor("--to-backend"); code != 1 || !strings.Contains(out, want) {
			t.Errorf("no %q in (exit status %d):\n%s", want, code, out)
		}
	}
	for _, r := range b.seen() {
		t.Errorf("the backend has %s %s", r.Method, r.URL)
	}
}

// TestSealedMark uses the path that ext_authz has made of a marked request, as an access log shows it
// of one that ext_proc does not answer.
func TestSealedMark(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module seals nothing")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, envoy: both(throughBoth(t), edit(t, settleRoute,
		"                typed_per_filter_config:\n"+disabled(procFilter, "ext_proc.v3.ExtProcPerRoute")+strings.TrimPrefix(settleRoute, "                typed_per_filter_config:\n")))})
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

// between is a proxy in front of Envoy, which sends each request on as the function says.
func (s *stack) between(send func(r *http.Request, body []byte) *http.Response) *stack {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(s.t, err)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		resp := send(r, body)
		if resp == nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		maps.Copy(w.Header(), resp.Header)
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})}
	go func() { _ = server.Serve(listener) }()
	s.t.Cleanup(func() { must(s.t, server.Close()) })
	behind := *s
	behind.url = "http://" + listener.Addr().String()
	return &behind
}

// forward sends a request on to Envoy, nil if that fails.
func (s *stack) forward(r *http.Request, body []byte) *http.Response {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, s.url, bytes.NewReader(body))
	if err != nil {
		return nil
	}
	out.Host, out.Header, out.URL.Opaque = r.Host, r.Header, r.RequestURI
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		return nil
	}
	return resp
}

// TestDoctorBehindProxies has the doctor's requests pass proxies that repeat, keep and change them.
// None reaches the backend as one that settles, and the doctor names what is wrong.
func TestDoctorBehindProxies(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortWaits(t)})
	must(t, s.redis.ConfigSet(t.Context(), "appendonly", "yes").Err())
	const header = "X-Ordergate-Doctor"
	var kept sync.Map
	for name, tt := range map[string]struct {
		send func(r *http.Request, body []byte) *http.Response
		want string
	}{
		"sends all twice": {func(r *http.Request, body []byte) *http.Response {
			first := s.forward(r, body)
			if second := s.forward(r, body); second != nil {
				_ = second.Body.Close()
			}
			return first
		}, "ok    attachment: reads are answered by ordergate"},
		"tries again": {func(r *http.Request, body []byte) *http.Response {
			if first := s.forward(r, body); first != nil {
				_ = first.Body.Close()
			}
			return s.forward(r, body)
		}, "FAIL  attachment: the mark came more than once"},
		"answers from a cache": {func(r *http.Request, body []byte) *http.Response {
			key := r.Method + r.RequestURI
			if text, ok := kept.Load(key); ok {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text.(string)))}
			}
			resp := s.forward(r, body)
			text, _ := io.ReadAll(resp.Body)
			kept.Store(key, string(text))
			resp.Body = io.NopCloser(bytes.NewReader(text))
			return resp
		}, "the answer is that to another marked request"},
		"removes the mark of writes": {func(r *http.Request, body []byte) *http.Response {
			if r.Method == http.MethodPost {
				r.Header.Del(header)
			}
			return s.forward(r, body)
		}, "FAIL  attachment: a marked POST is not answered by ordergate"},
		"sends the header twice": {func(r *http.Request, body []byte) *http.Response {
			if r.Method == http.MethodPost {
				r.Header.Add(header, r.Header.Get(header))
			}
			return s.forward(r, body)
		}, "has changed the mark"},
		"changes the mark": {func(r *http.Request, body []byte) *http.Response {
			r.Header.Set(header, strings.ToUpper(r.Header.Get(header)))
			return s.forward(r, body)
		}, "has changed the mark"},
		"keeps the mark for later": {func(r *http.Request, body []byte) *http.Response {
			if before, ok := kept.Swap("mark", r.Header.Get(header)); ok {
				r.Header.Set(header, before.(string))
			}
			return s.forward(r, body)
		}, "the mark came more than once"},
	} {
		t.Run(name, func(t *testing.T) {
			behind := s.between(tt.send)
			behind.t = t
			out, _ := behind.doctor()
			if !strings.Contains(out, tt.want) {
				t.Errorf("no %q in:\n%s", tt.want, out)
			}
			for _, r := range b.seen() {
				if !strings.HasPrefix(r.URL.Path, "/.ordergate/") {
					t.Errorf("the backend has %s %s with %v", r.Method, r.URL, r.Header)
				}
			}
		})
	}
}
