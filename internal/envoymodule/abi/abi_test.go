package abi

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/envoyproxy/envoy/source/extensions/dynamic_modules/abi" // has abi.h beside it

	"github.com/ordergate/ordergate/internal/envoymodule"
	"github.com/ordergate/ordergate/internal/gate"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

// envoysOwn returns the path of Envoy's abi.h, of the version in go.mod.
func envoysOwn(t *testing.T) string {
	t.Helper()
	bedtest.NeedProcesses(t)
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/envoy/source/extensions/dynamic_modules").Output()
	if err != nil {
		t.Fatalf("finding envoy's abi.h: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "abi", "abi.h")
}

func cc(t *testing.T, args ...string) {
	t.Helper()
	bedtest.NeedProcesses(t)
	out, err := exec.Command("cc", append([]string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-O2"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("cc %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestSignatures compiles the events with Envoy's own header, so that every function has
// to have the arguments that it has there.
func TestSignatures(t *testing.T) {
	own := envoysOwn(t)
	cc(t, "-fsyntax-only", "module.c")
	cc(t, "-fsyntax-only", `-DORDERGATE_ABI="`+own+`"`, "module.c")
}

// layout prints sizes, offsets and values.
const layout = `
#include <stdio.h>
#include "module.h"
#define SIZE(t) printf("%s %zu\n", #t, sizeof(t));
#define AT(t, f) printf("%s.%s %zu\n", #t, #f, offsetof(t, f));
#define VALUE(v) printf("%s %d\n", #v, (int)(v));
int main(void) {
  puts(ENVOY_DYNAMIC_MODULES_ABI_VERSION);
  LINES
}
`

// TestLayout compares every type and value that envoy.h names with Envoy's own.
func TestLayout(t *testing.T) {
	text, err := os.ReadFile("envoy.h")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	var typ string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(strings.TrimRight(strings.TrimSpace(line), ";,{ "))
		switch {
		case len(words) >= 3 && words[0] == "typedef":
			typ = words[2]
			lines = append(lines, "SIZE("+typ+")")
		case strings.HasPrefix(line, "}"):
			typ = ""
		case typ != "" && len(words) > 2 && words[1] == "=":
			lines = append(lines, "VALUE("+words[0]+")")
		case typ != "" && len(words) >= 2:
			lines = append(lines, "AT("+typ+", "+strings.TrimLeft(words[len(words)-1], "*")+")")
		}
	}
	if len(lines) < 40 {
		t.Fatalf("only %d types, members and values were found in envoy.h", len(lines))
	}
	source := filepath.Join(t.TempDir(), "layout.c")
	if err := os.WriteFile(source, []byte(strings.Replace(layout, "LINES", strings.Join(lines, "\n  "), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	show := func(name string, args ...string) string {
		program := filepath.Join(t.TempDir(), name)
		cc(t, append(args, "-I.", "-o", program, source)...)
		out, err := exec.Command(program).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	ours, theirs := show("ours"), show("theirs", `-DORDERGATE_ABI="`+envoysOwn(t)+`"`)
	if ours != theirs {
		t.Errorf("envoy.h:\n%s\nEnvoy's:\n%s", ours, theirs)
	}
}

// TestNative keeps one reply of those that say the same.
func TestNative(t *testing.T) {
	r := envoymodule.Reply{Answer: gate.Reply{Status: 404, Body: "{}"}.Answer(gate.VerdictAbsent), Details: "ordergate_absent"}
	other := envoymodule.Reply{Answer: gate.Reply{Status: 404}.Answer(gate.VerdictAbsent), Details: "ordergate_absent"}
	first := Native(&r)
	if again := Native(&r); again != first {
		t.Error("the same reply is kept twice")
	}
	if Native(&other) == first {
		t.Error("another reply is the same")
	}
}
