package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func newTestArena(t *testing.T) *arena {
	t.Helper()
	in, err := newArena(bedtest.New(t).Redis().Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.close)
	return in
}

// TestMeasure checks that each has its turns, on an empty Redis, through the
// proxy first.
func TestMeasure(t *testing.T) {
	in := newTestArena(t)
	var turns []string
	s := section{name: "s", metrics: []benchmark.Metric{rate}, round: func(ctx context.Context, tt turn) (benchmark.Sample, error) {
		if n := in.control.DBSize(ctx).Val(); n != 0 {
			t.Errorf("Redis has %d keys", n)
		}
		in.control.Set(ctx, "left", "behind", 0)
		if tt.addr == in.proxy.addr() {
			turns = append(turns, "count-"+tt.candidate.name)
			return benchmark.Sample{rate: 1e9, requests: 7}, nil
		}
		turns = append(turns, tt.candidate.name)
		return benchmark.Sample{rate: float64(len(turns))}, nil
	}}
	r, err := s.measure(t.Context(), in, []candidate{{name: "a"}, {name: "b"}, {name: "c"}},
		settings{Settings: benchmark.Settings{Rounds: 2}, length: time.Second}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(turns, " "), "count-a count-b count-c b c a c a b"; got != want {
		t.Errorf("turns %q, want %q", got, want)
	}
	if got := r.Values("c", requests); len(got) != 2 || got[0] != 7 {
		t.Errorf("requests of c: %v, want 7 in both rounds", got)
	}
	if got := r.Ratios(rate, "a", "b"); len(got) != 2 || got[0] != 6.0/4 || got[1] != 8.0/9 {
		t.Errorf("a : b is %v, want the ratios of each round", got)
	}
	if got := r.Ratios(rate, "a", "d"); got != nil {
		t.Errorf("a : d, which was not measured, is %v", got)
	}
}

func TestMeasureNamesWhoFailed(t *testing.T) {
	in, cause := newTestArena(t), errors.New("no answer")
	s := section{name: "relay", metrics: []benchmark.Metric{rate}, round: func(context.Context, turn) (benchmark.Sample, error) { return nil, cause }}
	_, err := s.measure(t.Context(), in, []candidate{{name: "redsync"}}, settings{Settings: benchmark.Settings{Rounds: 1}}, io.Discard)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "redsync, relay") {
		t.Errorf("error %v", err)
	}
}

func TestUsage(t *testing.T) {
	in := newTestArena(t)
	u, got := usage{control: in.control}, benchmark.Sample{}
	if err := u.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const ops = 1000
	for range ops {
		if err := in.control.Ping(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.stop(t.Context(), ops, got); err != nil {
		t.Fatal(err)
	}
	for _, m := range []benchmark.Metric{allocs, memory, clientCPU, redisCPU} {
		if got[m] <= 0 {
			t.Errorf("%s of a ping: %v", m, got[m])
		}
	}
}
