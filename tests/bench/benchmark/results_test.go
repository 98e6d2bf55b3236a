package benchmark

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	rate = Metric{"ops/s", "%.0f"}
	cpu  = Metric{"CPU", "%.1f"}
)

// invented are results of which the last candidate has not all.
func invented() Results {
	return Results{Names: []string{"ours", "peer", "idle"}, Rounds: [][]Sample{
		{{rate: 2000, cpu: 30}, {rate: 1000, cpu: 60}, {rate: 2100, cpu: 24}},
		{{rate: 1000, cpu: 20}, {rate: 900, cpu: 0}, {rate: 1200}},
		{{}, {cpu: 1}},
	}}
}

func TestResults(t *testing.T) {
	r := invented()
	for _, tt := range []struct {
		name      string
		got, want []float64
	}{
		{"values", r.Values("ours", cpu), []float64{30, 60, 24}},
		{"values of some rounds", r.Values("idle", cpu), []float64{1}},
		{"values of nobody", r.Values("nobody", cpu), nil},
		{"ratios of each round", r.Ratios(rate, "ours", "peer"), []float64{2, 1000.0 / 900, 1.75}},
		{"none over nothing", r.Ratios(cpu, "ours", "peer"), []float64{1.5}},
		{"of the round that both have", r.Ratios(cpu, "idle", "ours"), []float64{1.0 / 60}},
		{"nobody's", r.Ratios(cpu, "ours", "nobody"), nil},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	if diff := cmp.Diff([]string{"peer", "1000", "10.0"}, r.Row("peer", []Metric{rate, cpu})); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"idle", "", "1.0"}, r.Row("idle", []Metric{rate, cpu})); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}

// TestTurns has each begin a round, and follow each other.
func TestTurns(t *testing.T) {
	for round, want := range [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}} {
		if diff := cmp.Diff(want, Turns(round, 3)); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", round, diff)
		}
	}
}

func TestRatioText(t *testing.T) {
	if got, want := RatioText([]float64{1.5, 4, 1.2}), "1.50 (1.20-4.00)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := RatioText(nil); got != "" {
		t.Errorf("none is %q", got)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"one", []float64{3}, 3},
		{"odd, out of order", []float64{9, 1, 5}, 5},
		{"even", []float64{4, 1, 2, 100}, 3},
	} {
		if got := Median(tt.values); got != tt.want {
			t.Errorf("%s: Median(%v) = %v, want %v", tt.name, tt.values, got, tt.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, tt := range []struct {
		sorted  []time.Duration
		percent int
		want    time.Duration
	}{{nil, 99, 0}, {hundred[:1], 50, 1}, {hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:3], 99, 3}} {
		if got := Percentile(tt.sorted, tt.percent); got != tt.want {
			t.Errorf("p%d of %d: %d, want %d", tt.percent, len(tt.sorted), got, tt.want)
		}
	}
}
