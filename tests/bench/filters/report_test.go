package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file of testdata.
func golden(t *testing.T, name, got string) {
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

// invented are results of three candidates in three rounds. One of them has no
// formula, and was not in all sections.
func invented() []results {
	names := []string{nameBlocked, nameBlobloomSync, nameMap}
	return []results{
		{section: lookupSection(largeSize), names: names, rounds: [][]sample{
			{
				{hitTime: 100, missTime: 90, hitApart: 80, allocs: 0, bytesPerID: 1.943, overFormula: 0.04, falsePositives: 0.0998},
				{hitTime: 120, missTime: 91}, {hitTime: 110, missTime: 92},
			},
			{{hitTime: 150, missTime: 90, hitApart: 79, bytesPerID: 2.125}, {hitTime: 180, missTime: 45}, {hitTime: 99, missTime: 92}},
			{{hitTime: 400}, {hitTime: 420}, {hitTime: 600}},
		}},
		{section: buildSection(largeSize), names: names[:2], rounds: [][]sample{
			{{buildRate: 9, buildCPU: 5}, {buildRate: 8, buildCPU: 5}, {buildRate: 10, buildCPU: 5}},
			{{buildRate: 3, buildCPU: 3}, {buildRate: 4, buildCPU: 3}, {buildRate: 10, buildCPU: 3}},
		}},
	}
}

func TestTables(t *testing.T) {
	for name, markdown := range map[string]bool{"report.txt": false, "report.md": true} {
		var out bytes.Buffer
		r := report{w: &out, markdown: markdown}
		for _, one := range invented() {
			r.table(one.table())
		}
		r.table(targetTable(invented()))
		golden(t, name, out.String())
	}
}

func TestPlot(t *testing.T) {
	golden(t, "plot.svg", plot(invented()))
	path := filepath.Join(t.TempDir(), "nowhere", "plot.svg")
	if err := writePlot(path, invented()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want os.ErrNotExist", err)
	}
}

// full is a writer that takes nothing.
type full struct{ writes int }

func (f *full) Write([]byte) (int, error) {
	f.writes++
	return 0, io.ErrShortWrite
}

func TestReportKeepsItsError(t *testing.T) {
	w := &full{}
	r := report{w: w}
	r.intro(settings{rounds: 1})
	r.table(invented()[0].table())
	if !errors.Is(r.err, io.ErrShortWrite) || w.writes != 1 {
		t.Errorf("error %v after %d writes, want that of the first", r.err, w.writes)
	}
}
