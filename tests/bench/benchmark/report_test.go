package benchmark

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const wantText = `CHECKS
What it is.

      ops/s   CPU        CPU : peer
ours   2000  30.0  1.50 (1.50-1.50)
peer   1000  10.0
idle          1.0  1.00 (1.00-1.00)

`

const wantMarkdown = `### Checks

What it is.

|  | ops/s | CPU | CPU : peer |
|---|---:|---:|---:|
| ours | 2000 | 30.0 | 1.50 (1.50-1.50) |
| peer | 1000 | 10.0 |  |
| idle |  | 1.0 | 1.00 (1.00-1.00) |

`

func TestReport(t *testing.T) {
	table := NewTable("Checks", "What it is.", []Metric{rate, cpu})
	table.Header = append(table.Header, "CPU : peer")
	r := invented()
	table.Rows = [][]string{
		append(r.Row("ours", []Metric{rate, cpu}), "1.50 (1.50-1.50)"),
		append(r.Row("peer", []Metric{rate, cpu}), ""),
		append(r.Row("idle", []Metric{rate, cpu}), "1.00 (1.00-1.00)"),
	}
	for _, tt := range []struct {
		name, want string
		markdown   bool
	}{{"text", wantText, false}, {"Markdown", wantMarkdown, true}} {
		var out bytes.Buffer
		r := NewReport(&out, tt.markdown, "###")
		r.Table(table)
		r.Table(NewTable("Empty", "Nothing was measured.", nil))
		if diff := cmp.Diff(tt.want, out.String()); diff != "" || r.Err() != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", tt.name, r.Err(), diff)
		}
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
	r := NewReport(w, false, "##")
	r.Printf("%d rounds\n", 5)
	r.Table(Table{Title: "t", Header: []string{"", "x"}, Rows: [][]string{{"a", "1"}}})
	if !errors.Is(r.Err(), io.ErrShortWrite) || w.writes != 1 {
		t.Errorf("error %v after %d writes, want that of the first", r.Err(), w.writes)
	}
}

func TestTargets(t *testing.T) {
	targets := NewTargets("it")
	targets.Add("A", "rate", AtLeast(0.9), []float64{0.9, 5, 0.1})
	targets.Add("A", "rate", AtLeast(440), []float64{439})
	targets.Add("B", "time", AtMost(2), []float64{2})
	targets.Add("B", "time", AtMost(2), []float64{2.125})
	targets.Add("B", "not measured", AtMost(2), nil)
	want := [][]string{
		{"A", "rate", "at least 0.9", "0.90", "yes"},
		{"A", "rate", "at least 440", "439.00", "no"},
		{"B", "time", "at most 2", "2.00", "yes"},
		{"B", "time", "at most 2", "2.12", "no"},
	}
	if diff := cmp.Diff(want, targets.Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPlot has three panels, the last of them below. The commands' own tests have
// golden files.
func TestPlot(t *testing.T) {
	nothing := Results{Names: []string{"a"}, Rounds: [][]Sample{{{rate: 0}}}}
	p := Plot{PanelWidth: 400, NameWidth: 100, Ours: func(name string) bool { return name == "ours" }, Panels: []Panel{
		{"One", invented(), rate}, {"Two", invented(), cpu}, {"Three", nothing, rate},
	}}
	got := p.SVG()
	for _, want := range []string{
		`width="816" height="172"`,           // of two panels, and 3 bars above one
		`<text x="16" y="30" font-weight`,    // One
		`<text x="416" y="30" font-weight`,   // Two, beside it
		`<text x="16" y="130" font-weight`,   // Three, below
		`width="228.6" height="16" fill="#1`, // 2000 of 2100 on 240 pixels, in our colour
		`width="0.0" height="16"`,            // no division by 0
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in:\n%s", want, got)
		}
	}
	err := p.Write(filepath.Join(t.TempDir(), "nowhere", "plot.svg"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want os.ErrNotExist", err)
	}
}
