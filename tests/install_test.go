package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// TestInstall runs what README.md says of installing, but for what leaves the clone: it builds
// to a directory of its own, and from the clone what comes from the network there.
func TestInstall(t *testing.T) {
	needsSidecar(t, "it has no Envoy")
	t.Parallel()
	bed := bedtest.New(t)
	text, err := os.ReadFile(filepath.Join(bed.Root(), "README.md"))
	must(t, err)
	_, section, found := strings.Cut(string(text), "\n## Install\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("README.md does not say how to install ordergate")
	}
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	replace := strings.NewReplacer(
		"make build\n", makes(t, bed.Root(), "build", "bin/ordergate", filepath.Join(dir, "made")),
		"sudo install bin/ordergate ", "install "+filepath.Join(dir, "made")+" ",
		"sudo install ", "install ",
		"go install github.com/ordergate/ordergate/cmd/ordergate@latest", "go install ./cmd/ordergate",
		"/usr/local/bin/", filepath.Join(dir, "bin")+"/",
	)
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of commands, want 2", len(blocks))
	}
	for _, block := range blocks {
		installed := filepath.Join(dir, "bin", "ordergate")
		_ = os.Remove(installed) // of the block before
		cmd := exec.CommandContext(t.Context(), "sh", "-eux", "-c", replace.Replace(block[1]))
		cmd.Dir, cmd.Env = bed.Root(), append(os.Environ(), "GOBIN="+filepath.Join(dir, "bin"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", block[1], err, out)
			continue
		}
		for _, args := range [][]string{{"version"}, {"check", "--config", filepath.Join(bed.Root(), "examples", "envoy", "ordergate.yaml")}} {
			if out, err := exec.CommandContext(t.Context(), installed, args...).CombinedOutput(); err != nil || args[0] == "version" && !strings.HasPrefix(string(out), "ordergate ") {
				t.Errorf("ordergate %v, installed by %q: %v\n%s", args, block[1], err, out)
			}
		}
	}
}

// makes returns the commands of a target, which make something else.
func makes(t *testing.T, root, target, from, to string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-n", target)
	cmd.Dir = root
	out, err := cmd.Output()
	must(t, err)
	if !strings.Contains(string(out), from) {
		t.Fatalf("make %s does not make %s: %s", target, from, out)
	}
	return strings.ReplaceAll(string(out), from, to)
}
