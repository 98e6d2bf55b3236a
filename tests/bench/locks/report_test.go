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

// invented are results of three candidates in three rounds. One of them never
// had the lock.
func invented() []results {
	names := []string{nameOurs, nameGoRedis, nameRedsync}
	return []results{
		{section: uncontended(), names: names, rounds: [][]sample{
			{{rate: 900, allocs: 20.04}, {rate: 1100, allocs: 20}, {rate: 1000, allocs: 20}},
			{{rate: 1000, allocs: 22}, {rate: 1000, allocs: 22}, {rate: 2000, allocs: 22}},
			{{rate: 500, allocs: 40}, {rate: 400, allocs: 40}, {rate: 800, allocs: 39}},
		}},
		{section: relay(), names: names, rounds: [][]sample{
			{{grants: 450, inUse: 93.4, hold: 2.064, requests: 1.25}, {grants: 440, inUse: 91}, {grants: 430, inUse: 90}},
			{{grants: 330}, {grants: 320}, {grants: 310}},
			{{grants: 0}, {grants: 0}, {grants: 0}},
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
	r.intro(settings{rounds: 1}, "7")
	r.table(invented()[0].table())
	if !errors.Is(r.err, io.ErrShortWrite) || w.writes != 1 {
		t.Errorf("error %v after %d writes, want that of the first", r.err, w.writes)
	}
}
