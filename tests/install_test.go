package tests

import (
	"bytes"
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

// installBlocks returns the commands of README.md's section on installing: by a package, by an image, by Go.
func installBlocks(t *testing.T, root string) (deb, image, golang string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	must(t, err)
	_, section, found := strings.Cut(string(text), "\n## Install\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```console\n(.*?)^```").FindAllStringSubmatch(section, -1)
	if !found || len(blocks) != 3 {
		t.Fatalf("%d blocks of commands, want 3", len(blocks))
	}
	return blocks[0][1], blocks[1][1], blocks[2][1]
}

// TestInstall runs what README.md says of installing by Go, from the clone: what comes from the network
// there. TestPackage and TestImage run the rest.
func TestInstall(t *testing.T) {
	needsSidecar(t, "it has no Envoy")
	t.Parallel()
	bed := bedtest.New(t)
	_, _, block := installBlocks(t, bed.Root())
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-eux", "-c", edit(t, "github.com/ordergate/ordergate/cmd/ordergate@latest", "./cmd/ordergate")(block))
	cmd.Dir, cmd.Env = bed.Root(), append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", block, err, out)
	}
	for _, args := range [][]string{{"version"}, {"check", "--config", filepath.Join(bed.Root(), "packaging", "ordergate.yaml")}} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "ordergate"), args...).CombinedOutput()
		if err != nil || args[0] == "version" && !strings.HasPrefix(string(out), "ordergate ") {
			t.Errorf("ordergate %v: %v\n%s", args, err, out)
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
			{"bash", "-c", "cd " + dist + " && sha256sum -c --quiet SHA256SUMS && for a in *.tar.gz; do tar -xzf $a; done && ls ordergate_1.2.3_linux_arm64/completions/ordergate.bash ordergate_1.2.3_linux_amd64/man/ordergate-serve.1 ordergate_1.2.3_linux_{amd64,arm64}.{deb,rpm,oci.tar,cdx.json} ordergate_1.2.3_chart.tgz"},
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
			for _, file := range []string{"ordergate_1.2.3_linux_" + arch + "_libordergate.so", "ordergate_1.2.3_linux_" + arch + "/ordergate"} {
				binary, err := os.ReadFile(filepath.Join(dist, file))
				must(t, err)
				if bytes.Contains(binary, []byte(clone)) {
					t.Errorf("%s has the path of its clone", file)
				}
			}
		}
		sum, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
		must(t, err)
		sums = append(sums, string(sum))
	}
	if sums[0] != sums[1] {
		t.Errorf("two clones give different bytes:\n%s%s", sums[0], sums[1])
	}
}
