package tests

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/tests/testbed"
)

// httpEnvoy is an Envoy that asks over HTTP. The filter's configuration comes
// from the documentation.
const httpEnvoy = `
static_resources:
  listeners:
  - name: orders
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: orders
          http_filters:
          - name: envoy.filters.http.ext_authz
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz
FILTER
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: orders
              domains: ["*"]
              routes: [{match: {prefix: /}, route: {cluster: backend}}]
  clusters:
  - name: backend
    load_assignment:
      cluster_name: backend
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: BACKEND}}}}]}]
  - name: ordergate-http
    load_assignment:
      cluster_name: ordergate-http
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: GATE}}}}]}]
`

var yamlFence = regexp.MustCompile("(?s)```yaml\n(http_service:.*?)```")

// documentedFilter returns the part of the filter that docs/http.md shows,
// indented to its place.
func documentedFilter(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "http.md"))
	must(t, err)
	m := yamlFence.FindSubmatch(text)
	if m == nil {
		t.Fatal("docs/http.md shows no http_service")
	}
	return "              " + strings.ReplaceAll(strings.TrimSpace(string(m[1])), "\n", "\n              ")
}

// portOf returns the port of "host:port".
func portOf(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// TestEnvoyOverHTTP has Envoy ask as docs/http.md shows.
func TestEnvoyOverHTTP(t *testing.T) {
	t.Parallel()
	s := newHTTPStack(t)
	s.envoy = s.Envoy(substitute(t, httpEnvoy,
		"FILTER", documentedFilter(t, s.Root()), "BACKEND", portOf(s.reads.addr()), "GATE", portOf(s.http)))
	s.url = "http://" + s.ListenerAddr(s.envoy, "orders")

	a := s.must("GET", "/orders/77?x=1", "")
	a.want(t, 404, "absent")
	contentType := "application/json"
	if testbed.EnvoyIs("1.37") { // docs/compatibility.md
		contentType = "text/plain"
	}
	if a.body != `{"error":"order not found"}` || a.header.Get("Content-Type") != contentType {
		t.Errorf("answered %q of type %q", a.body, a.header.Get("Content-Type"))
	}
	s.must("HEAD", "/orders/77", "").want(t, 404, "absent")
	s.must("GET", "/orders/77", "", "X-Original-URI", "/orders/5", "X-Forwarded-Uri", "/orders/5").want(t, 404, "absent")
	s.must("GET", "/orders/042", "").want(t, 400, "invalid")
	s.must("POST", "/orders/x/settle", "body").want(t, 400, "invalid")
	if n := len(s.reads.seen()); n != 0 {
		t.Errorf("%d of them reached the backend", n)
	}

	for _, request := range []struct{ method, path, verdict string }{
		{"GET", "/orders/5?a=%2F", "maybe"},
		{"GET", "/elsewhere", ""},
	} {
		s.must(request.method, request.path, "").want(t, 200, "")
		got := s.reads.seen()[len(s.reads.seen())-1]
		if v := got.Header.Get("x-ordergate-verdict"); v != request.verdict || got.RequestURI != request.path {
			t.Errorf("the backend was asked for %q with verdict %q, want %q with %q", got.RequestURI, v, request.path, request.verdict)
		}
	}
	if line := `ordergate_decisions_total{action="lookup",mode="enforce",rule="order-lookup",verdict="absent"}`; s.metric(line) != "3" {
		t.Errorf("%s is %s, want 3", line, s.metric(line))
	}

	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
	s.wantLogged("level=WARN", "pass listen.http, and none reaches ext_proc", "rule=commission-settle", "do=", "see=")

	s.gate.Kill()
	s.must("GET", "/orders/77", "").want(t, 200, "")
}

// TestTraefikExample asks as Traefik does, at the address of the example, which
// must not let clients say what they ask for.
func TestTraefikExample(t *testing.T) {
	t.Parallel()
	s := newHTTPStack(t)
	s.awaitRefusals()
	text, err := os.ReadFile(filepath.Join(s.Root(), "examples", "traefik", "dynamic.yaml"))
	must(t, err)
	var example struct {
		HTTP struct {
			Middlewares struct {
				Ordergate struct {
					ForwardAuth struct {
						Address             string   `yaml:"address"`
						TrustForwardHeader  *bool    `yaml:"trustForwardHeader"`
						AuthResponseHeaders []string `yaml:"authResponseHeaders"`
					} `yaml:"forwardAuth"`
				} `yaml:"ordergate"`
			} `yaml:"middlewares"`
		} `yaml:"http"`
	}
	must(t, yaml.Unmarshal(text, &example))
	auth := example.HTTP.Middlewares.Ordergate.ForwardAuth
	if auth.TrustForwardHeader == nil || *auth.TrustForwardHeader {
		t.Error("the example trusts the client's X-Forwarded headers")
	}
	if got := strings.Join(auth.AuthResponseHeaders, " "); got != "x-ordergate-verdict x-ordergate-key x-ordergate-fence x-ordergate-lease x-original-url x-rewrite-url" {
		t.Errorf("authResponseHeaders are %q", got)
	}
	for uri, want := range map[string]struct {
		status        int
		verdict, body string
	}{
		"/orders/77":  {404, "absent", `{"error":"order not found"}`},
		"/orders/042": {400, "invalid", `{"error":"the order ID is malformed","part":"id"}`},
		"/orders/5":   {200, "maybe", ""},
	} {
		a := s.forwardAuth(substitute(t, auth.Address, "127.0.0.1:9193", s.http), uri)
		a.want(t, want.status, want.verdict)
		if a.body != want.body {
			t.Errorf("%s: body %q, want %q", uri, a.body, want.body)
		}
	}
}

// forwardAuth is what APISIX's plugin of that name is configured with.
type forwardAuth struct {
	URI             string
	RequestHeaders  []string `yaml:"request_headers"`
	UpstreamHeaders []string `yaml:"upstream_headers"`
	ClientHeaders   []string `yaml:"client_headers"`
	Degradation     bool     `yaml:"allow_degradation"`
}

// subrequest asks about a GET as the plugin of APISIX 3 does: with five headers of its own, and of the
// client's those that request_headers names, the first value of each.
func (f forwardAuth) subrequest(s *httpStack, uri string, header http.Header) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", f.URI, nil)
	must(s.t, err)
	req.Header = http.Header{
		"X-Forwarded-Proto": {"http"}, "X-Forwarded-Method": {"GET"}, "X-Forwarded-Host": {"shop"}, "X-Forwarded-Uri": {uri}, "X-Forwarded-For": {"192.0.2.1"},
		"User-Agent": {"lua-resty-http/0.17.2 (Lua) ngx_lua/10028"},
	}
	for _, name := range f.RequestHeaders {
		if v := header.Get(name); v != "" && req.Header.Get(name) == "" {
			req.Header.Set(name, v)
		}
	}
	resp, err := client.Do(req)
	must(s.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(s.t, err)
	a := answerOf(resp, body)
	passed := f.ClientHeaders
	if a.status < 300 {
		passed = f.UpstreamHeaders
	}
	a.header = http.Header{}
	for _, name := range passed {
		a.header[http.CanonicalHeaderKey(name)] = resp.Header.Values(name)
	}
	a.verdict = a.header.Get("x-ordergate-verdict")
	return a
}

// TestAPISIX replays the sub-requests of APISIX, with what is printed for it.
func TestAPISIX(t *testing.T) {
	needsSidecar(t, "it asks ordergate over HTTP")
	t.Parallel()
	const byHeader = "  - {name: by-header, match: {methods: [GET], path: /order}, id: {header: X-Order-Id, format: digits}, lookup: {filter: orders}}\n" +
		"  - {name: by-cookie, match: {methods: [GET], path: /mine}, id: {cookie: ORDER, format: digits}, lookup: {filter: orders}}\n"
	s := newHTTPStack(t, edit(t, "rules:\n", "rules:\n"+byHeader))
	s.awaitRefusals()
	cmd := exec.CommandContext(t.Context(), s.Build("./cmd/sidecar", false), "envoy", "--config", s.gate.ConfigFile(), "--for", "apisix")
	cmd.Env = append(cmd.Environ(), "ORDERGATE_LISTEN_HTTP="+s.http)
	text, err := cmd.Output()
	must(t, err)
	var file struct {
		Routes []struct {
			ID      string
			Plugins struct {
				Auth forwardAuth `yaml:"forward-auth"`
			}
		}
	}
	must(t, yaml.Unmarshal(text, &file))
	var auth forwardAuth
	for _, r := range file.Routes {
		if r.ID == "reads" {
			auth = r.Plugins.Auth
		} else if r.Plugins.Auth.URI != "" {
			t.Errorf("route %s asks, too", r.ID)
		}
	}
	if !auth.Degradation {
		t.Error("without ordergate, lookups do not go on")
	}
	for _, tt := range []struct {
		uri, header, value, verdict string
		status                      int
	}{
		{"/orders/5", "", "", "maybe", 200},
		{"/orders/5?a=%2F", "X-Forwarded-Uri", "/orders/77", "maybe", 200},
		{"/elsewhere", "", "", "", 200},
		{"/orders/77", "", "", "absent", 404},
		{"/orders/77", "X-Forwarded-Uri", "/orders/5", "absent", 404},
		{"/orders/042", "", "", "invalid", 400},
		{"/orders/5%2f6", "", "", "invalid", 400},
		{"/order", "X-Order-Id", "5", "maybe", 200},
		{"/order", "X-Order-Id", "77", "absent", 404},
		{"/mine", "Cookie", "a=b; ORDER=77", "absent", 404},
	} {
		a := auth.subrequest(s, tt.uri, http.Header{tt.header: {tt.value}})
		a.want(t, tt.status, tt.verdict)
		if tt.status >= 300 && a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: an answer of type %q", tt.uri, a.header.Get("Content-Type"))
		}
	}
}
