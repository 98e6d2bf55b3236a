package tests

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
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

// TestRelease makes a release twice, in two clones. Their bytes are the same. No arm64 program is run.
func TestRelease(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("it compiles everything for two architectures: make soak runs it")
	}
	needsSidecar(t, "it has no Envoy")
	t.Parallel()
	bed := bedtest.New(t)
	var sums []string
	for range 2 {
		clone, dist := filepath.Join(t.TempDir(), "clone"), t.TempDir()
		for _, args := range [][]string{
			{"git", "clone", "-q", "--shared", bed.Root(), clone},
			{"make", "-C", clone, "release", "VERSION=1.2.3", "DIST=" + dist},
			{"sh", "-c", "cd " + dist + " && sha256sum -c --quiet SHA256SUMS && for a in *.tar.gz; do tar -xzf $a; done && ls ordergate_1.2.3_linux_arm64/completions/ordergate.bash ordergate_1.2.3_linux_amd64/LICENSE"},
		} {
			if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
		}
		out, err := exec.CommandContext(t.Context(), filepath.Join(dist, "ordergate_1.2.3_linux_"+runtime.GOARCH, "ordergate"), "version").Output()
		if err != nil || string(out) != "ordergate 1.2.3\n" {
			t.Errorf("ordergate version: %q, %v", out, err)
		}
		for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
			f, err := elf.Open(filepath.Join(dist, "ordergate_1.2.3_linux_"+arch, "ordergate"))
			must(t, err)
			if f.Machine != machine || f.Section(".interp") != nil {
				t.Errorf("%s: it is for %v, or needs a loader", arch, f.Machine)
			}
			must(t, f.Close())
		}
		sum, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
		must(t, err)
		sums = append(sums, string(sum))
	}
	if sums[0] != sums[1] {
		t.Errorf("two clones give different bytes:\n%s%s", sums[0], sums[1])
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
