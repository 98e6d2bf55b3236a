package tests

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// byBody adds rules whose orders stand in the body: settlements that are enforced and
// observed, and a create.
func byBody(yaml string) string {
	return bedtest.Replace(shortLease(yaml), "  - name: order-create\n", `  - name: by-body
    match: {methods: [POST], path: /settle}
    id: {json: order}
    settle: {lock: settlement}
  - name: observed
    match: {methods: [POST], path: /observed}
    id: {json: order}
    settle: {lock: settlement}
    mode: observe
  - name: create-by-body
    match: {methods: [POST], path: /new}
    id: {json: order, format: digits}
    create: {filter: orders, learn: {response_header: x-new-order}}
  - name: looked-up
    match: {methods: [POST], path: /refund}
    id: {json: order, format: digits}
    lookup: {filter: orders}
    settle: {lock: settlement}
  - name: found
    match: {methods: [POST], path: /find}
    id: {json: order, format: digits}
    lookup: {filter: orders}
  - name: order-create
`)
}

// noOverride has Envoy's ext_proc send what its configuration says, whatever it is asked for.
var noOverride = []string{"allow_mode_override: true", "allow_mode_override: false"}

const unlocked = `ordergate_decisions_total{action="settle",mode="enforce",rule="by-body",verdict="unlocked"}`

// TestBodyUnseen settles and creates by bodies that Envoy does not show.
func TestBodyUnseen(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module sees every body")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: byBody, envoy: edit(t, noOverride...)})
	settle := func(path, query string) answer {
		return s.must("POST", path+query, `{"order":1}`, "Content-Type", jsonBody)
	}
	// Without a body there is nothing to show: the request is judged by its headers.
	s.must("POST", "/settle", "", "Content-Type", jsonBody).want(t, 400, "invalid")
	s.must("POST", "/orders/1/settle", "").want(t, 200, "")
	if status, reasons := s.readiness(); status != 200 {
		t.Errorf("readiness %d, %v", status, reasons)
	}

	refused := settle("/settle", "")
	refused.want(t, 503, "unlocked")
	if again := refused.header.Get("retry-after"); again != "" { // the backend has acted
		t.Errorf("Retry-After: %s", again)
	}
	s.wantLogged("ERROR", "a request was passed on before ordergate saw its body", "by-body", "allow_mode_override")
	if status, reasons := s.readiness(); status != 503 || !strings.Contains(reasons["request bodies"], "allow_mode_override") {
		t.Errorf("readiness %d, %v", status, reasons)
	}
	for _, r := range b.seen() { // nor would one that goes by the body alone have taken it
		if text := r.Header.Get("Content-Type"); strings.Contains(r.URL.Path, "/.ordergate/") && text != "application/vnd.ordergate.body-not-seen" {
			t.Errorf("the backend got %s as %s", r.URL, text)
		}
	}
	settle("/settle", "?do=504").want(t, 503, "unlocked")
	settle("/settle", "?do=reset").want(t, 503, "unlocked")
	if n := b.arrived("/settle"); n != 0 {
		t.Errorf("%d settlements reached the backend without a lock", n)
	}
	if n := s.metric(unlocked); n != "3" {
		t.Errorf("%s settlements without a lock were counted", n)
	}
	settle("/observed", "").want(t, 200, "") // nothing is changed
	if n := s.metric(`ordergate_decisions_total{action="settle",mode="observe",rule="observed",verdict="unlocked"}`); n != "1" {
		t.Errorf("%s observed settlements without a lock were counted", n)
	}

	// What was created is learned all the same.
	if a := s.must("POST", "/new?do=create&id=77", `{"order":77}`, "Content-Type", jsonBody); a.status != 201 {
		t.Errorf("create: %d %s", a.status, a.body)
	}
	s.must("GET", "/orders/77", "").want(t, 200, "")
	s.must("GET", "/orders/78", "").want(t, 404, "absent")

	// Nor does Envoy show the end of answers, so that each settled order stays locked.
	s.must("POST", "/orders/2/settle", "").want(t, 200, "")
	s.wantLogged("ERROR", "calls end before ordergate has seen the end of their answers", "commission-settle", "allow_mode_override")
	if status, reasons := s.readiness(); status != 503 || !strings.Contains(reasons["response ends"], "allow_mode_override") {
		t.Errorf("readiness %d, %v", status, reasons)
	}
}

// TestBodyUnseenWithoutAnswers has an Envoy that shows neither bodies nor answers.
func TestBodyUnseenWithoutAnswers(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module sees every body")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: byBody, envoy: edit(t, noBodies...)})
	// Nobody knows what was created: no order is certainly absent any more.
	s.must("GET", "/orders/77", "").want(t, 404, "absent")
	s.must("POST", "/new?do=create&id=77", `{"order":77}`, "Content-Type", jsonBody)
	bedtest.Eventually(t, "the order is not refused", func() bool { return s.must("GET", "/orders/77", "").status == http.StatusOK })
	for range 2 {
		s.must("POST", "/settle", `{"order":1}`, "Content-Type", jsonBody) // too late to refuse
	}
	if n := b.arrived("/settle"); n != 0 {
		t.Errorf("%d settlements reached the backend without a lock", n)
	}
	s.wantLogged("WARN", "requests have ended before ordergate saw their bodies", "by-body", "allow_mode_override")
	if status, reasons := s.readiness(); status != 200 { // clients who leave look the same
		t.Errorf("readiness %d, %v", status, reasons)
	}
}

// noBodies has it show neither bodies nor answers.
var noBodies = append(slices.Clip(noOverride),
	"response_header_mode: SEND", "response_header_mode: SKIP", "response_trailer_mode: SEND", "response_trailer_mode: SKIP")

// TestBodiesOfClientsWhoLeave has clients leave while they send bodies, before ordergate has
// seen any. That takes no readiness away.
func TestBodiesOfClientsWhoLeave(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: byBody})
	left := 0
	bedtest.Eventually(t, "ordergate has noticed", func() bool {
		s.leaveWithinBody("/settle", `{"order":`) // some do before ordergate is asked
		left++
		log, err := os.ReadFile(s.gate.Output())
		must(t, err)
		return left >= mostEnded && (*attachment == asModule || // which sees every body
			bytes.Contains(log, []byte("requests have ended before ordergate saw their bodies")))
	})
	if status, reasons := s.readiness(); status != 200 {
		t.Errorf("readiness %d, %v", status, reasons)
	}
	s.must("POST", "/settle", `{"order":1}`, "Content-Type", jsonBody).want(t, 200, "")
}

// TestBodyUnseenByOne has one Envoy that shows bodies, and another one that does not.
func TestBodyUnseenByOne(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module sees every body")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: byBody})
	s.must("POST", "/settle", `{"order":1}`, "Content-Type", jsonBody).want(t, 200, "")
	s.must("GET", "/orders/77", "").want(t, 404, "absent")

	other := *s
	other.envoy = s.Envoy(edit(t, noBodies...)(check(t)(s.EnvoyExample(s.GateAddr(s.gate, "authz"), s.GateAddr(s.gate, "proc"), b.addr()))))
	other.url = "http://" + s.ListenerAddr(other.envoy, "orders")
	other.must("POST", "/settle", `{"order":1}`, "Content-Type", jsonBody)
	if n := b.arrived("/settle"); n != 1 {
		t.Errorf("%d settlements reached the backend without a lock", n-1)
	}
	if a := other.must("POST", "/new?do=create&id=77", `{"order":77}`, "Content-Type", jsonBody); a.status != 201 {
		t.Fatalf("create: %d %s", a.status, a.body)
	}
	bedtest.Eventually(t, "the order is not refused", func() bool { return s.must("GET", "/orders/77", "").status == http.StatusOK })
}

// TestBodySeen is what must not be taken for that: bodies that Envoy shows unasked, clients
// that leave while they send one, and bodies that Envoy refuses.
func TestBodySeen(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		envoy []string
	}{
		{"asked for", nil},
		{"by Envoy's configuration", append(slices.Clip(noOverride), "request_body_mode: NONE", "request_body_mode: BUFFERED", "response_body_mode: NONE", "response_body_mode: STREAMED")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.envoy != nil {
				needsSidecar(t, "the module is not configured so")
			}
			b := newBackend(t)
			s := newStack(t, settings{backend: b.addr(), orders: 10, gate: byBody, envoy: edit(t, tt.envoy...)})
			s.must("POST", "/settle", `{"order":1}`, "Content-Type", jsonBody).want(t, 200, "")
			if b.last("fence") == "" || b.last("key") != "order:lock:1" {
				t.Errorf("fence %q of key %q", b.last("fence"), b.last("key"))
			}
			for path, rule := range map[string]string{"/refund": "looked-up", "/find": "found"} {
				s.must("POST", path, `{"order":99999}`, "Content-Type", jsonBody).want(t, 404, "absent")
				s.must("POST", path, `{"order":3}`, "Content-Type", jsonBody).want(t, 200, "")
				for verdict, want := range map[string]string{"absent": "1", "maybe": "1", "unknown": "0"} {
					if n := s.metric(`ordergate_decisions_total{action="lookup",mode="enforce",rule="` + rule + `",verdict="` + verdict + `"}`); n != want {
						t.Errorf("%s: %s are %s, want %s", path, n, verdict, want)
					}
				}
				if n := b.arrived(path); n != 1 {
					t.Errorf("%s: %d requests reached the backend", path, n)
				}
			}
			for range mostEnded {
				s.leaveWithinBody("/settle", `{"order":`)
			}
			s.must("POST", "/settle", `{"order":1,"a":"`+strings.Repeat("x", 2<<20)+`"}`, "Content-Type", jsonBody).want(t, 413, "invalid")
			s.must("POST", "/settle", `{"order":2}`, "Content-Type", jsonBody).want(t, 200, "")
			if status, reasons := s.readiness(); status != 200 || reasons["request bodies"] != "" {
				t.Errorf("readiness %d, %v", status, reasons)
			}
			if n := b.arrived("/settle"); n != 2 {
				t.Errorf("%d requests reached the backend, want 2", n)
			}
		})
	}
}

// mostEnded is how many streams may end without their body before that is an alarm.
const mostEnded = 3

// leaveWithinBody sends a part of a body, and leaves once Envoy has it.
func (s *stack) leaveWithinBody(path, part string) {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(s.url, "http://"))
	must(s.t, err)
	_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: shop\r\nContent-Type: "+jsonBody+"\r\nContent-Length: 1000\r\n\r\n"+part)
	must(s.t, err)
	before := s.aborted()
	must(s.t, conn.Close())
	bedtest.Eventually(s.t, "Envoy has noticed", func() bool { return s.aborted() > before })
}

// aborted returns how many requests Envoy has lost their client of.
func (s *stack) aborted() int64 {
	stats, err := s.envoy.Stats(s.t.Context(), "http.orders.downstream_rq_rx_reset")
	must(s.t, err)
	cx, err := s.envoy.Stats(s.t.Context(), "http.orders.downstream_cx_destroy_remote_active_rq")
	must(s.t, err)
	var n int64
	for _, v := range stats {
		n += v
	}
	for _, v := range cx {
		n += v
	}
	return n
}

// TestBodyCut has ext_authz show the beginning of a body only: it is not taken for all of it.
func TestBodyCut(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "the module sees every body")
	b := newBackend(t)
	for name, change := range map[string][]string{
		"headers as they came": nil,
		"headers joined":       {"              encode_raw_headers: true\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, settings{
				backend: b.addr(), orders: 10,
				gate: edit(t, "  - name: order-create\n", `  - name: by-form
    match: {methods: [POST], path: /find}
    id: {form: order}
    lookup: {filter: orders}
  - name: order-create
`),
				envoy: both(both(both(unhurried(t), throughBoth(t)), edit(t, change...)), edit(t, "              failure_mode_allow: true\n",
					"              failure_mode_allow: true\n              with_request_body: { max_request_bytes: 8, allow_partial_message: true, pack_as_bytes: true }\n")),
			})
			form := []string{"Content-Type", "application/x-www-form-urlencoded"}
			s.must("POST", "/find", "order=10", form...).want(t, 200, "")
			s.must("POST", "/find", "order=11", form...).want(t, 404, "absent")
			s.must("POST", "/find", "order=100", form...).want(t, 413, "invalid")
		})
	}
}
