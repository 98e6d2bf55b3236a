package tests

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// gatewayRules are settlements by GET, and by the body.
const gatewayRules = `
  - name: pay
    match: {methods: [GET], path: "/pay/{id}"}
    id: {path: id, format: digits}
    settle: {lock: settlement}
  - name: front
    match: {methods: [GET], path: /index.php, query: {route: pay/confirm}}
    id: {query: order_id, format: digits}
    settle: {lock: settlement}
  - name: by-body
    match: {methods: [POST], path: /settle}
    id: {json: orderId, format: digits}
    settle: {lock: settlement}
`

// gatewayResources are what an operator has besides the policies.
const gatewayResources = `---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: { name: eg }
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: { group: gateway.envoyproxy.io, kind: EnvoyProxy, name: ordergate, namespace: envoy-gateway-system }
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: { name: orders }
spec: { gatewayClassName: eg, listeners: [{ name: http, protocol: HTTP, port: PORT }] }
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: { name: orders }
spec: { endpoints: [{ ip: { address: 127.0.0.1, port: BACKEND } }] }
`

// gateway is a running Envoy Gateway, without a cluster.
type gateway struct {
	log *bedtest.Log
	dir string
}

// newGateway starts Envoy Gateway with what ordergate prints for it, in front of a stack's ordergate. With
// certificates, it speaks TLS with that.
func (s *stack) newGateway(b *backend, certs *testbed.Certificates) *gateway {
	s.t.Helper()
	program := filepath.Join(s.Root(), ".cache", "bin", "envoy-gateway")
	printer := exec.CommandContext(s.t.Context(), s.Build("./cmd/sidecar", false), "envoy", "--config", s.gate.ConfigFile(), "--for", "envoy-gateway", "--backend", b.addr())
	printer.Env = append(printer.Environ(), "ORDERGATE_LISTEN_AUTHZ="+s.GateAddr(s.gate, "authz"), "ORDERGATE_LISTEN_PROC="+s.GateAddr(s.gate, "proc"))
	printed, err := printer.Output()
	if err != nil {
		s.t.Fatalf("ordergate envoy: %v %s", err, stderrOf(err))
	}
	_, port, err := net.SplitHostPort(b.addr())
	must(s.t, err)
	clients := freePort(s.t)
	manifest := edit(s.t, "metadata: { name: ordergate }\nspec:\n  # A request", "metadata: { name: ordergate }\nspec:\n  provider: { type: Host, host: { envoyVersion: \"1.40.0\" } }\n  # A request")(string(printed))
	// There is no cluster with a Service.
	manifest = strings.ReplaceAll(manifest, "{ name: orders, port: "+port+" }", "{ group: gateway.envoyproxy.io, kind: Backend, name: orders }")
	if certs != nil {
		manifest += "---\n" + yamlText(s.t, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "ordergate-ca"}, "data": map[string]any{"ca.crt": textOf(s.t, certs.CA)}}) +
			"---\n" + yamlText(s.t, map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": "ordergate-client"}, "data": map[string]any{"tls.crt": base64.StdEncoding.EncodeToString([]byte(textOf(s.t, certs.ClientCert))), "tls.key": base64.StdEncoding.EncodeToString([]byte(textOf(s.t, certs.ClientKey)))}})
	}
	manifest += strings.NewReplacer("PORT", clients, "BACKEND", port).Replace(gatewayResources)
	dir := s.t.TempDir()
	must(s.t, os.MkdirAll(filepath.Join(dir, "data", "envoy-versions", "1.40.0", "bin"), 0o700))
	envoy, err := filepath.EvalSymlinks(filepath.Join(s.Root(), ".cache", "bin", "envoy"))
	must(s.t, err)
	must(s.t, os.Symlink(envoy, filepath.Join(dir, "data", "envoy-versions", "1.40.0", "bin", "envoy")))
	must(s.t, os.Mkdir(filepath.Join(dir, "resources"), 0o700))
	must(s.t, os.WriteFile(filepath.Join(dir, "resources", "all.yaml"), []byte(manifest), 0o600))
	must(s.t, os.WriteFile(filepath.Join(dir, "gateway.yaml"), []byte(strings.ReplaceAll(`
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: { controllerName: gateway.envoyproxy.io/gatewayclass-controller }
provider:
  type: Custom
  custom:
    resource: { type: File, file: { paths: [DIR/resources] } }
    infrastructure: { type: Host, host: { configHome: DIR/config, dataHome: DIR/data, stateHome: DIR/state, runtimeDir: DIR/run } }
extensionApis: { enableBackend: true }
telemetry: { metrics: { prometheus: { disable: true } } }
`, "DIR", dir)), 0o600))
	if out, err := exec.CommandContext(s.t.Context(), program, "certgen", "--local", "--config-home", filepath.Join(dir, "config")).CombinedOutput(); err != nil {
		s.t.Fatalf("envoy-gateway certgen: %v\n%s", err, out)
	}
	g := &gateway{&bedtest.Log{}, dir}
	cmd := exec.Command(program, "server", "--config-path", filepath.Join(dir, "gateway.yaml")) //nolint:noctx // it ends by a signal
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, g.log, g.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(s.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	s.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-ended
		if s.t.Failed() {
			s.t.Logf("Envoy Gateway wrote: %s\nof %s", g.log.String(), manifest)
		}
	})
	s.url = "http://127.0.0.1:" + clients
	bedtest.Eventually(s.t, "Envoy Gateway serves", func() bool {
		a, err := s.send(s.t.Context(), "GET", "/orders/77", "")
		return err == nil && a.status == 404 && a.verdict == "absent"
	})
	return g
}

// TestEnvoyGateway runs the main cases through the real Envoy Gateway, by what ordergate prints for it.
func TestEnvoyGateway(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("it needs Envoy Gateway: make soak runs it")
	}
	needsSidecar(t, "the gateway asks over gRPC")
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: both(shortLease, edit(t, "\nrules:\n", "\nrules:"+gatewayRules))})
	g := s.newGateway(b, nil)
	last := func() map[string]string {
		r := b.seen()[len(b.seen())-1]
		headers := map[string]string{}
		for _, name := range []string{"X-Ordergate-Fence", "X-Ordergate-Key", "X-Ordergate-Verdict", "X-Ordergate-Lease", "X-Envoy-Retry-On"} {
			headers[name] = r.Header.Get(name)
		}
		return headers
	}
	fenced := func(what string) {
		t.Helper()
		if n, err := strconv.ParseUint(last()["X-Ordergate-Fence"], 10, 64); err != nil || n == 0 || last()["X-Ordergate-Key"] == "" {
			t.Errorf("%s: the backend got %v", what, last())
		}
	}

	// Lookups.
	s.must("GET", "/orders/5", "").want(t, 200, "")
	s.must("HEAD", "/orders/77", "").want(t, 404, "absent")
	s.must("GET", "/orders/042", "").want(t, 400, "invalid")
	s.must("GET", "/orders//77", "").want(t, 404, "absent")
	for _, path := range []string{"/orders/5%2F6", "/orders/%35%5C6"} {
		if a := s.must("GET", path, ""); a.status != 400 {
			t.Errorf("%s: %d", path, a.status)
		}
	}
	if a := s.must("GET", "/orders/5", "", "X_Order_Id", "6"); a.status != 400 {
		t.Errorf("a header with an underscore: %d", a.status)
	}

	// Creates: the next lookup finds it.
	s.must("POST", "/orders?do=create&id=78", "").want(t, 201, "")
	s.must("GET", "/orders/78", "").want(t, 200, "")

	// Settlements, by each way.
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
	fenced("by its path")
	s.must("GET", "/pay/6", "").want(t, 200, "")
	fenced("by GET")
	s.must("GET", "/index.php?route=pay/confirm&order_id=7", "").want(t, 200, "")
	fenced("by a parameter")
	s.must("POST", "/settle", `{"orderId":8}`, "Content-Type", "application/json").want(t, 200, "")
	fenced("by its body")
	s.must("POST", "/orders/79/settle", "").want(t, 404, "absent")
	if a := s.must("POST", "/orders/5/settle", strings.Repeat("x", 300<<10)); a.status != 413 {
		t.Errorf("a body that is too large: %d", a.status)
	}
	for _, id := range []string{"5", "6", "7", "8"} {
		s.wantFate(id, released)
	}

	// Headers that only ordergate, or Envoy, may set.
	forged := []string{"x-ordergate-fence", "9", "x-ordergate-verdict", "acquired", "x.ordergate.key", "k", "x-envoy-retry-on", "5xx", "x-envoy-max-retries", "3"}
	s.must("GET", "/elsewhere", "", forged...).want(t, 200, "")
	if h := last(); h["X-Ordergate-Fence"] != "" || h["X-Envoy-Retry-On"] != "" {
		t.Errorf("the backend got %v", h)
	}
	s.must("POST", "/orders/9/settle?do=503", "", forged...)
	if n := b.arrived("/orders/9/settle"); n != 1 {
		t.Errorf("a settlement came %d times", n)
	}

	// One waits, one is busy; and a client that leaves has its order held.
	running := s.inBackground(t.Context(), "/orders/10/settle?do=hang")
	bedtest.Eventually(t, "a settlement is in flight", func() bool { return b.arrived("/orders/10/settle") == 1 })
	s.must("POST", "/orders/10/settle", "").want(t, 409, "busy")
	ctx, leave := context.WithCancel(t.Context())
	left := s.inBackground(ctx, "/orders/4/settle?do=hang")
	bedtest.Eventually(t, "another one is in flight", func() bool { return b.arrived("/orders/4/settle") == 1 })
	leave()
	<-left
	s.wantFate("4", held)
	waiting := s.later("GET", "/pay/10", "")
	b.goOn()
	if a := <-waiting; !<-running || a.status != 200 && a.status != 409 {
		t.Errorf("the settlement in flight failed, or the one behind it: %d", a.status)
	}
	s.wantFate("10", released)
	s.must("GET", "/pay/4", "").want(t, 409, "busy")
	s.must("POST", "/orders/3/settle?do=stream-trailers", "").want(t, 200, "")
	s.wantFate("3", released)

	// What Envoy's access log has of it.
	bedtest.Eventually(t, "the access log has the settlement", func() bool {
		for line := range strings.Lines(g.log.String()) {
			var entry struct {
				Path, Rule, Order string
				Ordergate         map[string]any
			}
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Path == "/pay/6" || strings.HasSuffix(entry.Path, "%2Fpay%2F6") {
				return entry.Ordergate["outcome"] == "known" && entry.Ordergate["rule"] == "pay"
			}
		}
		return false
	})
	out, _ := s.doctor()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "FAIL") && !strings.Contains(line, "encode_raw_headers") && !strings.Contains(line, "appendonly") {
			t.Errorf("doctor: %s", line)
		}
	}

	// What the printed file says is open, and no more.
	out = g.check(s)
	open := []string{"internal_address_config", "encode_raw_headers", "response_trailer_mode", "the access log has %REQ(:PATH)%", "http.max_requests_per_io_cycle", "no resource monitor bounds the memory"}
	for _, one := range open {
		if !strings.Contains(out, one) {
			t.Errorf("--check does not find that this is open: %s", one)
		}
	}
	for line := range strings.Lines(out) {
		about := func(one string) bool { return strings.Contains(line, one) }
		if !slices.ContainsFunc([]string{"note: ", "  so: ", "  write: ", "does not fit"}, about) && !slices.ContainsFunc(open, about) {
			t.Errorf("--check: %s", line)
		}
	}

	// Each client has a limit of its own.
	var limited atomic.Int64
	bedtest.Each(300, 50, func(int) {
		if a, err := s.send(t.Context(), "POST", "/elsewhere", ""); err == nil && a.status == 429 {
			limited.Add(1)
		}
	})
	if limited.Load() == 0 {
		t.Error("300 writes at once, and none is too many")
	}
	if a, err := s.settleFrom(t.Context(), "127.0.0.2", "/orders/2/settle"); err != nil || a.status != 200 {
		t.Errorf("another client's settlement: %d, %v", a.status, err)
	}
	bedtest.Eventually(t, "the client may write again", func() bool { return s.must("POST", "/elsewhere", "").status == 200 })

	// ordergate hangs: reads go on behind the timeout of ext_authz, and nothing is settled.
	must(t, s.gate.Pause())
	began := time.Now()
	s.must("GET", "/orders/77", "").want(t, 200, "")
	if waited := time.Since(began); waited > 5*time.Second { // Envoy Gateway's own default is 10 s
		t.Errorf("a read waits for %v while ordergate hangs", waited)
	}
	if a := s.must("POST", "/orders/1/settle", ""); a.status != 504 && a.status != 503 || b.arrived("/orders/1/settle") != 0 {
		t.Errorf("a settlement while ordergate hangs: %d", a.status)
	}
	must(t, s.gate.Resume())

	// ordergate is away: reads go on, nothing is settled.
	s.gate.Kill()
	s.must("GET", "/orders/77", "", forged...).want(t, 200, "")
	if h := last(); h["X-Ordergate-Fence"] != "" || h["X-Ordergate-Verdict"] != "" {
		t.Errorf("the backend got %v while ordergate is away", h)
	}
	before := len(b.seen())
	for _, path := range []string{"/orders/5/settle", "/settle", "/elsewhere"} {
		if a := s.must("POST", path, `{"orderId":8}`, "Content-Type", "application/json"); a.status != 503 {
			t.Errorf("%s while ordergate is away: %d", path, a.status)
		}
	}
	for _, path := range []string{"/pay/6", "/index.php?route=pay/confirm&order_id=7"} {
		if a := s.must("GET", path, ""); a.status != 503 {
			t.Errorf("%s while ordergate is away: %d", path, a.status)
		}
	}
	if n := len(b.seen()) - before; n != 0 {
		t.Errorf("%d settlements arrived while ordergate is away", n)
	}
}

// TestEnvoyGatewayTLS has mutual TLS between the gateway and ordergate.
func TestEnvoyGatewayTLS(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("it needs Envoy Gateway: make soak runs it")
	}
	needsSidecar(t, "the gateway asks over gRPC")
	b, certs := newBackend(t), bedtest.New(t).Certificates()
	s := newStack(t, settings{backend: b.addr(), orders: 10, gate: withMutualTLS(certs)})
	s.newGateway(b, certs)
	s.must("POST", "/orders/5/settle", "").want(t, 200, "")
}

func textOf(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return string(text)
}

// check returns what --check says of the running Envoy.
func (g *gateway) check(s *stack) string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(g.dir, "run", "*", "admin-address.txt"))
	if err != nil || len(files) != 1 {
		s.t.Fatalf("Envoy's admin address is in %v, %v", files, err)
	}
	admin, err := os.ReadFile(files[0])
	must(s.t, err)
	cmd := exec.CommandContext(s.t.Context(), s.Build("./cmd/sidecar", false), "envoy", "--config", s.gate.ConfigFile(), "--check", "http://"+string(admin))
	cmd.Env = append(cmd.Environ(), "ORDERGATE_LISTEN_AUTHZ="+s.GateAddr(s.gate, "authz"), "ORDERGATE_LISTEN_PROC="+s.GateAddr(s.gate, "proc"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run()
	return out.String()
}
