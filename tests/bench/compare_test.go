package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

// fixed is a contender that shows the same in each round, after noting its turn.
func fixed(turns *[]string, name string, s benchmark.Sample, bases ...string) contender {
	return contender{name, bases, func(_ context.Context, number, requests int) (benchmark.Sample, error) {
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
		fixed(&turns, "a", benchmark.Sample{rate: 1}), fixed(&turns, "b", benchmark.Sample{rate: 2}), fixed(&turns, "c", benchmark.Sample{rate: 3}),
	}}
	got, err := s.measure(t.Context(), settings{Settings: benchmark.Settings{Rounds: 3}, requests: 200}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("a b c b c a c a b a b c", strings.Join(turns, " ")); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	one := func(v float64) []benchmark.Sample { return []benchmark.Sample{{rate: v}, {rate: v}, {rate: v}} }
	want := benchmark.Results{Names: []string{"a", "b", "c"}, Rounds: [][]benchmark.Sample{one(1), one(2), one(3)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

func TestMeasureNamesWhoFailed(t *testing.T) {
	cause := errors.New("no answer")
	for _, failing := range []int{0, 1} {
		s := section{title: "Checks", share: 1, contenders: []contender{
			{"ours", nil, func(_ context.Context, number, _ int) (benchmark.Sample, error) {
				if number == failing {
					return nil, cause
				}
				return benchmark.Sample{}, nil
			}},
		}}
		_, err := s.measure(t.Context(), settings{Settings: benchmark.Settings{Rounds: 1}, requests: 100}, io.Discard)
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), `"ours" of "Checks"`) {
			t.Errorf("round %d failed: error %v", failing, err)
		}
	}
}

// TestTable has a row that is compared with two, and one that is compared with none.
func TestTable(t *testing.T) {
	s := section{
		title: "Checks", note: "What it is.",
		metrics: []benchmark.Metric{rate, sidecarCPU},
		ratios:  []ratio{{sidecarCPU, 0, "CPU : no-op"}, {rate, 1, "requests/s : floor"}},
		contenders: []contender{
			{name: "no-op"}, {name: "floor", bases: []string{"no-op"}}, {name: "ours", bases: []string{"no-op", "floor"}},
		},
	}
	// The last round of the no-op was too short to be charged anything.
	measured := benchmark.Results{Names: []string{"no-op", "floor", "ours"}, Rounds: [][]benchmark.Sample{
		{{rate: 1000, sidecarCPU: 20}, {rate: 900, sidecarCPU: 15}, {rate: 1200, sidecarCPU: 20}, {rate: 1000, sidecarCPU: 0}},
		{{rate: 4000, sidecarCPU: 10}, {rate: 4000, sidecarCPU: 15}, {rate: 4000, sidecarCPU: 10}, {rate: 4000, sidecarCPU: 9}},
		{{rate: 2000, sidecarCPU: 30}, {rate: 1000, sidecarCPU: 60}, {rate: 2100, sidecarCPU: 24}, {rate: 2000, sidecarCPU: 30}},
	}}
	want := benchmark.Table{
		Title: "Checks", Note: "What it is.",
		Header: []string{"", "requests/s", "sidecar CPU", "CPU : no-op", "requests/s : floor"},
		Rows: [][]string{
			{"no-op", "1000", "17.5", "", ""},
			{"floor", "4000", "10.0", "0.50 (0.50-1.00)", ""},
			{"ours", "2000", "30.0", "1.50 (1.20-4.00)", "0.50 (0.25-0.53)"},
		},
	}
	if diff := cmp.Diff(want, s.table(measured)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
