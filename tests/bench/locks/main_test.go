package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures everything, as little of it as possible. The full storm is
// left to ours: a peer may take ten seconds.
func TestRun(t *testing.T) {
	bedtest.New(t).Redis() // or it is missing, which is for bedtest to judge
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	plot := filepath.Join(t.TempDir(), "plot.svg")
	for _, tt := range []struct {
		name string
		args []string
		rows []string // of the output
	}{
		{
			"all but the storm", []string{"-scenarios", "uncontended,distinct,relay,tries", "-plot", plot},
			[]string{
				`ordergate +\d+ +\d+ +\d+ +[0-9.]+ +\d+ +2\.\d\d +1\.00 \(1\.00-1\.00\)$`,
				`redsync +\d+ +\d+ +\d+ +[0-9.]+ +\d+ +2\.\d\d +[0-9.]+ \(`,
				`bare rueidis +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +2\.\d\d +[0-9.]+ \(`,
				`ordergate +\d+ +\d+% +[0-9.]+ +[0-9.]+ +[0-9.]+ +\d+ +\d+ +1\.00 \(`,
				`bsm/redislock +\d+ +\d+ +\d+ +[0-9.]+ +[0-9.]+$`,
				`Distinct keys +ops/s : rueidislock +at least 1\.15 +[0-9.]+ +(yes|no)$`,
			},
		},
		{
			"the storm", []string{"-scenarios", "storm", "-only", "ordergate"},
			[]string{
				`ordergate +500 +\d+ +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+$`,
				`Storm +granted +at least 500 +500\.00 +yes$`,
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if err := run(ctx, append(tt.args, "-rounds", "1", "-time", "50ms"), &stdout, &stderr); err != nil {
				t.Fatalf("%v\n%s", err, &stderr)
			}
			benchtest.Rows(t, stdout.String(), tt.rows...)
		})
	}
	if text, err := os.ReadFile(plot); err != nil || strings.Count(string(text), ">ordergate<") != 5 {
		t.Errorf("the plot has not five bars of ours (%v):\n%s", err, text)
	}
}

func TestFlags(t *testing.T) {
	usual := benchmark.Settings{Rounds: 5}
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{Settings: usual, length: 2 * time.Second}},
		{
			Name: "all",
			Args: []string{"-rounds", "2", "-time", "1s", "-only", "a,b", "-scenarios", "c", "-markdown", "-plot", "p", "-cpuprofile", "q", "-memprofile", "r"},
			Want: settings{benchmark.Settings{Rounds: 2, Markdown: true}, time.Second, "a,b", "c", "p", benchmark.Profiles{CPU: "q", Allocations: "r"}},
		},
		{Name: "too short", Args: []string{"-time", "1ms"}, Err: "-time 1ms: use 50ms or more"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
	})
}
