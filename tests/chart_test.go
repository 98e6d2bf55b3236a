package tests

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

var updateChart = flag.Bool("update-chart", false, "write the golden files of the Helm chart anew")

// chartFile is a configuration for the chart.
const chartFile = `redis: {addresses: ["127.0.0.1:6379"], password_file: /etc/ordergate-secret/redis-password}
locks:
  settlement: {lease: 90s, on_unknown_outcome: {hold: 60s}}
rules:
- name: settle
  match: {methods: [POST], path: "/orders/{id}/settle"}
  id: {path: id, format: digits}
  settle: {lock: settlement}
`

// chartValues are values by which the chart is rendered, by the name of their golden file.
var chartValues = map[string]string{
	"sidecar": `
sidecar: {containers: [{name: shop, image: shop:1, ports: [{containerPort: 8080}]}]}
monitoring: {enabled: true, labels: {release: prometheus}}
networkPolicy: {metrics: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
`,
	"shared": `
mode: shared
shared: {tls: ordergate-tls}
networkPolicy: {clients: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: gateway}}}]}
annotations: {example.com/team: orders}
pod: {serviceAccountName: ordergate, tolerations: [{key: orders, operator: Exists}]}
`,
}

// chart renders the chart, with values and a configuration.
type chart struct {
	t   *testing.T
	bed *bedtest.Bed
}

func newChart(t *testing.T) chart {
	t.Helper()
	if os.Getenv("SOAK") == "" {
		t.Skip("it needs Helm: make soak runs it")
	}
	needsSidecar(t, "it has no Envoy")
	return chart{t, bedtest.New(t)}
}

func (c chart) helm(args ...string) (out, stderr string, err error) {
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.bed.Root(), ".cache", "bin", "helm"), args...)
	cmd.Dir = c.bed.Root()
	text, err := cmd.Output()
	return string(text), string(stderrOf(err)), err
}

// render renders the chart, and returns standard error if Helm refuses the values.
func (c chart) render(file, values string, args ...string) (string, error) {
	dir := c.t.TempDir()
	for name, text := range map[string]string{"ordergate.yaml": file, "values.yaml": values} {
		must(c.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, stderr, err := c.helm(append([]string{"template", "shop", "examples/helm/ordergate", "--kube-version", "1.37",
		"--set-file", "config=" + filepath.Join(dir, "ordergate.yaml"), "--values", filepath.Join(dir, "values.yaml")}, args...)...)
	if err != nil {
		err = errors.New(stderr)
	}
	return out, err
}

// documents returns the resources of a manifest.
func documents(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var one map[string]any
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		must(t, err)
		if one != nil {
			all = append(all, one)
		}
	}
}

// TestChart renders the chart, compares it with golden files, and validates it by the schemas of Kubernetes.
func TestChart(t *testing.T) {
	t.Parallel()
	c := newChart(t)
	if out, stderr, err := c.helm("lint", "--strict", "--kube-version", "1.37", "--set", "config=rules: [x]", "--set", "sidecar.backend=shop:80", "examples/helm/ordergate"); err != nil {
		t.Errorf("helm lint: %v\n%s%s", err, out, stderr)
	}
	for name, values := range chartValues {
		out, err := c.render(chartFile, values)
		must(t, err)
		validateChart(t, c.bed.Root(), documents(t, out))
		alerts, err := os.ReadFile(filepath.Join(c.bed.Root(), "examples", "prometheus", "ordergate.rules.yaml"))
		must(t, err)
		if before, after, ok := strings.Cut(out, "kind: PrometheusRule"); ok {
			head, spec, _ := strings.Cut(after, "\nspec:\n")
			if got := strings.ReplaceAll(spec, "\n  ", "\n"); strings.TrimSpace(got) != strings.TrimSpace(string(alerts)) {
				t.Errorf("%s: the PrometheusRule is not examples/prometheus/ordergate.rules.yaml", name)
			}
			out = before + "kind: PrometheusRule" + head + "\nspec: {} # that of examples/prometheus\n"
		}
		golden := filepath.Join("testdata", "chart-"+name+".golden.yaml")
		if *updateChart {
			must(t, os.WriteFile(golden, []byte(out), 0o600))
		}
		want, err := os.ReadFile(golden)
		must(t, err)
		if diff := cmp.Diff(string(want), out); diff != "" {
			t.Errorf("%s (go test -run TestChart -update-chart ./tests): %s", golden, diff)
		}
	}
}

// TestChartPage runs the command of docs/kubernetes.md with the values that stand there.
func TestChartPage(t *testing.T) {
	t.Parallel()
	c := newChart(t)
	page, err := os.ReadFile(filepath.Join(c.bed.Root(), "docs", "kubernetes.md"))
	must(t, err)
	values := regexp.MustCompile("(?s)```yaml\n(image: .*?)```").FindStringSubmatch(string(page))
	command := regexp.MustCompile(`(?m)^helm install (.*)$`).FindStringSubmatch(string(page))
	if values == nil || command == nil {
		t.Fatal("it shows no values, or no command")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"ordergate.yaml": chartFile, "shop.yaml": values[1]} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	must(t, os.Symlink(filepath.Join(c.bed.Root(), "examples"), filepath.Join(dir, "examples")))
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", filepath.Join(c.bed.Root(), ".cache", "bin", "helm")+" template --kube-version 1.37 "+command[1])
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command[0], err, stderrOf(err))
	}
	validateChart(t, c.bed.Root(), documents(t, string(out)))

	// What Helm says behind it, when there is no Secret.
	chart := filepath.Join(dir, "copy", "helm", "ordergate")
	must(t, os.CopyFS(chart, os.DirFS(filepath.Join(c.bed.Root(), "examples", "helm", "ordergate"))))
	must(t, os.Symlink(filepath.Join(c.bed.Root(), "examples", "prometheus"), filepath.Join(dir, "copy", "prometheus")))
	must(t, os.WriteFile(filepath.Join(chart, "templates", "notes.yaml"), []byte(`notes: {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}`), 0o600))
	notes, stderr, err := c.helm("template", "shop", chart, "--kube-version", "1.37", "--namespace", "orders", "--show-only", "templates/notes.yaml", "--set", "sidecar.backend=shop:80", "--set-file", "config="+filepath.Join(dir, "ordergate.yaml"))
	if err != nil || !strings.Contains(notes, "There is no Secret ordergate yet: until there is, no Pod starts") || !strings.Contains(notes, "rollout restart deployment shop-ordergate") {
		t.Errorf("%v %s\n%s", err, stderr, notes)
	}
}

// validateChart validates resources by the strict schemas of each Kubernetes that knows sidecar containers.
func validateChart(t *testing.T, root string, resources []map[string]any) {
	t.Helper()
	versions, err := filepath.Glob(filepath.Join(root, ".cache", "lib", "kubernetes-schemas", "v1.[3-9]*-local-strict"))
	must(t, err)
	versions = append(versions, filepath.Join(root, ".cache", "lib", "kubernetes-schemas", "v1.29.0-local-strict"))
	validated := 0
	for _, dir := range versions {
		compiler := jsonschema.NewCompiler()
		compiler.UseLoader(schemas(dir))
		for _, r := range resources {
			group, version, ok := strings.Cut(r["apiVersion"].(string), "/")
			if !ok {
				group, version = "", group
			}
			if group == "monitoring.coreos.com" {
				continue // of the Prometheus Operator
			}
			name, _, _ := strings.Cut(group, ".")
			if name != "" {
				name += "-"
			}
			schema, err := compiler.Compile("file:///" + strings.ToLower(r["kind"].(string)) + "-" + name + version + ".json")
			must(t, err)
			if err := schema.Validate(jsonOf(t, r)); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(dir), r["kind"], err)
			}
			validated++
		}
	}
	if validated < 9*5 {
		t.Errorf("only %d resources were validated", validated)
	}
}

// schemas is a folder of schemas, which it loads by their names from any address.
type schemas string

func (dir schemas) Load(address string) (any, error) {
	text, err := os.ReadFile(filepath.Join(string(dir), path.Base(address)))
	if err != nil {
		return nil, err
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

// jsonOf converts a value of YAML to one of JSON.
func jsonOf(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	converted, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	must(t, err)
	return converted
}

// TestChartRefuses has values that contradict each other: Helm names the value in one line.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	c := newChart(t)
	good := chartValues["sidecar"]
	for name, tt := range map[string]struct {
		file, values string
		want         string
	}{
		"no file":               {"", good, "config: give the file: --set-file config=ordergate.yaml"},
		"the name of a file":    {"ordergate.yaml", good, "config: has no rules: give the file, not its name"},
		"no YAML":               {"rules: [", good, "config: has no rules"},
		"an unknown mode":       {chartFile, "mode: both", "/mode"},
		"an unknown value":      {chartFile, "sidecars: {}", "'sidecars' not allowed"},
		"a number as a text":    {chartFile, good + "replicas: \"2\"", "/replicas"},
		"no order service":      {chartFile, "", "sidecar.containers: there is no order service"},
		"a second Envoy":        {chartFile, "sidecar: {containers: [{name: envoy, image: e}]}", "/sidecar/containers/0/name"},
		"a taken volume":        {chartFile, good + "volumes: [{name: run, emptyDir: {}}]", "/volumes/0/name"},
		"a taken key":           {chartFile, good + "pod: {hostNetwork: true}", "hostNetwork"},
		"a backend's URL":       {chartFile, "sidecar: {backend: \"http://shop/\"}", "/sidecar/backend"},
		"no connections":        {chartFile, "sidecar: {backend: \"shop:80\", connections: 1}", "/sidecar/connections"},
		"replicas of embedded":  {"redis: {mode: embedded}\n" + strings.SplitAfterN(chartFile, "\n", 2)[1], good, "replicas: redis.mode embedded is for one"},
		"no certificates":       {chartFile, "mode: shared", "shared.tls: give the Secret"},
		"both":                  {chartFile, "mode: shared\nshared: {tls: a, insecure: true}", "shared.tls: give the Secret"},
		"insecure for all":      {chartFile, "mode: shared\nshared: {insecure: true}", "networkPolicy.clients: without TLS"},
		"shared as a sidecar":   {chartFile, good + "shared: {tls: a}", "shared: is for mode=shared"},
		"a service, and shared": {chartFile, good + "mode: shared\nshared: {tls: a}", "sidecar.containers: is for mode=sidecar"},
	} {
		out, err := c.render(tt.file, tt.values)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q\n%s", name, err, tt.want, out)
		}
	}
}

// TestChartPod runs the rendered Pod by podman, which knows no sidecar containers and no Secrets in base64:
// ordergate is an ordinary container, and Redis reads the same file.
func TestChartPod(t *testing.T) {
	t.Parallel()
	c := newChart(t)
	dist := releases(t, c.bed, "0.1.0")
	image := newServices(t, c.bed)
	if out, err := podman(t.Context(), "load", "--quiet", "--input", fmt.Sprintf("%s/0.1.0/ordergate_0.1.0_linux_%s.oci.tar", dist, runtime.GOARCH)).CombinedOutput(); err != nil {
		t.Fatalf("podman load: %v\n%s", err, out)
	}
	const values = `
replicas: 1
sidecar:
  native: false
  envoy: IMAGE
  containers:
  - name: redis
    image: IMAGE
    command: [sh, -ec, 'exec redis-server --requirepass "PASSWORD"']
    volumeMounts: [{name: secret, mountPath: /secret, readOnly: true}]
  - name: shop
    image: IMAGE
    command: [php, -S, "127.0.0.1:8080", /shop/index.php]
    env: [{name: ORDERS_DATA, value: /tmp}, {name: ORDERS_SEED, value: "10"}, {name: PHP_CLI_SERVER_WORKERS, value: "8"}]
    volumeMounts: [{name: shop, mountPath: /shop, readOnly: true}]
volumes: [{name: shop, hostPath: {path: ROOT/examples/legacy/php}}]
`
	for name, tt := range map[string]struct {
		password string
		ready    bool
	}{
		"good": {"$(cat /secret/redis-password)", true},
		"bad":  {"another", false},
	} {
		text, err := c.render(chartFile, strings.NewReplacer("IMAGE", image, "ROOT", c.bed.Root(), "PASSWORD", tt.password).Replace(values))
		must(t, err)
		pod := startPod(t, c.bed, "ordergate-"+name+"-"+freePort(t), documents(t, text))
		bedtest.Eventually(t, "Envoy listens", func() bool {
			_, err := pod.sh("shop", "curl -sS http://127.0.0.1:10000/")
			return err == nil
		})
		health := func() bool {
			return podman(t.Context(), "exec", pod.name+"-ordergate", "/ordergate", "health", "--ready", "--config", "/etc/ordergate/ordergate.yaml").Run() == nil
		}
		const settle = "curl -sS -o /dev/null -w '%{http_code}' -X POST http://127.0.0.1:10000/orders/5/settle"
		if !tt.ready {
			out, err := pod.sh("shop", settle)
			if err != nil || out != "503" {
				t.Errorf("%s: a settlement gets %s, %v", name, out, err)
			}
			if reasons, err := pod.sh("shop", "curl -sS http://127.0.0.1:9194/readyz"); err != nil || !strings.Contains(reasons, "WRONGPASS") || health() {
				t.Errorf("%s: readiness says %s, %v", name, reasons, err)
			}
			continue
		}
		bedtest.Eventually(t, "ordergate is ready", health)
		if out, err := pod.sh("shop", settle); err != nil || out != "200" {
			t.Errorf("%s: a settlement gets %s, %v", name, out, err)
		}
		// What kubelet runs before it stops Envoy waits for the calls that run.
		deployment := pod.template["containers"].([]any)[0].(map[string]any)
		drain := deployment["lifecycle"].(map[string]any)["preStop"].(map[string]any)["exec"].(map[string]any)["command"].([]any)[2].(string)
		if out, err := pod.sh("envoy", drain); err != nil || !strings.Contains(out, "OK") {
			t.Errorf("%s: Envoy does not drain: %s, %v", name, out, err)
		}
	}
}

// pod is a running Pod.
type pod struct {
	t        *testing.T
	name     string
	template map[string]any // its spec
}

// newServices makes an image of the services in .cache, with Envoy.
func newServices(t *testing.T, bed *bedtest.Bed) string {
	t.Helper()
	out, err := podman(t.Context(), "import", "--quiet", "--change", "ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", filepath.Join(bed.Root(), ".cache", "images", "services.tar")).Output()
	if err != nil {
		t.Fatalf("podman import: %v %s", err, stderrOf(err))
	}
	id := strings.TrimPrefix(strings.TrimSpace(string(out)), "sha256:")
	name := "localhost/services-" + id[:12]
	must(t, podman(t.Context(), "tag", id, name).Run())
	return name
}

// startPod starts the Pod of a Deployment, with its ConfigMap and a Secret of its own.
func startPod(t *testing.T, bed *bedtest.Bed, name string, resources []map[string]any) *pod {
	t.Helper()
	secret := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name},
		"data": map[string]any{"token": base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")), "redis-password": base64.StdEncoding.EncodeToString([]byte("a password"))},
	}
	p := &pod{t: t, name: name}
	played := []map[string]any{secret}
	for _, r := range resources {
		switch r["kind"] {
		case "ConfigMap":
			r["metadata"].(map[string]any)["name"] = name + "-file"
			played = append(played, r)
		case "Deployment":
			template := r["spec"].(map[string]any)["template"].(map[string]any)
			p.template = template["spec"].(map[string]any)
			// podman would start the ended init container again.
			p.template["restartPolicy"] = "Never"
			volumes := p.template["volumes"].([]any)
			for _, v := range volumes {
				v := v.(map[string]any)
				switch v["name"] {
				case "config":
					v["configMap"] = map[string]any{"name": name + "-file"}
				case "secret":
					v["secret"].(map[string]any)["secretName"] = name
				}
			}
			// podman's volumes have their names for all Pods.
			text := yamlText(t, p.template)
			for _, volume := range []string{"run", "state"} {
				text = strings.ReplaceAll(text, "name: "+volume+"\n", "name: "+name+"-"+volume+"\n")
			}
			must(t, yaml.Unmarshal([]byte(text), &p.template))
			// It listens on this machine at each port of a container.
			for _, c := range p.template["containers"].([]any) {
				ports, _ := c.(map[string]any)["ports"].([]any)
				for _, port := range ports {
					at, err := strconv.Atoi(freePort(t))
					must(t, err)
					port.(map[string]any)["hostIP"], port.(map[string]any)["hostPort"] = "127.0.0.1", at
				}
			}
			envoy, err := filepath.EvalSymlinks(filepath.Join(bed.Root(), ".cache", "bin", "envoy"))
			must(t, err)
			p.template["volumes"] = append(p.template["volumes"].([]any), map[string]any{"name": "envoy", "hostPath": map[string]any{"path": envoy}})
			container := p.template["containers"].([]any)[0].(map[string]any)
			container["volumeMounts"] = append(container["volumeMounts"].([]any), map[string]any{"name": "envoy", "mountPath": "/usr/local/bin/envoy", "readOnly": true})
			played = append(played, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "labels": map[string]any{"app": name}}, "spec": p.template})
		}
	}
	var text strings.Builder
	for _, r := range played {
		text.WriteString("---\n" + yamlText(t, r))
	}
	dir := t.TempDir()
	file, limits := filepath.Join(dir, "pod.yaml"), filepath.Join(dir, "containers.conf")
	must(t, os.WriteFile(file, []byte(text.String()), 0o600))
	must(t, os.WriteFile(limits, []byte(containerLimits), 0o600))
	t.Cleanup(func() {
		ctx := context.Background()
		if t.Failed() {
			for _, container := range []string{"envoy-file", "ordergate", "envoy", "redis", "shop"} {
				out, _ := podman(ctx, "logs", "--tail", "15", name+"-"+container).CombinedOutput()
				t.Logf("%s: %s", container, out)
			}
		}
		_ = podman(ctx, "pod", "rm", "--force", "--time=0", name).Run()
		_ = podman(ctx, "volume", "rm", name, name+"-file", name+"-run", name+"-state").Run()
		_ = podman(ctx, "secret", "rm", name).Run()
	})
	cmd := podman(t.Context(), "play", "kube", file)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+limits)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("podman play kube: %v\n%s", err, out)
	}
	return p
}

// sh runs a script in a container.
func (p *pod) sh(container, script string) (string, error) {
	out, err := podman(p.t.Context(), "exec", p.name+"-"+container, "bash", "-c", script).CombinedOutput()
	return string(out), err
}

func yamlText(t testing.TB, v any) string {
	t.Helper()
	text, err := yaml.Marshal(v)
	must(t, err)
	return string(text)
}
