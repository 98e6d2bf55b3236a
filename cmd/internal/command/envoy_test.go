package command

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestEnvoyExamples compares the examples with what the command prints for their file.
func TestEnvoyExamples(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "..", "examples", "envoy"))
	for file, args := range map[string][]string{
		"envoy.yaml":              nil,
		"envoy-module.yaml":       {"--for", "module"},
		"../nginx/nginx.conf":     {"--for", "nginx"},
		"../traefik/dynamic.yaml": {"--for", "traefik"},
	} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		line := append([]string{"envoy", "--config", "ordergate.yaml"}, args...)
		code, stdout, stderr := command(t.Context(), line...)
		out := filepath.Join(t.TempDir(), "envoy.yaml")
		if code, none, stderr := command(t.Context(), append(line, "--envoy-version", "v1.40.0", "--out", out)...); code != exitDone || none+stderr != "" {
			t.Errorf("exit code %d, %s%s", code, none, stderr)
		}
		if written, err := os.ReadFile(out); err != nil || string(written) != stdout {
			t.Errorf("--out has written something else: %v", err)
		}
		if diff := cmp.Diff(string(want), stdout); diff != "" || code != exitDone || stderr != "" {
			t.Errorf("exit code %d, %s\nin examples/envoy: ordergate %s > %s (-file +printed):\n%s", code, stderr, strings.Join(line, " "), file, diff)
		}
	}
}

// TestEnvoyFlags has wrong flags, and files that fit no Envoy.
func TestEnvoyFlags(t *testing.T) {
	good := filepath.Join("..", "..", "..", "examples", "envoy", "ordergate.yaml")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"target", []string{"--for", "apache"}, `--for: "apache" is not one of static, `},
		{"connections", []string{"--connections", "1"}, "--connections: must be from 2"},
		{"version", []string{"--envoy-version", "1.2"}, "--envoy-version: "},
		{"time", []string{"--backend-time", "-1s"}, "--backend-time: must be"},
		{"hold", []string{"--backend-time", "60s"}, "ordergate.yaml: a backend that takes 1m0s needs a longer hold"},
		{"backend", []string{"--backend", "shop"}, `--backend: "shop" is not host:port, such as 127.0.0.1:8080`},
		{"no number", []string{"--connections", "many"}, `invalid argument "many" for "--connections" flag: "many": invalid syntax`},
		{"out", []string{"--check", "envoy.yaml", "--out", "envoy.yaml"}, "--check prints no configuration: leave out --out"},
		{"no file", []string{"--config", "ordergate.yaml"}, "reading configuration ordergate.yaml: no such file or directory (ordergate init writes one, and --config names another)"},
		{"rules", []string{"--config", writeConfig(t, "rules: []\n")}, "no rule of the file needs ordergate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t.Context(), append([]string{"envoy", "--config", good}, tt.args...)...)
			if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, %q, %q, want %q", code, stdout, stderr, tt.want)
			}
		})
	}
}

// TestEnvoyCheck compares the examples with their file, and names what cannot be compared.
func TestEnvoyCheck(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "..", "examples", "envoy"))
	text, err := os.ReadFile("envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), "encode_raw_headers: true", "encode_raw_headers: false", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/config_dump", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"configs":[]}`)) })
	mux.HandleFunc("/login", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) })
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/stuck", func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(`{"configs":[`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) })
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, tt := range []struct {
		source, stdout, stderr string
	}{
		{"envoy.yaml", "", ""},
		{"envoy-module.yaml", "", ""},
		{changed, "filter envoy.filters.http.ext_authz: encode_raw_headers is not true\n  so:    two lines of one header", "envoy.yaml does not fit ordergate.yaml: differences: 1"},
		{"http://127.0.0.1:1", "", "asking http://127.0.0.1:1/config_dump?include_eds: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"127.0.0.1:1", "", "asking http://127.0.0.1:1/config_dump?include_eds: dial tcp 127.0.0.1:1: connect: connection refused"},
		{"http://", "", "is no address"},
		{server.URL, "", "it has no listeners"},
		{server.URL + "/login", "", "401 Unauthorized: it wants a login"},
		{server.URL + "/moved", "", "302 Found: it wants a login"},
		{server.URL + "/page", "", "it is a page and no configuration"},
		{server.URL + "/none", "", "is it Envoy's admin address?"},
		{server.URL + "/silent", "", "silent: no whole answer within 1m0s"},
		{server.URL + "/stuck", "", "stuck: no whole answer within 1m0s"},
	} {
		ctx := t.Context()
		if strings.HasSuffix(tt.stderr, "1m0s") { // sooner, in the test
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
		}
		code, stdout, stderr := command(ctx, "envoy", "--config", "ordergate.yaml", "--check", tt.source)
		want := exitFailed
		if tt.stderr == "" {
			want = exitDone
		}
		if code != want || !strings.Contains(stdout, tt.stdout) || tt.stdout == "" && stdout != "" || !strings.Contains(stderr, tt.stderr) || strings.Count(stderr, "\n") != want {
			t.Errorf("%s: exit code %d, %q, %q", tt.source, code, stdout, stderr)
		}
	}
}
