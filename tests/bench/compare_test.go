package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	tests := []struct {
		name   string
		values []float64
		want   float64
	}{
		{"one", []float64{3}, 3},
		{"odd, out of order", []float64{9, 1, 5}, 5},
		{"even", []float64{4, 1, 2, 100}, 3},
	}
	for _, tt := range tests {
		if got := median(tt.values); got != tt.want {
			t.Errorf("%s: median(%v) = %v, want %v", tt.name, tt.values, got, tt.want)
		}
	}
}

// fixed is a contender that shows the same in each round, after noting its turn.
func fixed(turns *[]string, name string, s sample, bases ...string) contender {
	return contender{name, bases, func(_ context.Context, number, requests int) (sample, error) {
		*turns = append(*turns, name)
		if number == 0 && requests != 10 || number > 0 && requests != 100 {
			return nil, errors.New("wrong number of requests")
		}
		return s, nil
	}}
}

func TestMeasureTakesTurns(t *testing.T) {
	var turns []string
	s := section{title: "t", share: 2, contenders: []contender{
		fixed(&turns, "a", sample{rate: 1}), fixed(&turns, "b", sample{rate: 2}), fixed(&turns, "c", sample{rate: 3}),
	}}
	got, err := s.measure(t.Context(), settings{rounds: 3, requests: 200}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("a b c b c a c a b a b c", strings.Join(turns, " ")); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	one := func(v float64) []sample { return []sample{{rate: v}, {rate: v}, {rate: v}} }
	if diff := cmp.Diff([][]sample{one(1), one(2), one(3)}, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestMeasureNamesWhoFailed(t *testing.T) {
	cause := errors.New("no answer")
	for _, failing := range []int{0, 1} {
		s := section{title: "Checks", share: 1, contenders: []contender{
			{"ours", nil, func(_ context.Context, number, _ int) (sample, error) {
				if number == failing {
					return nil, cause
				}
				return sample{}, nil
			}},
		}}
		_, err := s.measure(t.Context(), settings{rounds: 1, requests: 100}, io.Discard)
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), `"ours" of "Checks"`) {
			t.Errorf("round %d failed: error %v", failing, err)
		}
	}
}

const wantText = `CHECKS
What it is.

       requests/s  p50 ms  sidecar CPU       CPU : no-op
no-op        1000    1.50         17.5
ours         2000                 30.0  1.50 (1.20-4.00)
idle          500    9.00          0.0  0.00 (0.00-0.00)

`

const wantMarkdown = `### Checks

What it is.

|  | requests/s | p50 ms | sidecar CPU | CPU : no-op |
|---|---:|---:|---:|---:|
| no-op | 1000 | 1.50 | 17.5 |  |
| ours | 2000 |  | 30.0 | 1.50 (1.20-4.00) |
| idle | 500 | 9.00 | 0.0 | 0.00 (0.00-0.00) |

`

func TestTable(t *testing.T) {
	s := section{
		title: "Checks", note: "What it is.",
		metrics:    []metric{rate, p50, sidecarCPU},
		ratios:     []ratio{{sidecarCPU, 0, "CPU : no-op"}},
		contenders: []contender{{name: "no-op"}, {name: "ours", bases: []string{"no-op"}}, {name: "idle", bases: []string{"no-op"}}},
	}
	// Each round's ratio is within that round: 30/20, 60/15 and 24/20. The last
	// round of the no-op was too short to be charged anything.
	measured := [][]sample{
		{{rate: 1000, p50: 1.5, sidecarCPU: 20}, {rate: 900, p50: 1, sidecarCPU: 15}, {rate: 1200, p50: 2, sidecarCPU: 20}, {rate: 1000, p50: 1.5}},
		{{rate: 2000, sidecarCPU: 30}, {rate: 1000, sidecarCPU: 60}, {rate: 2100, sidecarCPU: 24}, {rate: 2000, sidecarCPU: 30}},
		{{rate: 500, p50: 9}, {rate: 500, p50: 9}, {rate: 500, p50: 9}, {rate: 500, p50: 9}},
	}
	measured[0][3][sidecarCPU] = 0
	for i := range measured[2] {
		measured[2][i][sidecarCPU] = 0
	}
	for _, tt := range []struct {
		name, want string
		markdown   bool
	}{{"text", wantText, false}, {"Markdown", wantMarkdown, true}} {
		var out bytes.Buffer
		r := report{w: &out, markdown: tt.markdown}
		r.table(s.table(measured))
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
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
	r := report{w: w}
	r.intro(settings{rounds: 1})
	r.table(table{title: "t", header: []string{"", "x"}})
	if !errors.Is(r.err, io.ErrShortWrite) || w.writes != 1 {
		t.Errorf("error %v after %d writes, want that of the first", r.err, w.writes)
	}
}
