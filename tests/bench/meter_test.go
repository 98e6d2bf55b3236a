package main

import (
	"context"
	"errors"
	"testing"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

func TestMetered(t *testing.T) {
	count, broken := 100.0, error(nil)
	meters := map[benchmark.Metric]meter{scripts: func(context.Context) (float64, error) { return count, broken }}
	got := benchmark.Sample{}
	work := func() error { count += 30; return nil }
	if err := metered(t.Context(), got, 15, meters, work); err != nil || got[scripts] != 2 {
		t.Errorf("%v, %v; want 2 a request", got, err)
	}
	cause := errors.New("lost")
	if err := metered(t.Context(), got, 15, meters, func() error { return cause }); !errors.Is(err, cause) {
		t.Errorf("error %v, want that of the work", err)
	}
	if err := metered(t.Context(), got, 15, meters, func() error { broken = cause; return nil }); !errors.Is(err, cause) {
		t.Errorf("error %v, want that of the meter", err)
	}
}

func TestCountScripts(t *testing.T) {
	tests := []struct {
		name, stats string
		want        float64
		ok          bool
	}{
		{"none", "# Commandstats\r\n", 0, true},
		{"what they call does not count", "# Commandstats\r\ncmdstat_evalsha:calls=200,usec=1,usec_per_call=0.1\r\n" +
			"cmdstat_hset:calls=100,usec=7\r\ncmdstat_eval:calls=2,usec=1\r\n", 202, true},
		{"no number", "cmdstat_eval:calls=many,usec=1\r\n", 0, false},
	}
	for _, tt := range tests {
		got, err := countScripts(tt.stats)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}
