package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures everything, as little of it as possible: every answer is
// right, and the tables are whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	for program, fetch := range map[string]string{"h2load": "bench", "redis-server": "redis"} {
		if _, err := exec.LookPath(program); err != nil {
			bedtest.Check(t, &testbed.MissingError{Program: program, Fetch: fetch})
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	bedtest.Check(t, run(ctx, []string{"-rounds", "1", "-requests", "6400", "-window", benchtest.LongWindow}, &stdout, &stderr))
	if got := strings.Count(stderr.String(), "round 1 of 1"); got != 18 {
		t.Errorf("%d measurements, want 18: %s", got, &stderr)
	}
	// Each row compared with itself or another has at least a rate.
	benchtest.Rows(t, stdout.String(),
		`no-op +\d+ `,
		`floor, as many workers +\d+ `,
		`ordergate, absent, with a window +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ \(`,
		`ordergate, under no rule +\d+ `,
		`no-op, refuses +\d+ +[0-9.]+ `,
		`ordergate, a lock each +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +2\.\d\d +[0-9.]+ \(`,
	)
}

func TestFlags(t *testing.T) {
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{benchmark.Settings{Rounds: 5}, 100_000, 500 * time.Millisecond}},
		{Name: "all", Args: []string{"-rounds", "2", "-requests", "7000", "-window", "1s", "-markdown"}, Want: settings{benchmark.Settings{Rounds: 2, Markdown: true}, 7000, time.Second}},
		{Name: "too few requests", Args: []string{"-requests", "6399"}, Err: "-requests 6399: use 6400 or more"},
		{Name: "a short window", Args: []string{"-window", "99ms"}, Err: "-window 99ms: use 100ms to 10s"},
		{Name: "an argument", Args: []string{"all"}, Err: `argument "all": there are only flags, see -help`},
	})
}

// TestWorkers holds the no-op to what ordergate runs with.
func TestWorkers(t *testing.T) {
	files, err := filepath.Glob("../../cmd/internal/command/*.go")
	if err != nil {
		t.Fatal(err)
	}
	constant := regexp.MustCompile(`(?m)streamWorkers\s*=\s*(\d+)$`)
	var found []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
	}
	if diff := cmp.Diff([]string{strconv.Itoa(noopWorkers)}, found); diff != "" {
		t.Errorf("ordergate's streamWorkers differs from noopWorkers (-here +there):\n%s", diff)
	}
}
