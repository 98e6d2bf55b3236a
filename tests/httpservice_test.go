package tests

import (
	"os"
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
