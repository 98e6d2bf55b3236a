// Package istio applies what "ordergate envoy --for istio" and "--for higress" print by Istio's own
// code, and runs the real Envoy with the listener that comes of it.
package istio

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	meshconfig "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/networking/core"
	"istio.io/istio/pkg/config/mesh"
)

// chainOrder is that of ordergate's filters; the first one is the first of all.
var chainOrder = []string{
	"envoy.filters.http.buffer", "envoy.filters.http.ext_authz", "envoy.filters.http.ext_proc", "ordergate.answers", "envoy.filters.http.router",
}

// open is what the printed text says is open, as "ordergate envoy --check" reports it; of Istio, and more of
// Higress, whose routes have other owners.
var open = map[string][]string{
	"istio": {
		"there is no access log", "route writes-by-get: no limit for each client on GET of rule pay-by-link", "route writes: no limit for each client on POST of rule commission-settle", "lookups and writes share the cluster",
		"http.max_requests_per_io_cycle is not 1", "no resource monitor bounds the connections", "no resource monitor bounds the memory",
	},
	"higress": {
		"there is no access log", "no limit for each client on GET of rule pay-by-link", "no limit for each client on POST of rule commission-settle", "lookups and writes share the cluster",
		"http.max_requests_per_io_cycle is not 1", "no resource monitor bounds the connections", "no resource monitor bounds the memory",
		"it has no timeout for GET of rule order-lookup", "it has no timeout for HEAD", "it has no timeout for GET of rule pay-by-link", "it has no timeout for POST of rule order-create", "it has no timeout for POST of rule commission-settle",
	},
}

const backendHost = "orders.shop.svc.cluster.local"

// around is what a mesh has beside the printed objects: a gateway, and the Service of the backend.
const around = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: { name: orders, namespace: NAMESPACE }
spec:
  selector: { istio: ingressgateway }
  servers: [{ hosts: ["*"], port: { number: 80, name: http, protocol: HTTP } }]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: { name: backend, namespace: NAMESPACE }
spec:
  hosts: [orders.shop.svc.cluster.local]
  ports: [{ number: 80, name: http, protocol: HTTP }]
  resolution: STATIC
  endpoints: [{ address: 127.0.0.1, ports: { http: BACKEND } }]
---
`

// ingress is the route that Higress makes of an Ingress.
const ingress = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: { name: orders, namespace: NAMESPACE }
spec:
  hosts: ["*"]
  gateways: [orders]
  http: [{ route: [{ destination: { host: orders.shop.svc.cluster.local, port: { number: 80 } } }], retries: { attempts: 0 } }]
---
`

func TestPatches(t *testing.T) {
	for name, half := range map[string]bool{"istio": true, "istio without the mesh's half": false, "higress": true} {
		t.Run(name, func(t *testing.T) {
			target, _, _ := strings.Cut(name, " ")
			b := newBed(t)
			printed := b.run("envoy", "--for", target, "--config", b.file, "--backend", backendHost+":80")
			namespace := target + "-system"
			text := strings.NewReplacer("NAMESPACE", namespace, "BACKEND", b.backendPort()).Replace(around)
			config := mesh.DefaultMeshConfig()
			if target == "higress" {
				text += strings.ReplaceAll(ingress, "NAMESPACE", namespace)
			} else if half {
				config = meshOf(t, printed)
			}
			config.RootNamespace = namespace
			generated := core.NewConfigGenTest(t, core.TestOptions{ConfigString: text + printed, MeshConfig: config})
			labels := map[string]string{"istio": "ingressgateway", "app": "higress-gateway"}
			proxy := generated.SetupProxy(&model.Proxy{
				Type: model.Router, ConfigNamespace: namespace, IPAddresses: []string{"127.0.0.1"}, Labels: labels,
				Metadata: &model.NodeMetadata{Namespace: namespace, Labels: labels, IstioVersion: "1.31.0"},
			})
			listeners := generated.Listeners(proxy)
			b.start(t, &bootstrap.Bootstrap_StaticResources{
				Listeners: b.inlined(t, half, listeners, generated.RoutesFromListeners(proxy, listeners)),
				Clusters:  b.static(generated.Clusters(proxy)),
			})
			if !half { // as the printed text says
				eventually(t, "all is refused", func() bool { return b.status("GET", "/orders/5") == "403" })
				return
			}
			b.requests(t, target)
		})
	}
}

// meshOf returns the mesh's configuration with the half that the printed text begins with.
func meshOf(t *testing.T, printed string) *meshconfig.MeshConfig {
	t.Helper()
	half := regexp.MustCompile(`(?m)^#   .*\n`).FindAllString(printed, -1)
	text := strings.ReplaceAll(strings.Join(half, ""), "#   ", "")
	config, err := mesh.ApplyMeshConfigDefaults(text)
	must(t, err)
	if len(config.ExtensionProviders) == 0 || config.ExtensionProviders[len(config.ExtensionProviders)-1].Name != "ordergate" {
		t.Fatalf("no provider ordergate in\n%s", text)
	}
	return config
}

// bed is a Redis, an ordergate, and a backend.
type bed struct {
	t       *testing.T
	root    string
	dir     string // of sockets and files
	binary  string
	file    string // ordergate.yaml
	gate    *exec.Cmd
	backend *httptest.Server
	fences  chan string // of the settlements that the backend got
	url     string
	admin   string // of Envoy
}

func newBed(t *testing.T) *bed {
	t.Helper()
	root, err := filepath.Abs("../..")
	must(t, err)
	dir, err := os.MkdirTemp("", "istio-") // short: a socket's path is
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bed{t: t, root: root, dir: dir, binary: filepath.Join(dir, "ordergate"), file: filepath.Join(dir, "ordergate.yaml"), fences: make(chan string, 100)}
	build := exec.Command("go", "build", "-o", b.binary, "./cmd/sidecar")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	b.backend = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost || strings.HasPrefix(r.URL.Path, "/pay") {
			b.fences <- r.Header.Get("x-ordergate-fence")
		}
	}))
	t.Cleanup(b.backend.Close)

	b.process("redis-server", "--port", "0", "--unixsocket", dir+"/redis.sock", "--save", "", "--appendonly", "yes", "--dir", dir)
	must(t, os.WriteFile(dir+"/orders.csv", []byte("1\n5\n"), 0o600))
	text, err := os.ReadFile(filepath.Join(root, "examples/envoy/ordergate.yaml"))
	must(t, err)
	config := string(text)
	for from, to := range map[string]string{
		"/run/ordergate/": dir + "/", "127.0.0.1:9194": "unix:" + dir + "/admin.sock", "127.0.0.1:6379": "unix:" + dir + "/redis.sock",
		"    sources: [orders-db]": "    sources: [seed]", "  orders-db: {": "  seed: {kind: csv, path: " + dir + "/orders.csv} #",
	} {
		if !strings.Contains(config, from) {
			t.Fatalf("the example has no %q", from)
		}
		config = strings.ReplaceAll(config, from, to)
	}
	config += "\n  - name: pay-by-link\n    match: {methods: [GET], path: \"/pay/{id}\"}\n    id: {path: id, format: digits}\n    settle: {lock: settlement}\n"
	must(t, os.WriteFile(b.file, []byte(config), 0o600))
	eventually(t, "Redis", func() bool { _, err := os.Stat(dir + "/redis.sock"); return err == nil })
	b.gate = b.process(b.binary, "serve", "--config", b.file)
	eventually(t, "ordergate is ready", func() bool {
		return exec.Command(b.binary, "health", "--ready", "--config", b.file).Run() == nil
	})
	return b
}

// process starts a program, which ends with the test.
func (b *bed) process(name string, args ...string) *exec.Cmd {
	b.t.Helper()
	cmd := exec.Command(name, args...)
	log, err := os.Create(filepath.Join(b.dir, filepath.Base(name)+".log"))
	must(b.t, err)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(b.t, cmd.Start())
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && b.t.Failed() {
			b.t.Logf("%s:\n%s", name, text[max(0, len(text)-3000):])
		}
	})
	return cmd
}

func (b *bed) run(args ...string) string {
	b.t.Helper()
	out, err := exec.Command(b.binary, args...).CombinedOutput()
	if err != nil {
		b.t.Fatalf("ordergate %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (b *bed) backendPort() string { return b.backend.URL[strings.LastIndex(b.backend.URL, ":")+1:] }

// inlined puts the routes into the listeners, in place of the server of routes, and the listeners on a
// free port. Filters that only Istio's proxy has are left out.
func (b *bed) inlined(t *testing.T, whole bool, listeners []*listener.Listener, routes []*route.RouteConfiguration) []*listener.Listener {
	t.Helper()
	var kept []*listener.Listener
	for _, l := range listeners {
		for _, chain := range l.FilterChains {
			for _, filter := range chain.Filters {
				manager := &hcm.HttpConnectionManager{}
				if filter.GetTypedConfig().UnmarshalTo(manager) != nil {
					continue
				}
				i := slices.IndexFunc(routes, func(r *route.RouteConfiguration) bool { return r.Name == manager.GetRds().GetRouteConfigName() })
				if i < 0 {
					t.Fatalf("no routes %q", manager.GetRds().GetRouteConfigName())
				}
				var ours []string
				manager.HttpFilters = slices.DeleteFunc(manager.HttpFilters, func(f *hcm.HttpFilter) bool {
					if slices.Contains(chainOrder, f.Name) {
						ours = append(ours, f.Name)
					}
					return strings.HasPrefix(f.Name, "istio")
				})
				if whole && !slices.Equal(ours, chainOrder) || manager.HttpFilters[0].Name != chainOrder[0] {
					t.Errorf("the chain has %v, in the order %v", manager.HttpFilters, ours)
				}
				manager.RouteSpecifier = &hcm.HttpConnectionManager_RouteConfig{RouteConfig: routes[i]}
				typed, err := anypb.New(manager)
				must(t, err)
				filter.ConfigType = &listener.Filter_TypedConfig{TypedConfig: typed}
				kept = append(kept, l)
			}
		}
		b.url = "127.0.0.1:" + freePort(t)
		l.Address = address(b.url)
		l.AdditionalAddresses = nil
	}
	return kept
}

// static gives the clusters of the backend and of ordergate their endpoints, which a server of the
// mesh would send, and leaves out all others.
func (b *bed) static(clusters []*cluster.Cluster) (kept []*cluster.Cluster) {
	for _, c := range clusters {
		at := ""
		switch {
		case strings.Contains(c.Name, backendHost):
			at = "127.0.0.1:" + b.backendPort()
		case strings.Contains(c.Name, "ordergate.internal"):
			at = b.dir + "/authz.sock"
		case !strings.HasPrefix(c.Name, "ordergate-"):
			continue
		}
		if at != "" {
			c.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_STATIC}
			c.EdsClusterConfig = nil
			c.Filters = nil // of Istio's proxy
			c.LoadAssignment = &endpoint.ClusterLoadAssignment{ClusterName: c.Name, Endpoints: []*endpoint.LocalityLbEndpoints{{
				LbEndpoints: []*endpoint.LbEndpoint{{HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{Address: address(at)}}}},
			}}}
		}
		kept = append(kept, c)
	}
	return kept
}

func address(at string) *corev3.Address {
	if strings.HasPrefix(at, "/") {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: at}}}
	}
	host, port, _ := net.SplitHostPort(at)
	var number uint32
	_, _ = fmt.Sscan(port, &number)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: number},
	}}}
}

// start runs the real Envoy.
func (b *bed) start(t *testing.T, resources *bootstrap.Bootstrap_StaticResources) {
	t.Helper()
	b.admin = "127.0.0.1:" + freePort(t)
	text, err := protojson.Marshal(&bootstrap.Bootstrap{
		Node:  &corev3.Node{Id: "gateway", Cluster: "gateway"},
		Admin: &bootstrap.Admin{Address: address(b.admin)}, StaticResources: resources,
	})
	must(t, err)
	file := b.dir + "/envoy.json"
	must(t, os.WriteFile(file, text, 0o600))
	envoy := filepath.Join(b.root, ".cache/bin/envoy")
	if out, err := exec.Command(envoy, "--mode", "validate", "-l", "error", "-c", file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, text)
	}
	b.process(envoy, "-l", "warning", "--use-dynamic-base-id", "-c", file)
}

// status sends a request, and returns the status and the verdict.
func (b *bed) status(method, path string, header ...string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+b.url+path, nil)
	must(b.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err.Error()
	}
	must(b.t, resp.Body.Close())
	return strings.TrimSpace(fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("x-ordergate-verdict")))
}

func (b *bed) requests(t *testing.T, target string) {
	t.Helper()
	eventually(t, "orders that do not exist are refused", func() bool { return b.status("GET", "/orders/777") == "404 absent" })
	want := func(want, method, path string, header ...string) {
		t.Helper()
		if got := b.status(method, path, header...); got != want {
			t.Errorf("%s %s: %s, want %s", method, path, got, want)
		}
	}
	want("200", "GET", "/orders/5")
	want("400 invalid", "GET", "/orders/042")
	want("400 invalid", "POST", "/orders/5;x=1/settle")
	want("400", "POST", "/orders%2f5/settle")
	if got := b.status("GET", "/orders/5", "X_Order_Id", "7"); strings.HasPrefix(got, "200") {
		t.Errorf("a header with underscores: %s", got)
	}
	want("404 absent", "POST", "/orders/777/settle")
	want("200", "POST", "/orders/5/settle", "x-ordergate-fence", "99999999999999999999")
	want("200", "POST", "/orders/5/settle")
	want("200", "GET", "/pay/5")
	want("400 invalid", "GET", "/pay/5;x=1")
	var last string
	for range 3 {
		fence := <-b.fences
		if len(fence) != 16 || fence <= last {
			t.Errorf("fence %q after %q", fence, last)
		}
		last = fence
	}

	out, _ := exec.Command(b.binary, "envoy", "--config", b.file, "--check", "http://"+b.admin).CombinedOutput()
	found := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(out)), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "note:") || strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "http://"+b.admin)
	})
	for _, line := range found {
		if !slices.ContainsFunc(open[target], func(o string) bool { return strings.Contains(line, o) }) {
			t.Errorf("ordergate envoy --check: %s", line)
		}
	}
	if len(found) != len(open[target]) {
		t.Errorf("ordergate envoy --check has %d differences, want %d:\n%s", len(found), len(open[target]), out)
	}
	if out, err := exec.Command(b.binary, "doctor", "--config", b.file, "--through", "http://"+b.url).CombinedOutput(); err != nil {
		t.Errorf("doctor: %v\n%s", err, out)
	}

	must(t, b.gate.Process.Kill())
	_, _ = b.gate.Process.Wait()
	want(map[string]string{"istio": "200", "higress": "503"}[target], "GET", "/orders/5")
	want("503", "POST", "/orders/5/settle")
	want("503", "GET", "/pay/5")
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, l.Close())
	return l.Addr().String()[len("127.0.0.1:"):]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
