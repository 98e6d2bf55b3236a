package tests

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// authzOff is where the example has ext_authz off.
const authzOff = "            disabled: true\n            typed_config:\n              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz\n"

var (
	guardFilter = regexp.MustCompile(`(?s)          - name: ordergate\.guard\n.*?\n\n`)
	answeredAt  = regexp.MustCompile(`"at":"[^"]*",`) // the backend's clock
)

// throughBoth has requests that ext_proc sees pass ext_authz before, as of Envoys that were configured
// by an older example. Inside Envoy there is one filter.
func throughBoth(t testing.TB) func(string) string {
	if *attachment == asModule {
		return func(yaml string) string { return yaml }
	}
	return func(yaml string) string { return check(t)(testbed.ThroughBoth(yaml)) }
}

// behind starts another Envoy in front of the stack's ordergate.
func (s *stack) behind(t testing.TB, backend string, change func(string) string) *stack {
	t.Helper()
	other := &stack{Bed: s.Bed, t: t, server: s.server, redis: s.redis, gate: s.gate}
	other.envoy = s.Envoy(change(check(t)(s.EnvoyExample(s.GateAddr(s.gate, "authz"), s.GateAddr(s.gate, "proc"), backend))))
	other.url = "http://" + s.ListenerAddr(other.envoy, "orders")
	return other
}

// TestAuthzOffAttacked attacks what has no seal: settlements that do not pass ext_authz.
func TestAuthzOffAttacked(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "inside Envoy there is one filter")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	onRoute := func(filter, kind string) func(string) string {
		return edit(t, settleRoute, "                typed_per_filter_config:\n"+disabled(filter, kind)+strings.TrimPrefix(settleRoute, "                typed_per_filter_config:\n"))
	}

	// A client has the path that ext_authz has made of a settlement, from another Envoy's error page.
	s.behind(t, b.addr(), both(throughBoth(t), onRoute(procFilter, "ext_proc.v3.ExtProcPerRoute"))).must("POST", "/orders/5/settle", "")
	seen := b.seen()
	sealed := seen[len(seen)-1].RequestURI
	if !strings.HasPrefix(sealed, "/.ordergate/not-bracketed?") {
		t.Fatalf("the backend got %s", sealed)
	}
	for _, target := range []string{sealed, sealed + "&a=b", "/.ordergate/not-bracketed?seal=x&ordergate=/orders/5/settle"} {
		s.must("POST", target, "", "x-ordergate-authz", "off", "x-ordergate-verdict", "maybe").want(t, 503, "unavailable")
	}

	// Ext_proc does not see settlements: Envoy refuses them.
	example := check(t)(s.EnvoyExample("127.0.0.1:1", "127.0.0.1:1", b.addr()))
	proc := chainFilter(t, example, procFilter)
	open := edit(t, "              failure_mode_allow: false\n", "              failure_mode_allow: true\n")
	for name, change := range map[string]func(string) string{
		"the filter is missing": edit(t, proc, ""),
		"off on the route":      onRoute(procFilter, "ext_proc.v3.ExtProcPerRoute"),
		"away, and allowed to be": both(open, func(yaml string) string {
			return strings.ReplaceAll(yaml, "port_value: "+portOf(s.GateAddr(s.gate, "proc")), "port_value: 1")
		}),
		"not shown requests": edit(t, "request_header_mode: SEND", "request_header_mode: SKIP"),
		"behind the guard": func(yaml string) string {
			guard := guardFilter.FindString(yaml)
			return bedtest.Replace(bedtest.Replace(yaml, guard, ""), proc, guard+proc)
		},
		"its word is not taken": edit(t, "untyped: [ordergate, ordergate.guard]", "untyped: [ordergate]"),
	} {
		t.Run(name, func(t *testing.T) {
			before := len(b.seen())
			other := s.behind(t, b.addr(), change)
			for _, header := range []string{"", "forged"} {
				a := other.must("POST", "/orders/5/settle", `{"amount":1}`, "x-ordergate-key", header, "x-ordergate-authz", header, "ordergate.guard", header)
				if a.status != 403 || len(b.seen()) != before {
					t.Errorf("%d %q, and the backend has %d requests more", a.status, a.body, len(b.seen())-before)
				}
			}
			if a := other.must("GET", "/orders/5", ""); a.status != 200 && a.status != 404 {
				t.Errorf("a read: %d", a.status)
			}
		})
	}

	// An ordergate that is told that ext_authz is off, where it is on, refuses what that seals.
	s.behind(t, b.addr(), edit(t, authzOff, strings.TrimPrefix(authzOff, "            disabled: true\n"))).must("POST", "/orders/5/settle", "").want(t, 503, "unavailable")

	// Envoy does not show bodies: the hidden path and its alarm are those of other Envoys.
	unseen := s.behind(t, b.addr(), edit(t, "allow_mode_override: true", "allow_mode_override: false"))
	unseen.must("POST", "/orders/5/settle", `{"amount":1}`).want(t, 503, "unlocked")
	if last := b.seen(); last[len(last)-1].URL.Path != "/.ordergate/body-not-seen" {
		t.Errorf("the backend got %s", last[len(last)-1].URL)
	}
}

// TestAuthzOffAlike sends the same requests through ext_proc alone, and through both filters: they get the
// same answers, the backend the same headers, and the metrics count the same.
func TestAuthzOffAlike(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "inside Envoy there is one filter")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 5000, gate: edit(t, "  - name: order-create\n", `  - name: search
    match: {methods: [POST, PUT], path: "/search/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
  - name: search-body
    match: {methods: [POST], path: /search}
    id: {json: id, format: digits}
    lookup: {filter: orders}
  - name: watch
    match: {methods: [POST], path: "/watch/{id}"}
    id: {path: id, format: digits}
    lookup: {filter: orders}
    settle: {lock: settlement}
    mode: observe
  - name: grpc
    match: {methods: [POST], path: /shop.Orders/Settle}
    id: {header: x-order-id, format: digits}
    lookup: {filter: orders}
    settle: {lock: settlement}
  - name: order-create
`)})
	two := s.behind(t, b.addr(), throughBoth(t))
	type result struct {
		answer  answer
		request string // that the backend got
		counted string
	}
	ask := func(on *stack, method, target, body string, header []string) result {
		before, seen := s.counters(), len(b.seen())
		r := result{answer: on.must(method, target, body, header...)}
		for _, drop := range []string{"Date", "X-Envoy-Upstream-Service-Time", "X-Request-Id", "Content-Length"} {
			r.answer.header.Del(drop)
		}
		r.answer.body = answeredAt.ReplaceAllString(r.answer.body, "")
		for _, req := range b.seen()[seen:] {
			r.request += shown(req)
		}
		bedtest.Eventually(t, "the call is over", func() bool { return s.metric(`ordergate_lock_held{lock="settlement"}`) == "0" })
		after := s.counters()
		for _, line := range slices.Sorted(maps.Keys(after)) {
			if more := after[line] - before[line]; more != 0 {
				r.counted += fmt.Sprintln(line, more)
			}
		}
		return r
	}
	json := []string{"content-type", "application/json"}
	for i, tt := range []struct {
		method, target, body string
		header               []string
	}{
		{"POST", "/orders/1/settle", "", nil},
		{"POST", "/orders/1/settle", `{"amount":1}`, json},
		{"POST", "/orders/1/settle?a=%2F", "", []string{"x-ordergate-fence", "1", "x-ordergate-verdict", "maybe", "x-ordergate-lease", "forged", "x-ordergate-lease-lost", "1"}},
		{"POST", "/orders/7777/settle", "", nil},
		{"POST", "/orders/7777/settle", `{"amount":1}`, json},
		{"POST", "/orders/7777/settle", "", []string{"x-ordergate-verdict", "maybe"}},
		{"POST", "/orders/01/settle", "", nil},
		{"POST", "/orders/1%20/settle", "", nil},
		{"POST", "/orders/1;a/settle", "", nil},
		{"POST", "/orders/abc/settle", `{}`, json},
		{"POST", "/orders/1/settle", "", []string{"x-http-method-override", "GET"}},
		{"POST", "/orders/1/settle", "", []string{"x-original-url", "/orders/2/settle"}},
		{"POST", "/orders/1", "", []string{"x-http-method-override", "GET"}},
		{"PUT", "/orders/1/settle", "", []string{"x-ordergate-verdict", "maybe", "x-rewrite-url", "/a"}},
		{"DELETE", "/elsewhere", "", []string{"x-ordergate-key", "1", "x.ordergate.key", "1", "x-original-url", "/a"}},
		{"POST", "/orders?do=create&id=4999", "", nil},
		{"POST", "/search/1", "", []string{"x-ordergate-verdict", "absent"}},
		{"PUT", "/search/7777", "a", nil},
		{"POST", "/search/07", "a", []string{"x-ordergate-verdict", "invalid"}},
		{"POST", "/search", `{"id":1}`, json},
		{"POST", "/search", `{"id":7777}`, json},
		{"POST", "/search", `{"id":1,"id":2}`, json},
		{"POST", "/search", "", json},
		{"POST", "/watch/1", "", []string{"x-ordergate-verdict", "forged"}},
		{"POST", "/watch/7777", `{}`, json},
		{"POST", "/watch/07", "", []string{"x-ordergate-verdict", "invalid"}},
		{"POST", "/shop.Orders/Settle", "", []string{"content-type", "application/grpc", "x-order-id", "7777"}},
		{"POST", "/shop.Orders/Settle", "", []string{"content-type", "application/grpc", "x-order-id", "x"}},
		{"GET", "/orders/1", "", []string{"x-ordergate-verdict", "absent"}},
		{"HEAD", "/orders/7777", "", nil},
		{"POST", "/orders", `{}`, append(json, "x-ordergate-verdict", "unknown")}, // it makes the filter unknown
		{"POST", "/orders/7777/settle", "", nil},
		{"PUT", "/search/7777", "", nil},
	} {
		one, other := ask(s, tt.method, tt.target, tt.body, tt.header), ask(two, tt.method, tt.target, tt.body, tt.header)
		if diff := cmp.Diff(other, one, cmp.AllowUnexported(result{}, answer{})); diff != "" {
			t.Errorf("%d: %s %s %q (-both filters, +ext_proc alone):\n%s", i, tt.method, tt.target, tt.header, diff)
		}
	}
	if n := s.metric(`ordergate_decisions_total{action="lookup",mode="enforce",rule="commission-settle",verdict="absent"}`); n != "6" {
		t.Errorf("%s settlements of orders that do not exist were refused, want 6", n)
	}
}

// shown writes what the backend has of a request, but for what differs each time.
func shown(r *http.Request) string {
	text := r.Method + " " + r.RequestURI + "\n"
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		switch name {
		case "X-Request-Id", "X-Ordergate-Fence", "X-Ordergate-Lease", "X-Envoy-Expected-Rq-Timeout-Ms":
			text += fmt.Sprintf("%s: %d\n", name, len(r.Header[name]))
		default:
			text += fmt.Sprintf("%s: %q\n", name, r.Header[name])
		}
	}
	return text
}

// counters returns the counters of decisions, and of reasons.
func (s *stack) counters() map[string]float64 {
	all := make(map[string]float64)
	for line := range strings.Lines(s.metrics()) {
		name, value, _ := strings.Cut(line, " ")
		if strings.HasPrefix(name, "ordergate_decisions_total") || strings.HasPrefix(name, "ordergate_refused_total") || strings.HasPrefix(name, "ordergate_lock_outcome_total") {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			must(s.t, err)
			all[name] = n
		}
	}
	return all
}

// TestAuthzOffUnsealed has the first requests come by ext_proc alone, which is as it should be.
func TestAuthzOffUnsealed(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "inside Envoy there is one filter")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	for range 25 {
		s.must("POST", "/orders/5/settle", "").want(t, 200, "")
	}
	if log := gateLog(t, s); strings.Contains(log, "none has passed ext_authz") {
		t.Errorf("the log: %s", log)
	}
	if status, reasons := s.readiness(); status != 200 {
		t.Errorf("readiness: %d %q", status, reasons)
	}
}
