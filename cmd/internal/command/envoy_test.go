package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEnvoyExamples compares the examples with what the command prints for their file.
func TestEnvoyExamples(t *testing.T) {
	t.Chdir(filepath.Join("..", "..", "..", "examples", "envoy"))
	for file, args := range map[string][]string{
		"envoy.yaml":        nil,
		"envoy-module.yaml": {"--for", "module"},
	} {
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		line := append([]string{"envoy", "--config", "ordergate.yaml"}, args...)
		code, stdout, stderr := command(t.Context(), line...)
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
		{"backend", []string{"--backend", "shop"}, `ordergate.yaml: --backend: "shop" is not host:port`},
		{"file", []string{"--config", "nowhere.yaml"}, "nowhere.yaml"},
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
