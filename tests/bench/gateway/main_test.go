package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// needWrk skips the test if wrk is missing, or fails it, as bedtest does.
func needWrk(t *testing.T) {
	t.Helper()
	bedtest.NeedProcesses(t)
	if _, err := exec.LookPath("wrk"); err != nil {
		bedtest.Check(t, &testbed.MissingError{Program: "wrk", Fetch: "gateway"})
	}
}

// TestRun measures everything, as little of it as possible: every answer is right,
// and the tables and the plot are whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	needWrk(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	file := filepath.Join(t.TempDir(), "plot.svg")
	bedtest.Check(t, run(ctx, []string{"-rounds", "1", "-time", "100ms", "-window", benchtest.LongWindow, "-plot", file}, &stdout, &stderr))
	if got := strings.Count(stderr.String(), "round 1 of 1"); got != 30 {
		t.Errorf("%d measurements, want 30: %s", got, &stderr)
	}
	const figures = ` +\d+ +[0-9.]+ +[0-9.]+ `
	benchtest.Rows(t, stdout.String(),
		nameEnvoy+figures,
		nameNoop+figures,
		nameAuthzNone+figures,
		nameModuleNone+figures,
		// Compared with three others by their rates, as the CPU's may be missing.
		nameModule+figures+`.* [0-9.]+ \([0-9.]+-[0-9.]+\) .*\) .*\)`,
		nameNginx+figures,
		nameLua+figures+`.*\)`,
	)
	if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), ">"+nameModule+"<") != 6 {
		t.Errorf("the plot has not six bars of the module (%v):\n%s", err, text)
	}
}

func TestFlags(t *testing.T) {
	usual := benchmark.Settings{Rounds: 5}
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{Settings: usual, length: 4 * time.Second, window: 500 * time.Millisecond}},
		{
			Name: "all", Args: []string{"-rounds", "2", "-time", "1s", "-window", "2s", "-markdown", "-sections", "a,b", "-plot", "p", "-browser"},
			Want: settings{benchmark.Settings{Rounds: 2, Markdown: true}, time.Second, 2 * time.Second, "a,b", "p", true},
		},
		{Name: "too short", Args: []string{"-time", "1ms"}, Err: "-time 1ms: use 100ms to 1m0s"},
		{Name: "a short window", Args: []string{"-window", "99ms"}, Err: "-window 99ms: use 100ms to 10s"},
		{Name: "too long", Args: []string{"-time", "2m"}, Err: "-time 2m0s: use 100ms to 1m0s"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
	})
}
