package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ordergate/ordergate/internal/source"
	"github.com/ordergate/ordergate/tests/bench/benchmark"
	"github.com/ordergate/ordergate/tests/bench/benchmark/benchtest"
	"github.com/ordergate/ordergate/tests/testbed/bedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun measures everything, as little of it as possible: no row is missing, and
// the tables are whole.
func TestRun(t *testing.T) {
	bedtest.NeedProcesses(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	bedtest.Check(t, run(ctx, []string{"-rounds", "2", "-rows", "500", "-batch", "100"}, &stdout, &stderr))
	if got, want := strings.Count(stderr.String(), "round 2 of 2"), 2*len(readings); got != want {
		t.Errorf("%d measurements, want %d: %s", got, want, &stderr)
	}
	benchtest.Rows(t, stdout.String(),
		`MARIADB$`, `POSTGRES$`,
		`numbers, one SELECT +\d+\.\d\d$`,
		`numbers, in batches +\d+\.\d\d +\d+\.\d\d \(.*\) +\d+\.\d\d \(`,
		`texts, in batches by time +\d+\.\d\d +\d+\.\d\d \(.*\) +\d+\.\d\d \(`,
		`postgres +texts, in batches by number : texts and numbers in order, one SELECT +at least 0.7 `,
	)
}

func TestFlags(t *testing.T) {
	benchtest.Flags(t, parseFlags, []benchtest.FlagTest[settings]{
		{Name: "defaults", Want: settings{Settings: benchmark.Settings{Rounds: 5}, rows: 1_000_000, batch: source.DefaultBatch}},
		{Name: "all", Args: []string{"-rounds", "2", "-rows", "7", "-batch", "3", "-only", "postgres", "-markdown"},
			Want: settings{benchmark.Settings{Rounds: 2, Markdown: true}, 7, 3, "postgres"}},
		{Name: "no rows", Args: []string{"-rows", "0"}, Err: "-rows 0: use 1 or more"},
	})
}
