package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// envoyFiles are configurations of ordergate for which Envoy's is printed.
var envoyFiles = []struct {
	name, file, text string
	args             []string
}{
	{name: "example", file: "examples/envoy/ordergate.yaml"},
	{name: "front controller", file: "examples/shops/front/ordergate.yaml"},
	{name: "spring", file: "examples/shops/spring/ordergate.yaml"},
	{name: "lookups", text: `
redis: {}
filters: {orders: {}}
rules:
  - {name: look, match: {methods: [GET], path: "/orders/{id}"}, id: {path: id}, lookup: {filter: orders}}
  - {name: header, match: {methods: [GET], path: /order}, id: {header: X-Order-Id}, lookup: {filter: orders}}
`},
	{name: "gRPC, another host, IPv6", args: []string{"--backend", "localhost:80", "--listen", "[::]:0"}, text: `
listen: {authz: "[::1]:9191", proc: "0.0.0.0:9192", insecure: true}
redis: {}
locks: {l: {wait: {up_to: 40s}, lease: 90s}}
rules:
  - {name: settle, match: {methods: [POST], path: /shop.Orders/Settle}, id: {header: x-order-id}, settle: {lock: l}}
`},
	{name: "bodies and keys", text: `
redis: {}
filters: {orders: {}}
locks: {l: {}}
rules:
  - {name: look, match: {methods: [GET, POST], path: "/a.b/{x}/order"}, id: {json: id, max_body: 200000}, lookup: {filter: orders}}
  - {name: note, match: {methods: [GET, POST], path: /n}, once: {by: body, scope: []}}
  - {name: pay, match: {methods: [PUT], path: /pay, query: {do: [x.y, "(z)"]}, case: insensitive}, id: {query: id}, settle: {lock: l}}
`},
}

// TestEnvoyFile has the real Envoys check what ordergate prints for several files, and the versions
// that have been fetched (make matrix).
func TestEnvoyFile(t *testing.T) {
	needsSidecar(t, "it has the files of both attachments")
	t.Parallel()
	bed := bedtest.New(t)
	binary := bed.Build("./cmd/sidecar", false)
	modules := filepath.Dir(bed.Module())
	others, err := filepath.Glob(filepath.Join(bed.Root(), ".cache", "bin", "envoy-1.*"))
	must(t, err)
	for _, tt := range envoyFiles {
		for _, target := range []string{"static", "module"} {
			t.Run(tt.name+"/"+target, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "ordergate.yaml")
				text := []byte(tt.text)
				if tt.file != "" {
					text, err = os.ReadFile(filepath.Join(bed.Root(), tt.file))
					must(t, err)
				}
				must(t, os.WriteFile(file, text, 0o600))
				for _, envoy := range others {
					version := strings.TrimPrefix(filepath.Base(envoy), "envoy-")
					args := append([]string{"envoy", "--config", file, "--for", target}, tt.args...)
					switch {
					case target == "module" && (version < "1.39" || tt.file != ""): // it would join the change log
						continue
					case strings.HasPrefix(version, "1.37."):
						args = append(args, "--envoy-version", "1.37")
					}
					printed := file + "." + version + ".yaml"
					cmd := exec.CommandContext(t.Context(), binary, args...)
					text, err := cmd.Output()
					must(t, err)
					must(t, os.WriteFile(printed, text, 0o600))
					cmd = exec.CommandContext(t.Context(), envoy, "--mode", "validate", "-l", "error", "-c", printed)
					cmd.Env = append(os.Environ(), "ENVOY_DYNAMIC_MODULES_SEARCH_PATH="+modules, "ORDERGATE_LISTEN_ADMIN=127.0.0.1:0")
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("Envoy %s: %v\n%s", version, err, out)
					}
				}
			})
		}
	}
}

// TestEnvoyCheck compares what a real Envoy has, of the example, with the example's file.
func TestEnvoyCheck(t *testing.T) {
	needsSidecar(t, "it has Envoy's configuration for it")
	t.Parallel()
	bed := bedtest.New(t)
	binary := bed.Build("./cmd/sidecar", false)
	shipped := check(t)(bed.EnvoyAsShipped("unix:/run/ordergate/authz.sock", "unix:/run/ordergate/proc.sock", "127.0.0.1:1"))
	for name, tt := range map[string]struct {
		change func(string) string
		want   string
	}{
		"as shipped":    {func(text string) string { return text }, ""},
		"no override":   {edit(t, "allow_mode_override: true", "allow_mode_override: false"), "ext_proc: allow_mode_override is not true"},
		"no attributes": {edit(t, "              - upstream.request_attempt_count\n", ""), "ext_proc: response_attributes lacks"},
		"retries":       {edit(t, `domains: ["*"]`, "retry_policy: { retry_on: 5xx }\n              domains: [\"*\"]"), "route writes: it retries POST of rule order-create"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envoy := bed.Envoy(tt.change(shipped))
			cmd := exec.CommandContext(t.Context(), binary, "envoy", "--config", filepath.Join(bed.Root(), "examples", "envoy", "ordergate.yaml"), "--check", "http://"+envoy.AdminAddr())
			out, err := cmd.CombinedOutput()
			if (err == nil) != (tt.want == "") || !strings.Contains(string(out), tt.want) || err == nil && len(out) > 0 {
				t.Errorf("%v, want %q:\n%s", err, tt.want, out)
			}
		})
	}
}
