package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ordergate/ordergate/internal/testbed/bedtest"
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
	s := section{name: "s", metrics: []metric{rate}, round: func(ctx context.Context, tt turn) (sample, error) {
		if n := in.control.DBSize(ctx).Val(); n != 0 {
			t.Errorf("Redis has %d keys", n)
		}
		in.control.Set(ctx, "left", "behind", 0)
		if tt.addr == in.proxy.addr() {
			turns = append(turns, "count-"+tt.candidate.name)
			return sample{rate: 1e9, requests: 7}, nil
		}
		turns = append(turns, tt.candidate.name)
		return sample{rate: float64(len(turns))}, nil
	}}
	r, err := s.measure(t.Context(), in, []candidate{{name: "a"}, {name: "b"}, {name: "c"}},
		settings{rounds: 2, length: time.Second}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(turns, " "), "count-a count-b count-c b c a c a b"; got != want {
		t.Errorf("turns %q, want %q", got, want)
	}
	if got := r.values("c", requests); len(got) != 2 || got[0] != 7 {
		t.Errorf("requests of c: %v, want 7 in both rounds", got)
	}
	if got := r.ratios(rate, "a", "b"); len(got) != 2 || got[0] != 6.0/4 || got[1] != 8.0/9 {
		t.Errorf("a : b is %v, want the ratios of each round", got)
	}
	if got := r.ratios(rate, "a", "d"); got != nil {
		t.Errorf("a : d, which was not measured, is %v", got)
	}
}

func TestMeasureNamesWhoFailed(t *testing.T) {
	in, cause := newTestArena(t), errors.New("no answer")
	s := section{name: "relay", metrics: []metric{rate}, round: func(context.Context, turn) (sample, error) { return nil, cause }}
	_, err := s.measure(t.Context(), in, []candidate{{name: "redsync"}}, settings{rounds: 1}, io.Discard)
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "redsync, relay") {
		t.Errorf("error %v", err)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 2, 100}, 3}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.values, got, tt.want)
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
		if got := percentile(tt.sorted, tt.percent); got != tt.want {
			t.Errorf("p%d of %d: %d, want %d", tt.percent, len(tt.sorted), got, tt.want)
		}
	}
}

func TestUsage(t *testing.T) {
	in := newTestArena(t)
	u, got := usage{control: in.control}, sample{}
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
	for _, m := range []metric{allocs, memory, clientCPU, redisCPU} {
		if got[m] <= 0 {
			t.Errorf("%s of a ping: %v", m, got[m])
		}
	}
}

func TestParseCPU(t *testing.T) {
	const text = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\nused_cpu_user_children:9.0\r\n"
	if got, err := parseCPU(text); got != 1750*time.Millisecond || err != nil {
		t.Errorf("%v, %v; want 1.75s", got, err)
	}
	if _, err := parseCPU("used_cpu_sys:1.5\r\n"); err == nil {
		t.Error("half of the fields is no error")
	}
}
