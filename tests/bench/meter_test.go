package main

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
)

const stat = `812 (a) b (c) S 1 812 812 0 -1 4194560 97 0 0 0 123 45 9 9 20 0 1 0 548320 5492736 725`

func TestParseStat(t *testing.T) {
	tests := []struct {
		name, text string
		want       time.Duration
		ok         bool
	}{
		{"user and system time, the name has brackets", stat, 1680 * time.Millisecond, true},
		{"cut off", "812 (sh) S 1 812", 0, false},
		{"empty", "", 0, false},
		{"no number", strings.Replace(stat, " 45 ", " x ", 1), 0, false},
	}
	for _, tt := range tests {
		got, err := parseStat(tt.text)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

// TestCPUTime works until the kernel has charged it.
func TestCPUTime(t *testing.T) {
	before, err := cpuTime(os.Getpid())
	if err != nil {
		t.Skip(err) // no /proc
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		now, err := cpuTime(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now >= before+3*tick {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("30 s of work moved the CPU time from %v to %v only", before, now)
		}
	}
	if _, err := cpuTime(-1); err == nil {
		t.Error("a process that is not there has a CPU time")
	}
}

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
