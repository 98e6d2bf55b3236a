package tests

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/wait"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// doctor runs ordergate doctor through Envoy, and returns its output and exit status.
func (s *stack) doctor(args ...string) (out string, code int) {
	s.t.Helper()
	args = append([]string{"doctor", "--config", commandFile(s.t, s), "--through", s.url}, args...)
	cmd := exec.CommandContext(s.t.Context(), s.Build("./cmd/sidecar", false), args...)
	text, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// settling has clients settle a few orders, and look for an absent one, until stop is called. That
// returns how many settlements were answered 200. Others were busy.
func (s *stack) settling() (stop func() (settled int)) {
	var settled atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(s.t.Context())
	for i := range 4 {
		wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				a, err := s.send(s.t.Context(), "POST", fmt.Sprintf("/orders/%d/settle", 1+n%3), `{"amount":1}`)
				switch {
				case err == nil && a.status == 200 && a.report() == nil:
					settled.Add(1)
				case err != nil || a.status != 409 || a.verdict != "busy":
					s.t.Errorf("a settlement beside the doctor: %v, %d %s", err, a.status, a.body)
				}
				if a, err := s.send(s.t.Context(), "GET", "/orders/77", ""); err != nil || a.verdict != "absent" {
					s.t.Errorf("a lookup beside the doctor: %v, %d %s", err, a.status, a.verdict)
				}
				_ = wait.For(ctx, 30*time.Millisecond) // Envoy lets each client settle 100 times a second
			}
		})
	}
	return func() int {
		cancel()
		wg.Wait()
		return int(settled.Load())
	}
}

// TestDoctor finds nothing wrong with the example, also while it works. None of its requests reaches the
// backend, but those that may.
func TestDoctor(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: shortWaits(t)})
	must(t, s.redis.ConfigSet(t.Context(), "appendonly", "yes").Err())
	out, code := s.doctor()
	if code != 0 || strings.Contains(out, "FAIL") {
		t.Errorf("exit status %d:\n%s", code, out)
	}
	for _, r := range b.seen() {
		t.Errorf("the backend has %s %s", r.Method, r.URL)
	}
	stop := s.settling()
	out, code = s.doctor("--to-backend")
	settled := stop()
	if code != 0 || strings.Contains(out, "FAIL") || strings.Count(out, "answers: seen to the end (status 200, via_upstream, attempts: 1)") != 2 {
		t.Errorf("--to-backend: exit status %d:\n%s", code, out)
	}
	for _, want := range []string{
		"POST trailers: the end of a request is seen behind its body, and without one", "redis: lock settlement: a release wakes waiters",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	for _, r := range b.seen() {
		switch {
		case r.Header.Get("x-ordergate-doctor") != "":
			t.Errorf("the backend has a mark: %s %s with %v", r.Method, r.URL, r.Header)
		case r.Header.Get("x-ordergate-fence") != "" && b.body(r) == `{"amount":1}`:
			settled--
		case r.URL.Path != "/.ordergate/doctor":
			t.Errorf("--to-backend: the backend has %s %s with %v", r.Method, r.URL, r.Header)
		}
	}
	if settled != 0 {
		t.Errorf("%d settlements were answered, and did not arrive", settled)
	}
}

// chainFilter returns the text of a filter in the example's configuration, comments above it left out.
func chainFilter(t testing.TB, envoy, name string) string {
	t.Helper()
	const begin = "          - name: "
	_, rest, found := strings.Cut(envoy, begin+name+"\n")
	text := begin + name + "\n"
	for line := range strings.Lines(rest) {
		if len(line) > 11 && strings.TrimLeft(line[:11], " ") != "" || strings.TrimSpace(line) == "" {
			return text
		}
		text += line
	}
	t.Fatalf("the example has no filter %s (%v)", name, found)
	return ""
}

const (
	authzFilter, procFilter = "envoy.filters.http.ext_authz", "envoy.filters.http.ext_proc"
	// writesRoute is the end of the example's route for writes.
	writesRoute = "                match: { prefix: / }\n                route: { cluster: backend-writes, timeout: 30s }\n"
	// settleRoute is where the example's route for settlements has its switches.
	settleRoute = "                typed_per_filter_config:\n                  envoy.filters.http.local_ratelimit:\n"
)

// disabled switches a filter off on a route.
func disabled(filter, kind string) string {
	return "                  " + filter + ":\n                    \"@type\": type.googleapis.com/envoy.extensions.filters.http." + kind + "\n                    disabled: true\n"
}

// TestDoctorNames leaves one thing out of the example in turn, and the doctor names it.
func TestDoctorNames(t *testing.T) {
	t.Parallel()
	needsSidecar(t, "it is about the two filters")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: func(yaml string) string {
		return shortWaits(t)(yaml) + "  - name: pay-link\n    match: {methods: [GET], path: \"/pay/{id}\"}\n    id: {path: id}\n    settle: {lock: settlement}\n" +
			"  - name: by-header\n    match: {methods: [GET], path: /order}\n    id: {header: x-order-id}\n    lookup: {filter: orders}\n" +
			"  - name: pay-form\n    match: {methods: [POST], path: \"/form/{id}\"}\n    id: [{path: id}, {form: id}]\n    settle: {lock: settlement}\n"
	}})
	example := check(t)(s.EnvoyExample(s.GateAddr(s.gate, "authz"), s.GateAddr(s.gate, "proc"), b.addr()))
	authz, proc := chainFilter(t, example, authzFilter), chainFilter(t, example, procFilter)
	twice := throughBoth(t)
	mustCut := func(old, to string) func(string) string { return edit(t, old, to) }
	const earlyKey = "          early_header_mutation_extensions:"
	_, early, _ := strings.Cut(example, earlyKey)
	early, _, _ = strings.Cut(early, "\n\n")
	early = earlyKey + early
	for name, tt := range map[string]struct {
		envoy func(string) string
		args  []string
		want  []string
	}{
		"ext_proc":                  {mustCut(proc, ""), nil, []string{"FAIL  attachment: a marked POST is not answered by ordergate"}},
		"ext_proc behind ext_authz": {both(twice, func(yaml string) string { return edit(t, chainFilter(t, yaml, procFilter), "")(yaml) }), nil, []string{"FAIL  rule commission-settle, POST ext_proc: it is not reached, so nothing is locked", "FAIL  rule order-create, POST ext_proc: it is not reached, so no new order is learned"}},
		"ext_proc on the route":     {mustCut(settleRoute, "                typed_per_filter_config:\n"+disabled(procFilter, "ext_proc.v3.ExtProcPerRoute")+strings.TrimPrefix(settleRoute, "                typed_per_filter_config:\n")), nil, []string{"FAIL  rule commission-settle, POST ext_proc: it is not reached", "ok    rule order-create, POST ext_proc"}},
		"ext_authz":                 {mustCut(authz, ""), nil, []string{"FAIL  ext_authz: it is not reached by reads", "writes were not sent"}},
		"the guard":                 {mustCut(chainFilter(t, example, "ordergate.guard"), ""), nil, []string{"FAIL  rule commission-settle, POST guard: ext_authz is off here, and Envoy passes on what ext_proc has not seen (200, via_upstream)", "ok    rule commission-settle, POST ext_proc: reached, and ext_authz is off here"}},
		"ext_authz, not off":        {mustCut(authzOff, strings.TrimPrefix(authzOff, "            disabled: true\n")), nil, []string{"FAIL  rule order-create, POST ext_proc: its ordergate cannot read the path"}},
		"both filters":              {twice, nil, []string{"ok    rule commission-settle, POST ext_proc: reached behind ext_authz"}},
		"ext_authz on the route": {both(twice, mustCut(writesRoute, writesRoute+"                typed_per_filter_config:\n"+disabled(authzFilter, "ext_authz.v3.ExtAuthzPerRoute"))), nil,
			[]string{"FAIL  rule order-create, POST ext_authz: it is not reached"}},
		"the order of the filters": {func(yaml string) string {
			yaml = twice(yaml)
			authz, proc := chainFilter(t, yaml, authzFilter), chainFilter(t, yaml, procFilter)
			return strings.Replace(strings.Replace(strings.Replace(yaml, authz, "AUTHZ", 1), proc, authz, 1), "AUTHZ", proc, 1)
		}, nil, []string{"FAIL  rule commission-settle, POST ext_authz: it stands behind ext_proc"}},
		"allow_mode_override":   {mustCut("allow_mode_override: true", "allow_mode_override: false"), nil, []string{"FAIL  rule commission-settle, POST bodies: Envoy does not show the body", "FAIL  rule commission-settle, POST trailers: of a request of 2 bytes"}},
		"request_attributes":    {mustCut("request_attributes: [source.address]", ""), nil, []string{"FAIL  rule commission-settle, POST attributes: the client's address"}},
		"response_attributes":   {mustCut("              - response.code_details\n              - upstream.request_attempt_count\n", "              - response.size\n"), []string{"--to-backend"}, []string{"FAIL  rule commission-settle, POST answers: Envoy does not tell where an answer is from"}},
		"message_timeout":       {mustCut("message_timeout: 5s", "message_timeout: 0.2s"), nil, []string{"FAIL  rule commission-settle, POST message_timeout", "FAIL  rule order-create, POST message_timeout"}},
		"early header mutation": {mustCut(early, ""), nil, []string{"FAIL  listener: headers of a client arrive that only ordergate may send", "x-ordergate-fence"}},
		"internal addresses":    {mustCut("internal_address_config: { cidr_ranges: [{ address_prefix: 255.255.255.255, prefix_len: 32 }] }", "internal_address_config: {}"), nil, []string{"FAIL  listener: Envoy takes this client for an internal one"}},
		"raw headers":           {mustCut("encode_raw_headers: true", "encode_raw_headers: false"), nil, []string{"FAIL  listener: two lines of one header"}},
		"underscores":           {mustCut("headers_with_underscores_action: REJECT_REQUEST", "headers_with_underscores_action: ALLOW"), nil, []string{"FAIL  listener: a header with an underscore"}},
		"merge_slashes":         {mustCut("merge_slashes: true", "merge_slashes: false"), nil, []string{"FAIL  listener: the path /doctor//"}},
		"normalize_path":        {mustCut("normalize_path: true", "normalize_path: false"), nil, []string{"FAIL  listener: the path /doctor/../"}},
		"escaped slashes":       {mustCut("path_with_escaped_slashes_action: REJECT_REQUEST", "path_with_escaped_slashes_action: KEEP_UNCHANGED"), nil, []string{"FAIL  listener: the path /doctor%2f"}},
		"a proxy that removes the header": {mustCut("regex: \"x[^-]ordergate", "regex: \"x-ordergate-doctor|x[^-]ordergate"), nil,
			[]string{"FAIL  attachment: an ordergate has answered 404 with the verdict absent, and no mark has reached it: a proxy has removed the header x-ordergate-doctor"}},
		"the header of an order": {mustCut("regex: \"x[^-]ordergate", "regex: \"x-order-id|x[^-]ordergate"), nil, []string{"FAIL  rule by-header, GET ext_authz: no order is read from what arrives: the request names no order"}},
		"HTTP/1.1 alone":         {mustCut("          stat_prefix: orders\n", "          stat_prefix: orders\n          codec_type: HTTP1\n"), nil, []string{"-     rule commission-settle, POST trailers: not proved: the listener does not take HTTP/2"}},
		"a route for writes by GET": {func(yaml string) string { return yaml }, nil,
			[]string{"FAIL  rule pay-link, GET ext_proc: it is not reached, so nothing is locked, and the backend gets the path /.ordergate/not-bracketed", "FAIL  redis: it does not write to disk as it goes"}},
		"nothing, to the backend": {mustCut("              - name: reads\n", "              - name: writes-by-get\n                match: { safe_regex: { regex: \"(?i)/+pay.*\" } }\n                route: { cluster: backend-writes, timeout: 30s }\n              - name: reads\n"), []string{"--to-backend"},
			[]string{"ok    rule pay-form, POST bodies: seen", "ok    rule pay-link, GET ext_proc: reached, and ext_authz is off here", "ok    rule pay-link, GET guard: Envoy refuses what ext_proc has not seen", "ok    rule pay-link, GET answers: seen to the end", "ok    rule commission-settle, POST answers: seen to the end (status 200, via_upstream, attempts: 1)", "ok    rule order-create, POST answers: seen to the end"}},
	} {
		changed := tt.envoy(example)
		other := &stack{Bed: s.Bed, t: t, server: s.server, redis: s.redis, gate: s.gate}
		other.envoy = s.Envoy(changed)
		other.url = "http://" + s.ListenerAddr(other.envoy, "orders")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alone := *other
			alone.t = t
			out, code := alone.doctor(tt.args...)
			for _, want := range tt.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in (exit status %d):\n%s", want, code, out)
				}
			}
		})
	}
}

// shortWaits has ordergate wait for as short as it can, since the doctor tries that.
func shortWaits(t testing.TB) func(string) string {
	return edit(t, "wait: {tries: 3, every: 100ms}", "wait: {tries: 1}", "    freshness: "+bedtest.LongWindow, "    freshness: {window: 100ms}\n    change_log: {lease: 1s}")
}
