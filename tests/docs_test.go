package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fence matches a fenced block of shell commands and, right behind it, one of
// the output that they promise.
var fence = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```\n(?:\\s*?^ *```text\n(.*?)^ *```\n)?")

// TestDocumentation runs every command that the documentation shows (blocks
// marked sh) and looks for the output that stands behind it (blocks marked
// text), where "..." stands for anything.
func TestDocumentation(t *testing.T) {
	needsSidecar(t, "it has all pages' commands, of both")
	t.Parallel()
	b := newBackend(t)
	s := newStack(t, settings{backend: b.addr(), orders: 10})
	replace := strings.NewReplacer(
		"127.0.0.1:10000", strings.TrimPrefix(s.url, "http://"),
		"127.0.0.1:9194", s.GateAddr(s.gate, "admin"),
		"127.0.0.1:6379", s.server.Addr(),
	)
	bin := t.TempDir() // where "ordergate" and "envoy" are found by name
	must(t, os.Symlink(s.Build("./cmd/sidecar", false), filepath.Join(bin, "ordergate")))
	must(t, os.Symlink(filepath.Join(s.Root(), ".cache", "bin", "envoy"), filepath.Join(bin, "envoy")))
	modules := filepath.Dir(s.Module())
	work := t.TempDir()
	must(t, os.Symlink(filepath.Join(s.Root(), "examples"), filepath.Join(work, "examples")))

	files, err := filepath.Glob(filepath.Join(s.Root(), "docs", "*.md"))
	must(t, err)
	files = append(files, filepath.Join(s.Root(), "README.md"))
	commands := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for i, block := range fence.FindAllStringSubmatch(string(text), -1) {
			commands++
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(file), i+1), func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), "sh", "-eu", "-c", replace.Replace(block[1]))
				cmd.Dir = work
				cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "MODULES="+modules, "ORDERS_DSN=gate:secret@tcp(127.0.0.1:1)/shop")
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Run(); err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				for line := range strings.Lines(block[2]) {
					if !matches(out.String(), strings.TrimSpace(line)) {
						t.Errorf("the output has no line %q:\n%s", strings.TrimSpace(line), out.String())
					}
				}
			})
		}
	}
	if commands < 5 {
		t.Errorf("found %d commands: are the blocks still marked sh?", commands)
	}
}

// matches reports whether a line stands in the output, indented or not.
func matches(output, line string) bool {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`)
	return regexp.MustCompile(`(?m)^ *` + pattern + `$`).MatchString(output)
}

var (
	link    = regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	code    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	marks   = regexp.MustCompile(`[^\pL\pN_ -]`)
)

// TestLinks checks that links between files, and to their sections, lead somewhere.
func TestLinks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/*.md")
	must(t, err)
	benchmarks, err := filepath.Glob("bench/*/README.md")
	must(t, err)
	files = append(files, benchmarks...)
	files = append(files, "bench/README.md", "faults/README.md", "../README.md", "../README.zh-CN.md", "../CHANGELOG.md", "../CONTRIBUTING.md", "../SECURITY.md", "../examples/fence/README.md")
	for _, file := range files {
		for _, m := range link.FindAllStringSubmatch(prose(t, file), -1) {
			target := file
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", filepath.Base(file), err)
			} else if m[2] != "" && !sections(t, target)[m[2]] {
				t.Errorf("%s: %s has no section #%s", filepath.Base(file), filepath.Base(target), m[2])
			}
		}
	}
}

// TestChinese checks that the Chinese README has commands of the other one, which are run.
func TestChinese(t *testing.T) {
	t.Parallel()
	english, err := os.ReadFile("../README.md")
	must(t, err)
	chinese, err := os.ReadFile("../README.zh-CN.md")
	must(t, err)
	blocks := code.FindAllString(string(chinese), -1)
	for _, block := range blocks {
		if !strings.Contains(string(english), block) {
			t.Errorf("README.md does not have\n%s", block)
		}
	}
	if len(blocks) != 3 {
		t.Errorf("%d blocks of code", len(blocks))
	}
}

// codePath matches a path in code spans.
var codePath = regexp.MustCompile("`((?:cmd|config|docs|extauthz|filter|internal|lockmw|tests|tools)(?:/[\\w.-]+)*)`")

// TestPaths checks that the files and packages that CONTRIBUTING.md names are there.
func TestPaths(t *testing.T) {
	t.Parallel()
	named := codePath.FindAllStringSubmatch(prose(t, "../CONTRIBUTING.md"), -1)
	for _, m := range named {
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Error(err)
		}
	}
	if len(named) < 50 {
		t.Errorf("found %d paths: are they still in code spans?", len(named))
	}
}

// prose returns a page without its blocks of code.
func prose(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	return code.ReplaceAllString(string(text), "")
}

// sections returns the names by which links lead to the sections of a page, as GitHub
// makes them of the headings.
func sections(t *testing.T, file string) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(prose(t, file), -1) {
		names[strings.ReplaceAll(marks.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return names
}
