package envoycheck_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/attach"
	"github.com/ordergate/ordergate/internal/envoycheck"
	"github.com/ordergate/ordergate/internal/envoyfile"
)

const rules = `
listen: {authz: "unix:/run/authz.sock", proc: "unix:/run/proc.sock"}
redis: {}
filters: {orders: {}}
locks: {l: {}}
rules:
  - {name: look, match: {methods: [GET, HEAD], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}
  - {name: make, match: {methods: [POST], path: /orders}, id: {format: digits}, create: {filter: orders, learn: {response_json: id}}}
  - {name: settle, match: {methods: [POST], path: "/orders/{id}/settle"}, id: {path: id}, lookup: {filter: orders}, settle: {lock: l}}
  - {name: pay, match: {methods: [GET], path: /pay}, id: {query: id}, settle: {lock: l}}
  - {name: body, match: {methods: [GET], path: /body}, id: {json: id}, lookup: {filter: orders}}
`

// planOf returns the plan of the rules, in which each second text replaces the first.
func planOf(t testing.TB, changes ...string) attach.Plan {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	text := strings.NewReplacer(changes...).Replace(rules)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(path, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	plan, err := attach.Of(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func printed(t testing.TB, plan attach.Plan, target string) string {
	t.Helper()
	var out strings.Builder
	err := envoyfile.Write(&out, plan, envoyfile.Options{
		Target: target, Command: "ordergate envoy", File: "ordergate.yaml",
		Listen: "127.0.0.1:10000", Admin: "127.0.0.1:9901", Backend: "127.0.0.1:8080", Connections: 32,
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// differences returns the findings as lines.
func differences(t testing.TB, plan attach.Plan, text string) (lines []string, notes []string) {
	t.Helper()
	s, err := envoycheck.Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	findings, notes := envoycheck.Check(plan, 0, s)
	for _, f := range findings {
		if f.What == "" || f.Consequence == "" || f.Write == "" {
			t.Errorf("a finding lacks a part: %+v", f)
		}
		lines = append(lines, f.Where+": "+f.What)
	}
	return lines, notes
}

// Where ext_authz is off, and where ext_proc says so.
const (
	authzOff = "            disabled: true\n            typed_config:\n              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz\n"
	told     = "                initial_metadata: [{ key: x-ordergate-authz, value: \"off\" }]\n"
)

// leftOut has one line of the configuration left out, or changed, in each entry.
var leftOut = []struct {
	name, from, to string
	want           string // in the only finding, or in one of many
	many           bool
}{
	{name: "normalize_path", from: "          normalize_path: true\n", want: "normalize_path"},
	{name: "merge_slashes", from: "          merge_slashes: true\n", want: "merge_slashes"},
	{name: "escaped slashes", from: "          path_with_escaped_slashes_action: REJECT_REQUEST\n", want: "path_with_escaped_slashes_action"},
	{name: "underscores", from: "            headers_with_underscores_action: REJECT_REQUEST\n", want: "headers_with_underscores_action"},
	{name: "internal addresses", from: "          internal_address_config: { cidr_ranges: [{ address_prefix: 255.255.255.255, prefix_len: 32 }] }\n", want: "internal_address_config"},
	{name: "every address internal", from: "{ cidr_ranges: [{ address_prefix: 255.255.255.255, prefix_len: 32 }] }", to: "{}", want: "internal_address_config"},
	{name: "private addresses internal", from: "address_prefix: 255.255.255.255, prefix_len: 32", to: "address_prefix: 10.0.0.0, prefix_len: 8", want: "internal_address_config"},
	{name: "remote address", from: "use_remote_address: true", to: "use_remote_address: false", want: "use_remote_address"},
	{name: "buffer", from: "envoy.extensions.filters.http.buffer.v3.Buffer\n              max_request_bytes: 262144\n", to: "envoy.extensions.filters.http.health_check.v3.HealthCheck\n", want: "buffer is missing"},
	{name: "a small buffer", from: "max_request_bytes: 262144", to: "max_request_bytes: 1000", want: "max_request_bytes is less"},
	{name: "request_timeout", from: "          request_timeout: 20s\n", want: "request_timeout is missing"},
	{name: "a short request_timeout", from: "request_timeout: 20s", to: "request_timeout: 2s", want: "request_timeout is 2s"},
	{name: "a long request_timeout", from: "request_timeout: 20s", to: "request_timeout: 1200s", want: "request_timeout is 20m0s"},
	{name: "request_headers_timeout", from: "          request_headers_timeout: 10s\n", want: "request_headers_timeout"},
	{name: "streams", from: "            max_concurrent_streams: 100\n", want: "max_concurrent_streams"},
	{name: "the stream's window", from: "            initial_stream_window_size: 262144       # bytes\n", want: "initial_stream_window_size"},
	{name: "the connection's window", from: "            initial_connection_window_size: 1048576  # bytes\n", want: "initial_connection_window_size"},
	{name: "the connection's buffer", from: "    per_connection_buffer_limit_bytes: 262144\n", want: "per_connection_buffer_limit_bytes"},
	{name: "overload manager", from: "overload_manager:", to: "unknown_manager:", want: "overload_manager", many: true},
	{name: "fairness", from: "    static_layer: { http.max_requests_per_io_cycle: 1 }\n", to: "    static_layer: {}\n", want: "max_requests_per_io_cycle"},
	{name: "one cluster", from: "route: { cluster: backend-reads, timeout: 15s }", to: "route: { cluster: backend-writes, timeout: 15s }", want: "share the cluster backend-writes"},
	{name: "max_connections", from: "max_connections: 20, ", want: "cluster backend-writes: circuit_breakers do not set max_connections"},
	{name: "max_connections of reads", from: "max_connections: 12, ", want: "cluster backend-reads: circuit_breakers do not set max_connections"},
	{name: "the clients' limit", from: "rate_limits:\n                  # An IPv6 client has a /64 of addresses to choose from.\n                  - actions: [{ masked_remote_address: { v4_prefix_mask_len: 32, v6_prefix_mask_len: 64 } }]\n", to: "hash_policy: []\n", want: "no limit for each client", many: true},
	{name: "the limit's buckets", from: "                    - entries: [{ key: masked_remote_address }]\n                      token_bucket: { max_tokens: 1000, tokens_per_fill: 100, fill_interval: 1s }\n", to: "                      []\n", want: "no limit for each client", many: true},
	{name: "access log", from: "          access_log:\n", to: "          unknown_log:\n", want: "no access log"},
	{name: "access log as text", from: "json_format:\n                  time", to: "text_format_source: { inline_string: x }\n                unknown:\n                  time", want: "not JSON"},
	{name: "a raw path in the log", from: `"%CEL(request.path.matches('^[!-~]*$') ? request.path : 'not in ASCII')%"`, to: `"%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"`, want: "as the client sent it"},
	{name: "route timeout", from: "cluster: backend-writes, timeout: 30s }\n\n", to: "cluster: backend-writes, timeout: 0s }\n\n", want: "no timeout for POST of rule make"},
	{name: "route timeout of reads", from: "cluster: backend-reads, timeout: 15s", to: "cluster: backend-reads, timeout: 0s", want: "no timeout for GET of rule look", many: true},
	{name: "a short route timeout", from: "cluster: backend-writes, timeout: 30s }\n\n", to: "cluster: backend-writes, timeout: 4s }\n\n", want: "its timeout of 4s is shorter"},
	{name: "a long route timeout", from: "cluster: backend-writes, timeout: 30s }\n\n", to: "cluster: backend-writes, timeout: 61s }\n\n", want: "not shorter than stream_idle_timeout"},
	{name: "raw headers", from: "              encode_raw_headers: true\n", want: "encode_raw_headers"},
	{name: "no response attributes", from: "              response_attributes:\n              - response.code_details\n              - upstream.request_attempt_count", want: "response_attributes"},
	{name: "one response attribute", from: "              - upstream.request_attempt_count", want: "response_attributes"},
	{name: "request attributes", from: "              request_attributes: [source.address]\n", want: "request_attributes"},
	{name: "trailers", from: "                response_trailer_mode: SEND", want: "response_trailer_mode"},
	{name: "answers' headers", from: "                response_header_mode: SEND\n                response_body_mode", to: "                response_header_mode: SKIP\n                response_body_mode", want: "response_header_mode"},
	{name: "mode override", from: "              allow_mode_override: true\n", want: "allow_mode_override"},
	{name: "a short message_timeout", from: "message_timeout: 5s", to: "message_timeout: 1s", want: "message_timeout is 1s"},
	{name: "message_timeout", from: "              message_timeout: 5s\n", want: "message_timeout is 200ms"},
	{name: "settlements unlocked", from: "              failure_mode_allow: false\n", to: "              failure_mode_allow: true\n", want: "failure_mode_allow is true"},
	{name: "lookups refused", from: "              failure_mode_allow: true\n              # Headers", to: "              # Headers", want: "failure_mode_allow is not true"},
	{name: "answers cut off", from: "                  failure_mode_allow: true   #", to: "                  #", want: "filter ordergate.answers: failure_mode_allow"},
	{name: "decompressor", from: "          - name: envoy.filters.http.router\n", to: "          - { name: d, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.decompressor.v3.Decompressor } }\n          - name: envoy.filters.http.router\n", want: "decompressor"},
	{name: "redirects", from: "cluster: backend-writes, timeout: 30s }\n\n", to: "cluster: backend-writes, timeout: 30s, internal_redirect_policy: {} }\n\n", want: "follows redirects"},
	{name: "retries", from: "cluster: backend-writes, timeout: 30s }\n\n", to: "cluster: backend-writes, timeout: 30s, retry_policy: { retry_on: 5xx } }\n\n", want: "it retries POST of rule make"},
	{name: "retries of the host", from: `domains: ["*"]`, to: `retry_policy: { retry_on: 5xx }` + "\n" + `              domains: ["*"]`, want: "it retries", many: true},
	{name: "forged headers", from: "          early_header_mutation_extensions:\n", to: "          unknown_extensions:\n", want: "early_header_mutation"},
	{name: "the breaker", from: "max_requests: 100000, max_pending_requests: 100000", to: "max_pending_requests: 100000", want: "max_requests"},
	{name: "writes by GET on reads", from: `regex: "(?i)/+(body|pay).*"`, to: `regex: "/elsewhere"`, want: "for GET of rule", many: true},
	{name: "ext_proc off for all", from: `domains: ["*"]`, to: "typed_per_filter_config: { envoy.filters.http.ext_proc: { \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true } }\n              domains: [\"*\"]", want: "ext_proc is disabled for", many: true},
	{name: "ext_authz off for reads", from: "                    check_settings: {}\n", to: "                    disabled: true\n", want: "ext_authz is disabled for GET of rule look", many: true},
	{name: "ext_authz off, and ext_proc not told", from: told, want: "ext_authz is disabled for POST of rule make, and ext_proc does not take it to be", many: true},
	{name: "ext_authz on, and ext_proc told otherwise", from: authzOff, to: strings.TrimPrefix(authzOff, "            disabled: true\n"), want: "ext_proc takes ext_authz to be off for POST of rule make", many: true},
	{name: "no guard", from: "          - name: ordergate.guard\n", to: "          - name: another\n", want: "nothing behind ext_proc refuses POST of rule settle", many: true},
	{name: "a guard that is off", from: `domains: ["*"]`, to: "typed_per_filter_config: { ordergate.guard: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBACPerRoute } }\n              domains: [\"*\"]", want: "nothing behind ext_proc refuses GET of rule pay", many: true},
	{name: "a guard that lets others pass", from: "bool_match: true", to: "bool_match: false", want: "nothing behind ext_proc refuses", many: true},
	{name: "a guard that refuses those", from: "action: ALLOW", to: "action: DENY", want: "nothing behind ext_proc refuses", many: true},
	{name: "a guard of reads", from: "                  ordergate.guard:   # off\n", to: "                  another:\n", want: "the filter ordergate.guard is on for GET of rule look, and ext_proc is off", many: true},
	{name: "the guard's metadata", from: "[ordergate, ordergate.guard]", to: "[ordergate]", want: "ext_proc does not take the metadata ordergate.guard", many: true},
	{name: "overridden modes", from: `domains: ["*"]`, to: "typed_per_filter_config: { envoy.filters.http.ext_proc: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute, overrides: { failure_mode_allow: true } } }\n              domains: [\"*\"]", want: "overrides of ext_proc: failure_mode_allow is true", many: true},
	{name: "another socket", from: "pipe: { path: /run/proc.sock }", to: "pipe: { path: /run/other.sock }", want: "has the address unix:/run/other.sock"},
	{name: "no HTTP/2", from: "    typed_extension_protocol_options: &grpc\n", to: "    unknown_options: &grpc\n", want: "does not speak HTTP/2", many: true},
	{name: "no cluster", from: "  - name: ordergate-proc\n", to: "  - name: elsewhere\n", want: "there is no cluster ordergate-proc"},
}

// leftOutOfFile has one thing of the file left out in each entry. The configuration of Envoy fits.
var leftOutOfFile = []struct {
	name, from, to string
	want           []string
}{
	{"socket of ext_authz", `"unix:/run/authz.sock"`, `"127.0.0.1:9191"`, []string{"note: listen.authz: every program of this machine or pod reaches 127.0.0.1:9191"}},
	{"socket of ext_proc", `"unix:/run/proc.sock"`, `"[::1]:9192"`, []string{"note: listen.proc: every program of this machine or pod reaches [::1]:9192"}},
	{"sockets of other machines", `{authz: "unix:/run/authz.sock", proc: "unix:/run/proc.sock"}`, `{authz: "gate:9191", proc: "gate:9192", insecure: true}`, []string{"listen.authz: it is gate:9191", "listen.proc: it is gate:9192"}},
	{"mode of sockets", `proc.sock"`, `proc.sock", socket_mode: "0666"`, []string{"listen.authz: it is unix:/run/authz.sock with socket_mode 0666", "listen.proc: it is unix:/run/proc.sock with socket_mode 0666"}},
	{"lookup of another parameter", "rules:\n", "rules:\n" +
		"  - {name: find, match: {methods: [GET], path: /find}, id: {query: order}, lookup: {filter: orders}}\n" +
		"  - {name: end, match: {methods: [POST], path: /end}, id: {query: order}, settle: {lock: l}}\n", []string{"note: rule end: it has no lookup"}},
	{"lookup of the rule that settles", "lookup: {filter: orders}, settle", "settle", []string{"note: rule settle: it has no lookup"}},
}

func TestLeftOutOfFile(t *testing.T) {
	t.Parallel()
	for _, tt := range leftOutOfFile {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(rules, tt.from) {
				t.Fatalf("the file has no %q", tt.from)
			}
			plan := planOf(t, tt.from, tt.to)
			found, notes := differences(t, plan, printed(t, plan, envoyfile.Static))
			for _, n := range notes {
				found = append(found, "note: "+n)
			}
			if !slices.EqualFunc(found, tt.want, strings.HasPrefix) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
			plan.Config.Listen.TLS = &config.ListenTLS{}
			for target, want := range map[string]int{envoyfile.Static: strings.Count(strings.Join(tt.want, ""), "socket_mode"), envoyfile.Module: 0} {
				found, notes = differences(t, plan, printed(t, plan, target))
				if notes = slices.DeleteFunc(notes, func(n string) bool { return strings.HasPrefix(n, "rule ") }); len(notes) > 0 {
					t.Errorf("with TLS, for %s: notes %q", target, notes)
				}
				if found = slices.DeleteFunc(found, func(f string) bool { return !strings.HasPrefix(f, "listen.") }); len(found) != want {
					t.Errorf("with TLS, for %s: found %q", target, found)
				}
			}
		})
	}
}

func TestLeftOut(t *testing.T) {
	t.Parallel()
	plan := planOf(t)
	text := printed(t, plan, envoyfile.Static)
	if found, notes := differences(t, plan, text); len(found)+len(notes) > 0 {
		t.Fatalf("whole, it has differences: %q %q", found, notes)
	}
	for _, tt := range leftOut {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(text, tt.from) {
				t.Fatalf("the configuration has no %q", tt.from)
			}
			found, _ := differences(t, plan, strings.ReplaceAll(text, tt.from, tt.to))
			if len(found) == 0 || len(found) > 1 && !tt.many {
				t.Errorf("found %q", found)
			}
			if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, tt.want) }) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}

// filterOf cuts a filter out of the chain: from its name to the empty line.
func filterOf(t *testing.T, text, name string) (filter, rest string) {
	t.Helper()
	begin := strings.Index(text, "          - name: "+name+"\n")
	if begin < 0 {
		t.Fatalf("there is no filter %s", name)
	}
	end := begin + strings.Index(text[begin:], "\n\n") + 1
	return text[begin:end], text[:begin] + text[end:]
}

func TestOrder(t *testing.T) {
	t.Parallel()
	plan := planOf(t)
	text := printed(t, plan, envoyfile.Static)
	authz, _ := filterOf(t, text, "envoy.filters.http.ext_authz")
	p, withoutProc := filterOf(t, text, "envoy.filters.http.ext_proc")
	_, withoutAuthz := filterOf(t, text, "envoy.filters.http.ext_authz")
	guard, withoutGuard := filterOf(t, text, "ordergate.guard")
	buffer, withoutBuffer := filterOf(t, text, "envoy.filters.http.buffer")
	_, neither := filterOf(t, withoutProc, "envoy.filters.http.ext_authz")
	const router = "          - name: envoy.filters.http.router\n"
	for name, tt := range map[string]struct{ text, want string }{
		"ext_proc first":      {strings.Replace(withoutProc, authz, p+authz, 1), "ext_authz stands behind ext_proc"},
		"no ext_proc":         {withoutProc, "ext_proc of ordergate is missing"},
		"no ext_authz":        {withoutAuthz, "ext_authz of ordergate is missing"},
		"neither":             {neither, "no listener has ordergate's filters"},
		"guard in front":      {strings.Replace(withoutGuard, p, guard+p, 1), "nothing behind ext_proc refuses"},
		"buffer behind":       {strings.Replace(withoutBuffer, router, buffer+router, 1), "buffer stands behind"},
		"two listeners":       {second(text, neither), "listener second: it leads to the cluster backend-"},
		"HTTP/3":              {http3(text, "false"), ""},
		"HTTP/3, early data":  {strings.Replace(http3(text, "false"), "enable_early_data: false,", "", 1), "listener second: enable_early_data is not false"},
		"HTTP/3, the default": {http3(text, "null"), "listener second: enable_early_data is not false"},
		"HTTP/3, streams":     {strings.Replace(http3(text, "false"), "max_concurrent_streams: 100,", "", 1), "listener second: quic_protocol_options.max_concurrent_streams"},
		"HTTP/3, no buffer":   {strings.Replace(http3(text, "false"), "name: envoy.filters.http.buffer", "name: envoy.filters.http.buffer\n            disabled: true", 2), "the filter buffer is disabled for"},
		"swapped sockets":     {strings.NewReplacer("/run/proc.sock", "/run/authz.sock", "/run/authz.sock", "/run/proc.sock").Replace(text), ""}, // both serve both
		"another's ext_authz": {strings.Replace(text, "          - name: envoy.filters.http.buffer\n", strings.Replace(strings.Replace(authz, "ordergate-authz", "login", 1), "failure_mode_allow: true", "failure_mode_allow: false", 1)+"\n          - name: envoy.filters.http.buffer\n", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, _ := differences(t, plan, tt.text)
			if tt.want == "" && len(found) > 0 || tt.want != "" && (len(found) == 0 || !strings.Contains(found[0], tt.want)) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}

// second adds the listener of another configuration.
func second(text, from string) string {
	begin, end := strings.Index(from, "  - name: orders\n"), strings.Index(from, "\n  clusters:\n")
	listener := strings.NewReplacer("  - name: orders\n", "  - name: second\n", "port_value: 10000", "port_value: 10001").Replace(from[begin:end])
	return strings.Replace(text, "\n  clusters:\n", "\n"+listener+"\n  clusters:\n", 1)
}

// http3 adds a listener of HTTP/3, with what it says about early data.
func http3(text, early string) string {
	added := second(text, strings.NewReplacer(
		"  - name: orders\n    address: { socket_address: {", `  - name: orders
    udp_listener_config: { quic_options: { quic_protocol_options: { max_concurrent_streams: 100, initial_stream_window_size: 262144, initial_connection_window_size: 1048576 } } }
    address: { socket_address: { protocol: UDP,`,
		"    - filters:\n", `    - transport_socket: { name: quic, typed_config: { "@type": type.googleapis.com/envoy.extensions.transport_sockets.quic.v3.QuicDownstreamTransport, enable_early_data: `+early+`, downstream_tls_context: {} } }
      filters:
`,
		"          stat_prefix: orders\n", "          stat_prefix: orders\n          codec_type: HTTP3\n",
	).Replace(text))
	return added
}

// dumpOf writes a bootstrap as a /config_dump does.
func dumpOf(t testing.TB, text string, rds bool) string {
	t.Helper()
	var b map[string]any
	if err := yaml.Unmarshal([]byte(text), &b); err != nil {
		t.Fatal(err)
	}
	static := b["static_resources"].(map[string]any)
	var listeners, clusters, routes []any
	for _, l := range static["listeners"].([]any) {
		if rds {
			hcm := l.(map[string]any)["filter_chains"].([]any)[0].(map[string]any)["filters"].([]any)[0].(map[string]any)["typed_config"].(map[string]any)
			routes = append(routes, map[string]any{"route_config": hcm["route_config"]})
			hcm["rds"] = map[string]any{"route_config_name": "orders", "config_source": map[string]any{"ads": map[string]any{}}}
			delete(hcm, "route_config")
		}
		listeners = append(listeners, map[string]any{"name": "x", "active_state": map[string]any{"version_info": "1", "listener": l}, "draining_state": map[string]any{"listener": map[string]any{"name": "gone"}}})
	}
	for _, c := range static["clusters"].([]any) {
		clusters = append(clusters, map[string]any{"version_info": "1", "cluster": c})
	}
	const admin = "type.googleapis.com/envoy.admin.v3."
	dump := map[string]any{"configs": []any{
		map[string]any{"@type": admin + "BootstrapConfigDump", "bootstrap": b},
		map[string]any{"@type": admin + "ClustersConfigDump", "dynamic_active_clusters": clusters},
		map[string]any{"@type": admin + "ListenersConfigDump", "dynamic_listeners": listeners},
		map[string]any{"@type": admin + "RoutesConfigDump", "dynamic_route_configs": routes},
		map[string]any{"@type": admin + "SecretsConfigDump", "static_secrets": []any{map[string]any{"name": "s"}}},
	}}
	data, err := json.Marshal(dump)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestMeaning has configurations that mean the same.
func TestMeaning(t *testing.T) {
	t.Parallel()
	plan := planOf(t)
	text := printed(t, plan, envoyfile.Static)
	inRedis := planOf(t, "filters: {orders: {}}", "filters: {orders: {kind: redis-bloom}}")
	bothFilters := printed(t, inRedis, envoyfile.Static)
	if strings.Contains(bothFilters, "x-ordergate-authz") || strings.Contains(bothFilters, "ordergate.guard") {
		t.Errorf("ext_authz is off where Redis is asked:\n%s", bothFilters)
	}
	if found, _ := differences(t, inRedis, text); len(found) == 0 || !strings.Contains(found[0], ", which may ask Redis or a table first") {
		t.Errorf("found %q", found)
	}
	for name, same := range map[string]string{
		"dump":            dumpOf(t, text, false),
		"dump with RDS":   dumpOf(t, text, true),
		"other spellings": strings.NewReplacer("normalize_path: true", "normalizePath: true", "message_timeout: 5s", "messageTimeout: 5.000s", "timeout: 0.5s", "timeout: 0.500s", "REJECT_REQUEST\n", "REJECT_REQUEST\n", "max_connections: 20", "maxConnections: 20").Replace(text),
		"module":          printed(t, plan, envoyfile.Module),
		"both filters":    bothFilters,
		"off by the route": strings.Replace(strings.NewReplacer(authzOff, strings.TrimPrefix(authzOff, "            disabled: true\n"), told, "").Replace(text), `domains: ["*"]`, `domains: ["*"]
              typed_per_filter_config:
                envoy.filters.http.ext_authz: { "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute, disabled: true }
                envoy.filters.http.ext_proc: { "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute, overrides: { grpc_initial_metadata: [{ key: x-ordergate-authz, value: "off" }] } }`, 1),
		"attempts in a header": strings.Replace(strings.Replace(text, "              - upstream.request_attempt_count\n", "", 1),
			`domains: ["*"]`, "include_attempt_count_in_response: true\n              domains: [\"*\"]", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found, _ := differences(t, plan, same); len(found) > 0 {
				t.Errorf("found %q", found)
			}
		})
	}
	if found, _ := differences(t, plan, dumpOf(t, strings.Replace(text, "allow_mode_override: true", "allow_mode_override: false", 1), true)); len(found) != 1 {
		t.Errorf("in a dump: found %q", found)
	}
}

// TestUnreadable has inputs that are no configurations of Envoy.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	text := printed(t, planOf(t), envoyfile.Static)
	for name, tt := range map[string]struct{ text, want string }{
		"empty":       {" \n", "empty"},
		"gzipped":     {"\x1f\x8b", "gzipped"},
		"a login":     {"<!DOCTYPE html><title>Login</title>", "login"},
		"no YAML":     {"a: [", "neither JSON nor YAML"},
		"a list":      {"- a", "neither JSON nor YAML"},
		"truncated":   {dumpOf(t, text, true)[:10000], "truncated"},
		"another":     {"rules: []", "no listeners"},
		"API v2":      {strings.ReplaceAll(text, "envoy.extensions.filters.network.http_connection_manager.v3", "envoy.config.filter.network.http_connection_manager.v2"), "API v2"},
		"dump of v2":  {`{"configs":[{"@type":"type.googleapis.com/envoy.admin.v2alpha.ListenersConfigDump","dynamic_active_listeners":[]}]}`, "API v2"},
		"v2, untyped": {`{"static_resources":{"listeners":[{"filter_chains":[{"filters":[{"name":"envoy.http_connection_manager","config":{"http_filters":[]}}]}]}]}}`, "API v2"},
		"no type":     {`{"configs":[{"@type":7}]}`, "a type is no text"},
		"wrong types": {`{"static_resources":{"listeners":[{"name":7}]}}`, "a Listener cannot be read"},
		"wrong lists": {`{"configs":{"a":1}}`, "no list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := envoycheck.Read(strings.NewReader(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

// TestUnknown has filters and settings that are not known.
func TestUnknown(t *testing.T) {
	t.Parallel()
	plan := planOf(t)
	text := printed(t, plan, envoyfile.Static)
	found, notes := differences(t, plan, strings.Replace(text, "          - name: envoy.filters.http.router\n",
		"          - { name: own, typed_config: { \"@type\": type.googleapis.com/example.filters.http.own.v3.Own, level: 3 } }\n          - name: envoy.filters.http.router\n", 1))
	if len(found) > 0 || len(notes) != 1 || !strings.Contains(notes[0], "example.filters.http.own.v3.Own") {
		t.Errorf("found %q, notes %q", found, notes)
	}
}

// TestLarge reads a dump of other services, of 5 MB or with SOAK=1 of 50 MB, and keeps little of it.
func TestLarge(t *testing.T) {
	t.Parallel()
	clusters := 5_000
	if os.Getenv("SOAK") != "" {
		clusters = 50_000
	}
	plan := planOf(t)
	dump := dumpOf(t, printed(t, plan, envoyfile.Static), true)
	begin := strings.Index(dump, `"dynamic_active_clusters":[`) + len(`"dynamic_active_clusters":[`)
	other := `{"version_info":"1","cluster":{"name":"other","type":"EDS","metadata":{"filter_metadata":{"a":{"b":"` + strings.Repeat("x", 1000) + `"}}}}},`
	in := io.MultiReader(strings.NewReader(dump[:begin]), strings.NewReader(strings.Repeat(other, clusters)), strings.NewReader(dump[begin:]))
	s, err := envoycheck.Read(in)
	if err != nil {
		t.Fatal(err)
	}
	if findings, _ := envoycheck.Check(plan, 0, s); len(findings) > 0 {
		t.Errorf("found %v", findings)
	}
}
