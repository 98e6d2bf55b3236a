package envoyfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/config"
	"github.com/ordergate/ordergate/internal/attach"
	"github.com/ordergate/ordergate/internal/envoyfile"
)

// printed prints the configuration of a target for a file's text.
func printed(t *testing.T, text string, change func(*envoyfile.Options)) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := config.LoadEffective(path, config.Options{Getenv: func(string) string { return "" }, WithoutDSN: true})
	if err != nil {
		t.Fatal(err)
	}
	c := e.Config
	plan, err := attach.Of(c, 0)
	if err != nil {
		return "", err
	}
	o := envoyfile.Options{
		Target: envoyfile.Static, Command: "ordergate envoy", File: "ordergate.yaml",
		Listen: "127.0.0.1:10000", Admin: "127.0.0.1:9901", Backend: "127.0.0.1:8080", Connections: 32,
	}
	if change != nil {
		change(&o)
	}
	var out strings.Builder
	err = envoyfile.Write(&out, plan, o)
	return out.String(), err
}

const (
	lookup  = "  - {name: look, match: {methods: [GET, HEAD], path: \"/orders/{id}\"}, id: {path: id}, lookup: {filter: orders}}\n"
	settles = "  - {name: settle, match: {methods: [POST], path: \"/orders/{id}/settle\"}, id: {path: id}, settle: {lock: l}}\n"
	filters = "redis: {}\nfilters: {orders: {}}\nlocks: {l: {}}\n"
	rules   = filters + "rules:\n"
)

// files are configurations of several kinds, and what has to be printed for them, and what not.
var files = map[string]struct {
	text         string
	change       func(*envoyfile.Options)
	want, unwant []string
}{
	"lookups": {
		rules + lookup, nil,
		[]string{"name: envoy.filters.http.ext_authz", "name: ordergate.answers", "port_value: 9191", "port_value: 9192"},
		[]string{"name: envoy.filters.http.ext_proc\n            typed", "local_ratelimit", "ExtProcPerRoute"},
	},
	"lookups without ext_proc": {
		"listen: {proc: \"\"}\n" + rules + lookup, nil,
		[]string{"name: envoy.filters.http.ext_authz", "port_value: 9191"}, []string{"ordergate.answers", "ordergate-proc"},
	},
	"an ID in a header": {
		rules + "  - {name: look, match: {methods: [GET], path: /order}, id: {header: X-Order-Id}, lookup: {filter: orders}}\n", nil,
		[]string{`response.code_details, "request.headers['x-order-id']"]`}, nil,
	},
	"an ID in the body of a read": {
		rules + "  - {name: look, match: {methods: [GET], path: /order}, id: {json: id, max_body: 200000}, lookup: {filter: orders}}\n", nil,
		[]string{`regex: "(?i)/+(order).*"`, "name: envoy.filters.http.ext_proc\n", "max_request_bytes: 800000", "per_connection_buffer_limit_bytes: 800000"}, nil,
	},
	"settlements": {
		rules + settles, nil,
		[]string{`regex: "/orders/[^/]+/settle"`, "message_timeout: 3s", "ExtProcPerRoute"}, []string{"ordergate.answers", "writes-by-get"},
	},
	"one filter for each request": {
		rules + lookup + settles, nil,
		[]string{"ext_authz or ext_proc", `initial_metadata: [{ key: x-ordergate-authz, value: "off" }]`, "name: ordergate.guard", "check_settings: {}", "[ordergate, ordergate.guard]"}, nil,
	},
	"a create that asks a table": {
		strings.Replace(rules, "filters: {orders: {}}", "filters: {orders: {sources: [s]}}\nsources: {s: {kind: mysql, dsn_env: D, table: o, id_column: i}}", 1) + settles +
			"  - {name: make, match: {methods: [POST], path: /orders}, id: {header: x-order-id}, create: {filter: orders, learn: {response_json: id}, dedup: {confirm: s}}}\n", nil,
		[]string{"ext_authz -> ext_proc"}, []string{"x-ordergate-authz", "ordergate.guard", "check_settings"},
	},
	"a settlement that asks Redis": {
		strings.Replace(rules, "{orders: {}}", "{orders: {kind: redis-bitmap}}", 1) + strings.Replace(settles, "settle: {", "lookup: {filter: orders}, settle: {", 1), nil,
		[]string{"ext_authz -> ext_proc"}, []string{"x-ordergate-authz"},
	},
	"reads that ask Redis": {
		strings.Replace(rules, "{orders: {}}", "{orders: {kind: redis-bitmap}}", 1) + lookup + settles, nil, []string{"x-ordergate-authz"}, nil,
	},
	"a settlement by a link": {
		rules + lookup + "  - {name: pay, match: {methods: [GET], path: \"/orders/{id}/pay.do\"}, id: {path: id}, settle: {lock: l}}\n", nil,
		[]string{`regex: "(?i)/+(orders[^/]*/+[^/]+/+pay\\.do).*"`, "name: writes-by-get"}, []string{"- name: settlements"},
	},
	"two front controllers": {
		rules + "  - {name: a, match: {methods: [GET], path: /index.php, query: {route: [pay/cod.confirm, x]}}, id: {query: id}, settle: {lock: l}}\n" +
			"  - {name: b, match: {methods: [GET, POST], path: /index.php, query: {do: pay}}, id: {query: id}, settle: {lock: l}}\n", nil,
		[]string{`regex: "(?i).*(pay.*cod.*confirm|x).*"`, "name: writes-by-get-2", `name: do, string_match: { safe_regex: { regex: "(?i).*(pay).*" } }`, `regex: "pay"`}, nil,
	},
	"long waits": {
		filters[:len(filters)-len("locks: {l: {}}\n")] + "locks: {l: {lease: 90s, wait: {up_to: 40s}}}\nrules:\n" + settles, nil,
		[]string{"message_timeout: 47s", "request_timeout: 62s", "timeout: 72s", "stream_idle_timeout: 144s"}, nil,
	},
	"sockets, a host, IPv6": {
		"listen: {authz: \"unix:/run/a b/authz.sock\", proc: \"0.0.0.0:9192\", insecure: true}\n" + rules + settles,
		func(o *envoyfile.Options) { o.Backend, o.Listen = "shop.internal:80", "[::]:443" },
		[]string{`pipe: { path: "/run/a b/authz.sock" }`, "address: 127.0.0.1, port_value: 9192", "type: STRICT_DNS", "address: shop.internal, port_value: 80", `address: "::", port_value: 443`}, nil,
	},
	"Envoy 1.37": {rules + lookup, func(o *envoyfile.Options) { o.Envoy = "1.37" }, []string{"HttpResponseHeaderMatchInput"}, []string{"HttpResponseLocalReplyMatchInput"}},
	"gRPC": {
		rules + "  - {name: settle, match: {methods: [POST], path: /shop.Orders/Settle}, id: {header: x-order-id}, settle: {lock: l}}\n", nil,
		[]string{"max_requests: 20", "http2_protocol_options: {} }"}, nil,
	},
	"module": {
		rules + lookup + "  - {name: pay, match: {methods: [GET], path: /pay}, id: {query: id}, settle: {lock: l}}\n", func(o *envoyfile.Options) { o.Target = envoyfile.Module },
		[]string{"filter_name: ordergate", "value: ordergate.yaml", "name: writes-by-get"}, []string{"filters.http.ext_authz", "filters.http.ext_proc", "9191", "9192"},
	},
}

func TestFiles(t *testing.T) {
	t.Parallel()
	for name, tt := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := printed(t, tt.text, tt.change)
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range tt.want {
				if !strings.Contains(text, w) {
					t.Errorf("it has no %q", w)
				}
			}
			for _, w := range tt.unwant {
				if strings.Contains(text, w) {
					t.Errorf("it has %q", w)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
			for i, l := range strings.Split(text, "\n") {
				if strings.TrimRight(l, " ") != l {
					t.Errorf("line %d ends with a space: %q", i+1, l)
				}
			}
			if strings.Contains(text, "\n\n\n") {
				t.Error("it has two empty lines")
			}
		})
	}
}

// TestUnfit has files and options for which no configuration fits.
func TestUnfit(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text   string
		change func(*envoyfile.Options)
		want   string
	}{
		"no rules":         {filters, nil, "no rule of the file needs ordergate"},
		"only passes":      {rules + "  - {name: p, match: {methods: [GET], path: /p}, pass: true}\n", nil, "no rule of the file needs ordergate"},
		"no address":       {"listen: {authz: \"\", http: 127.0.0.1:9193}\n" + rules + lookup, nil, "listen.authz has no address"},
		"any port":         {"listen: {proc: 127.0.0.1:0}\n" + rules + settles, nil, "listen.proc: 127.0.0.1:0 is any free port"},
		"a backend's path": {rules + settles, func(o *envoyfile.Options) { o.Backend = "http://shop/" }, "--backend: "},
		"injected YAML":    {rules + settles, func(o *envoyfile.Options) { o.Backend = "a }, x: {:80" }, "--backend: "},
		"a cookie of Envoy Gateway": {
			rules + "  - {name: look, match: {methods: [GET], path: /order}, id: {cookie: ORDER}, lookup: {filter: orders}}\n",
			func(o *envoyfile.Options) { o.Target = envoyfile.EnvoyGateway }, "rule look has its ID in a header or a cookie",
		},
		"long paths of Envoy Gateway": {
			rules + "  - {name: pay, match: {methods: [GET], path: \"/{id}/" + strings.Repeat("b", 1100) + "\"}, id: {path: id}, settle: {lock: l}}\n",
			func(o *envoyfile.Options) { o.Target = envoyfile.EnvoyGateway }, "rules pay have more paths",
		},
		"a short max_hold": {rules + strings.Replace(settles, "lock: l}", "lock: l, max_hold: 10s}", 1), nil, "rule settle ends calls after 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text, err := printed(t, tt.text, tt.change); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q\n%s", err, tt.want, text)
			}
		})
	}
}

// TestTimes has the backend's time fit the hold of the locks.
func TestTimes(t *testing.T) {
	t.Parallel()
	c, err := config.Load(fileOf(t, filters[:len(filters)-len("locks: {l: {}}\n")]+"locks: {l: {on_unknown_outcome: {hold: 20s}}}\nrules:\n"+settles), func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	plan, err := attach.Of(c, 0)
	if err != nil || plan.Times.Backend != 16*time.Second {
		t.Errorf("the backend has %v, %v", plan.Times.Backend, err)
	}
	if _, err := attach.Of(c, 20*time.Second); err == nil || !strings.Contains(err.Error(), "longer hold than the 20s of rule settle") {
		t.Error(err)
	}
}

func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ordergate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProxies prints the configurations of other proxies.
func TestProxies(t *testing.T) {
	t.Parallel()
	text := rules + lookup + settles +
		"  - {name: pay, match: {methods: [GET], path: \"/pay/{id}\"}, id: {path: id}, settle: {lock: l}}\n" +
		"  - {name: front, match: {methods: [GET], path: /index.php, query: {route: pay/cod.confirm}}, id: {query: id}, settle: {lock: l}}\n"
	for target, want := range map[string][]string{
		envoyfile.Nginx:        {"#   settle (POST /orders/{id}/settle)\n", "map $arg_route $orders", "~^(?i)/+(pay[^/]*/+[^/]+).*$"},
		envoyfile.Caddy:        {"#   settle (POST", "forward_auth 127.0.0.1:9193", "reverse_proxy 127.0.0.1:10000"},
		envoyfile.Traefik:      {"#   settle (POST", "address: http://127.0.0.1:9193/check/forward-auth", "QueryRegexp(`route`"},
		envoyfile.APISIX:       {"#   settle (POST", "allow_degradation: true", `"arg_route", "~~"`},
		envoyfile.EnvoyGateway: {"encode_raw_headers of ext_authz", "messageTimeout: 3s", "ip: { address: 127.0.0.1, port: 9192 }", "writableNamespaces: [ordergate]", "maxConnections: 6,", "{ method: HEAD, queryParams: ["},
		envoyfile.Istio: {
			"namespace: istio-system", "name: ordergate-proc", "message_timeout: 3s", "#     envoyExtAuthzGrpc:\n", "provider: { name: ordergate }", `queryParams: { "route": {`,
			"endpoints: [{ address: 127.0.0.1, ports: { grpc: 9191 } }]", "host: orders # your Service\n",
		},
		envoyfile.Higress: {"namespace: higress-system", "name: ordergate-authz", "app: higress-gateway"},
	} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			out, err := printed(t, text, func(o *envoyfile.Options) { o.Target, o.Behind = target, "127.0.0.1:10000" })
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("it has no %q:\n%s", w, out)
				}
			}
			if target == envoyfile.Nginx || target == envoyfile.Caddy {
				return
			}
			for d := yaml.NewDecoder(strings.NewReader(out)); ; {
				var one map[string]any
				if err := d.Decode(&one); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	if _, err := printed(t, "listen: {http: \"unix:/run/http.sock\"}\n"+text, func(o *envoyfile.Options) { o.Target, o.Behind = envoyfile.Caddy, "127.0.0.1:10000" }); err == nil || !strings.Contains(err.Error(), "listen.http is a socket") {
		t.Error(err)
	}
}
