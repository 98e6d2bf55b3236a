// Package benchtest is what the tests of the benchmark commands share. It registers
// the flag -update, which writes golden files anew.
package benchtest

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// LongWindow is a -window in which ordergate is certain of absent orders although the tests
// beside it hold it up.
const LongWindow = "5s"

// Golden compares with a file of testdata.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// Tables compares what is written as text and as Markdown with report.txt and
// report.md.
func Tables(t *testing.T, write func(w io.Writer, markdown bool)) {
	t.Helper()
	for name, markdown := range map[string]bool{"report.txt": false, "report.md": true} {
		var out bytes.Buffer
		write(&out, markdown)
		Golden(t, name, out.String())
	}
}

// Rows fails the test unless each pattern matches the beginning of a line.
func Rows(t *testing.T, output string, patterns ...string) {
	t.Helper()
	for _, row := range patterns {
		if !regexp.MustCompile(`(?m)^` + row).MatchString(output) {
			t.Errorf("no row %q in:\n%s", row, output)
		}
	}
}

// FlagTest is a case of [Flags].
type FlagTest[S any] struct {
	Name string
	Args []string
	Want S
	Err  string // "" for none
}

// Flags tests how a command parses its arguments.
func Flags[S any](t *testing.T, parse func(args []string, stderr io.Writer) (S, error), tests []FlagTest[S]) {
	t.Helper()
	exported := cmp.Exporter(func(reflect.Type) bool { return true })
	for _, tt := range tests {
		got, err := parse(tt.Args, io.Discard)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != tt.Err {
			t.Errorf("%s: error %q, want %q", tt.Name, text, tt.Err)
		}
		if diff := cmp.Diff(tt.Want, got, exported); err == nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.Name, diff)
		}
	}
}
